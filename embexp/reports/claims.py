"""The claims of recorded runs, checked: of each setting, whether the mean over its seeds and folds is what is expected.

The run's own summary says the same of itself; here, the repetitions of a sweep count together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from embexp.records.folder import RunFolder, json_object
from embexp.records.manifest import decides_nothing
from embexp.reports import groups
from embexp.reports.record import Record, Status, mapping
from embexp.specs import claims
from embexp.specs.claims import Claim, Claims, Expected

_NOT_TO_RUN = (Status.SKIPPED, Status.PRUNED)
_OF_DATA = ("data.path", "data.fetch")
_SPLIT = "data.split.seed"
"""Where `${seed}`, so that each seed of a sweep draws a split of its own."""


@dataclass(frozen=True)
class ClaimsChecked:
    """The claims of an experiment, or of one setting of a sweep.

    Attributes:
        name: the experiment, with the overrides that change what it computes.
        claims: with what was found.
        why: why nothing is checked; "": all claims are.
        directories: of the runs whose mean was taken.
        seconds: of these runs together; None: not known.
    """

    name: str
    claims: tuple[Claim, ...] = ()
    why: str = ""
    directories: tuple[Path, ...] = ()
    seconds: float | None = None

    @property
    def met(self) -> bool:
        """Whether all claims are checked, and met."""
        return not self.why and all(each.met for each in self.claims)

    def rows(self) -> list[dict[str, Any]]:
        """As JSON, a row for each claim; one for what is not checked, with the reason."""
        known = {
            "experiment": self.name,
            "runs": len(self.directories),
            "seconds": self.seconds,
            "directories": list(map(str, self.directories)),
        }
        if self.why:
            return [known | {"met": None, "why": self.why}]
        return [known | each.model_dump(mode="json") for each in self.claims]


def checked(
    records: Sequence[Record],
    expected: Claims | None = None,
    otherwise: Callable[[str], object] = lambda experiment: None,
) -> list[ClaimsChecked]:
    """The claims of runs, and of the settings of sweeps, in the order of their first run.

    Args:
        expected: what is claimed of all of them; None: what each has recorded.
        otherwise: called with the name of an experiment for the claims of runs that have recorded none.
    """
    return [
        _checked(runs, expected, otherwise)
        for several in _by_sweep(record for record in records if record.status not in _NOT_TO_RUN)
        for runs in groups.by_setting(several, (*groups.REPEATS, _SPLIT))
    ]


def _by_sweep(records: Iterable[Record]) -> list[list[Record]]:
    """The runs of each sweep; a run that is no job is alone. A job without a folder follows others of its sweep."""
    found: dict[Path | None, list[Record]] = {}
    place = None
    for record in records:
        if record.directory is not None:
            place = record.directory if record.number is None else record.directory.parent
        found.setdefault(place, []).append(record)
    return list(found.values())


def _checked(runs: Sequence[Record], expected: Claims | None, otherwise: Callable[[str], object]) -> ClaimsChecked:
    first = runs[0]
    experiment = first.choices.get("experiment") or str(first.settings.get("name") or first.name)
    name = " ".join([experiment, *_changing(first)])
    without = [run for run in runs if not run.status.has_results]
    if without:
        of = f"{len(without)} of {len(runs)} runs have no results: " if len(runs) > 1 else ""
        reason = without[0].reason or without[0].status.value
        return ClaimsChecked(name, why=f"{of}{reason}")
    if changed := next((run.changes for run in runs if run.changes), ""):
        return ClaimsChecked(name, why=f"its files have changed since it wrote them: {changed}")
    try:
        found = expected or _recorded(first) or _claims(otherwise(experiment))
    except ValidationError:
        return ClaimsChecked(name, why="this version does not understand what it expects")
    if not found:
        return ClaimsChecked(name, why="it makes no claims: give it `expect`")
    times = [run.train_seconds if run.seconds is None else run.seconds for run in runs]
    return ClaimsChecked(
        name,
        tuple(claims.checked(found, _means([mapping(run.summary.get("metrics")) for run in runs]))),
        directories=tuple(run.directory for run in runs if run.directory is not None),
        seconds=None if None in times else math.fsum(each for each in times if each is not None),
    )


def _changing(record: Record) -> list[str]:
    """The overrides that change what an experiment computes, but for where its data are, and what repeats it."""
    alike = ("experiment", *_OF_DATA, *groups.REPEATS, _SPLIT)
    keys = ((each.lstrip("+~").partition("=")[0], each) for each in record.overrides)
    return [each for key, each in keys if key not in alike and not decides_nothing(key)]


def _recorded(record: Record) -> Claims:
    return _claims({} if record.directory is None else json_object(RunFolder(record.directory).spec).get("expect"))


def _claims(content: object) -> Claims:
    """Claims as plain values; none where there are none.

    Raises:
        ValidationError: they are no claims.
    """
    return _CLAIMS.validate_python(claims.nested(content))


_CLAIMS: TypeAdapter[dict[str, dict[str, Expected]]] = TypeAdapter(dict[str, dict[str, Expected]])


def _means(metrics: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Means by split and metric; None where a run lacks the metric, or its value is not finite."""
    found: dict[str, dict[str, float | None]] = {}
    for split in metrics[0]:
        of_split = [mapping(each.get(split)) for each in metrics]
        found[split] = {name: _mean([each.get(name) for each in of_split]) for name in of_split[0]}
    return found


def _mean(values: Sequence[Any]) -> float | None:
    numbers = [number for value in values if (number := groups.number(value)) is not None and math.isfinite(number)]
    if len(numbers) < len(values):
        return None
    return numbers[0] if len(numbers) == 1 else statistics.fmean(numbers)
