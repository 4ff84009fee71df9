"""Studies: runs that belong together. Each is a choice of its field, with the specs of its runs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs import fields
from embexp.specs.base import Choice, Spec, different, where_known
from embexp.specs.data import GivenFiles
from embexp.specs.pretrained import Checkpoint, NoPretrained, Parent
from embexp.specs.running import Save

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

BASE = "base"
"""The run with which a study begins, if others start from its checkpoint."""


class StudyChoice(Choice):
    """Base class of studies."""

    kind: str
    descriptions: ClassVar[Mapping[str, str]] = {}
    """What each run is, in order, by its name, which is also the name of its folder."""

    def description(self, name: str) -> str:
        """What a run is, by its name."""
        return self.descriptions[name]

    def base_of(self, name: str) -> str | None:
        """The run whose checkpoint a run starts from; None: no checkpoint."""
        return None

    def runs(self, spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
        """The specs of the runs, by name, in order.

        Args:
            directory: of the study.

        Raises:
            TypeError: the spec is not a study.
        """
        raise TypeError(f"{spec.name} is not a study")


class NoStudy(StudyChoice):
    """One run."""

    kind: Literal["none"] = "none"
    implementation = "embexp.runs.experiment:SINGLE"


PARTS = "parts"
"""The folder, in that of a study, of the files into which it cuts its data."""


class Period(StrEnum):
    """How long the times in a column belong together."""

    DAY = "day"
    WEEK = "week"
    """As in ISO 8601: from Monday on."""
    MONTH = "month"


CONTINUED, ALL, LAST, WINDOW = "continued", "all", "last", "window"
_WAYS = {
    CONTINUED: "trained on {}, from the run before",
    ALL: "trained from nothing on all files up to {}",
    LAST: "trained from nothing on {} alone",
    WINDOW: "trained from nothing on the newest files up to {}",
}
"""The ways to train for the next file."""
_CUT = ("csv", "parquet", "jsonl")
_OF_DAY = re.compile(rf"({'|'.join(_WAYS)})-([0-9]{{3,}})")


def _named(way: str, number: int) -> str:
    """The name of the run that trains in a way for the file after one."""
    return f"{way}-{number:03d}"


def way_of(name: str) -> tuple[str, int]:
    """How a run of `study=daily` trains, and the number of its last file, from 1."""
    way, _, number = name.partition("-")
    return way, int(number)


class DailyStudy(StudyChoice):
    """Trains on one file after the other, and tests each time on the next one: going on, beside training anew.

    Files are those of `data.path`, in their order, or those into which it is cut by a column.
    """

    kind: Literal["daily"] = "daily"
    implementation = "embexp.runs.daily:STUDY"
    retrain: Annotated[tuple[Literal["all", "last", "window"], ...], different("each way may be listed only once")] = (
        "all",
        "last",
    )
    """What going on is compared with: training from nothing on all files so far, on the last one, on a window of them.
    """
    window: Annotated[int, Field(ge=2, le=10_000, strict=True)] = 7
    """Files of the window."""
    column: Annotated[str, Field(min_length=1)] | None = None
    """Column by whose values `data.path` is cut into files; null: it is a list of files."""
    period: Period | None = None
    """Rows of a day, week or month are one file; null: those of the same value."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Data without files, too few of them, and what the study sets."""
        values = "the first run begins from initial values, and each other one from the run before"
        return where_known(
            _files(self, spec, scope), set_by_study(spec, "pretrained", NoPretrained, values), no_checkpoint(spec)
        )

    def description(self, name: str) -> str:
        """What a run is."""
        way, number = way_of(name)
        return _WAYS[way].format(f"file {number}")

    def base_of(self, name: str) -> str | None:
        """The run before, of those that go on."""
        way, number = way_of(name)
        return _named(way, number - 1) if way == CONTINUED and number > 1 else None

    def runs(self, spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
        """For each file but the last: the run that goes on, and those that begin anew.

        If the data are cut by a column, they have been.
        """
        files: Sequence[str] = getattr(spec.data, "paths", ())
        if self.column is not None:
            files = [str(path) for path in sorted((directory / PARTS).iterdir())]
        found: dict[str, RunSpec] = {}
        for place in range(len(files) - 1):
            train = {
                CONTINUED: files[place : place + 1],
                ALL: files[: place + 1],
                LAST: files[place : place + 1],
                WINDOW: files[max(0, place + 1 - self.window) : place + 1],
            }
            for way in (CONTINUED, *self.retrain):
                if way != CONTINUED and place == 0:
                    continue  # the same run
                name = _named(way, place + 1)
                path = GivenFiles(train=train[way], test=files[place + 1])
                settings: dict[str, Any] = {"data": spec.data.model_copy(update={"path": path})}
                if (base := self.base_of(name)) is not None:
                    before = str(directory / base)
                    settings |= {"parent": Parent(path=before), "pretrained": Checkpoint(path=before)}
                found[name] = part_of(spec, name, settings)
        return found


def _files(study: DailyStudy, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
    """Data that are no list of files, or can't be cut."""
    paths, given = getattr(spec.data, "paths", ()), getattr(spec.data, "given", None)
    if study.column is not None:
        if given or spec.data.kind not in _CUT:
            rule = f"only files of {', '.join(_CUT)} without given splits can be cut by a column"
            remedy = "set it to null, and set data.path to a list of files"
            yield Fault(f"{scope.path}.column", repr(study.column), rule, remedy)
        return
    if study.period is not None:
        rule = "it divides the times in study.column, which is null"
        yield Fault(f"{scope.path}.period", study.period.value, rule, "set study.column, or leave it null")
    if given or len(paths) < 3:
        rule = (
            "the study trains on one file and tests on the next, again and again: it needs a list of at "
            "least three files in order"
        )
        yield Fault(
            "data.path",
            str(getattr(spec.data, "path", spec.data.kind)),
            rule,
            "set data.path=[one,two,three], or set study.column to a column",
        )


def study_of(kind: str) -> type[StudyChoice]:
    """The class of a kind of study."""
    own: dict[str, type[StudyChoice]] = {"none": NoStudy, "daily": DailyStudy}
    found: type[StudyChoice] = own[kind] if kind in own else fields.find("studies", kind)
    return found


def folders(within: Path) -> tuple[str, ...]:
    """The names of the folders that runs of a study in a folder have, or may have."""
    kinds = (study_of(name) for name in fields.names("studies"))
    names = dict.fromkeys(name for kind in kinds for name in kind.descriptions)
    with contextlib.suppress(OSError):
        daily = sorted(name for name in os.listdir(within) if is_of_daily(name))
        names |= dict.fromkeys(sorted(daily, key=lambda name: name.partition("-")[2]))
    return tuple(names)


def is_of_daily(name: str) -> bool:
    """Whether a folder may be that of a run of `study=daily`, by its name."""
    return _OF_DAY.fullmatch(name) is not None


def set_by_study(spec: RunSpec, name: str, without: type[Spec], rule: str) -> Iterator[Fault]:
    """A choice of a group that a study makes itself, other than that of nothing."""
    for scope, choice in spec.settings_of(name):
        if not isinstance(choice, without):
            yield Fault(scope.path, choice.kind, rule, "remove it, or set study=none")


def no_checkpoint(spec: RunSpec) -> Iterator[Fault]:
    """No checkpoint, where a study needs one."""
    if spec.checkpoint.save is Save.NEVER:
        rule = "the study continues from the checkpoint of its first run"
        yield Fault("checkpoint.save", "never", rule, "set it to training or end, or set study=none")


def part_of(spec: RunSpec, name: str, settings: Mapping[str, Any]) -> RunSpec:
    """The spec of a run of a study, with changed settings."""
    return spec.model_copy(update={"study": NoStudy(), "name": f"{spec.name}/{name}", **settings})


def changed(model: Any, **settings: Any) -> Any:
    """A copy with changed settings; None: unchanged."""
    return model.model_copy(update={key: value for key, value in settings.items() if value is not None})
