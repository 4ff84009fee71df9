"""Studies: runs that belong together. Each is a choice of its field, with the specs of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from embexp.errors import Fault
from embexp.specs import fields
from embexp.specs.base import Choice, Spec
from embexp.specs.running import Save

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec

BASE = "base"
"""The run with which a study begins, if others start from its checkpoint."""


class StudyChoice(Choice):
    """Base class of studies."""

    kind: str
    descriptions: ClassVar[Mapping[str, str]] = {}
    """What each run is, by its name, which is also that of its folder; in order."""

    starts_from: ClassVar[Mapping[str, str]] = {}
    """The run from whose checkpoint a run starts, of those that start from one."""

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


def study_of(kind: str) -> type[StudyChoice]:
    """The class of a kind of study."""
    found: type[StudyChoice] = NoStudy if kind == "none" else fields.find("studies", kind)
    return found


def folders() -> tuple[str, ...]:
    """The names of the folders that runs of studies may have."""
    kinds = (study_of(name) for name in fields.names("studies"))
    return tuple(dict.fromkeys(name for kind in kinds for name in kind.descriptions))


def set_by_study(spec: RunSpec, name: str, without: type[Spec], rule: str) -> Iterator[Fault]:
    """A choice of a group that a study makes itself, other than that of nothing."""
    for scope, choice in spec.settings_of(name):
        if not isinstance(choice, without):
            yield Fault(scope.path, choice.kind, rule, "remove it, or set study=none")


def no_checkpoint(spec: RunSpec) -> Iterator[Fault]:
    """No checkpoint, where a study needs one."""
    if spec.checkpoint.save is Save.NEVER:
        rule = "the study goes on from the checkpoint of its first run"
        yield Fault("checkpoint.save", "never", rule, "set it to training or end, or set study=none")


def part_of(spec: RunSpec, name: str, settings: Mapping[str, Any]) -> RunSpec:
    """The spec of a run of a study, with changed settings."""
    return spec.model_copy(update={"study": NoStudy(), "name": f"{spec.name}/{name}", **settings})


def changed(model: Any, **settings: Any) -> Any:
    """A copy with changed settings; None: unchanged."""
    return model.model_copy(update={key: value for key, value in settings.items() if value is not None})
