"""What a tracker is, what it gets of a run, and what it notes in the run's directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from embexp.records.folder import json_object
from embexp.system import files

Parameter = bool | int | float | str
"""The value of a setting."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it.

    Attributes:
        run_id: the same for two runs that must give the same bits.
        parameters: settings that decide the results, by config path.
        commit: of the code; None: not known.
        first_step: the step after which this process trains; 0 unless the run is resumed.
    """

    name: str
    directory: Path
    run_id: str
    parameters: Mapping[str, Parameter]
    config: str
    commit: str | None = None
    first_step: int = 0


@dataclass(frozen=True)
class Point:
    """Metrics after a step.

    Attributes:
        step: number of steps done.
        metrics: by name, such as `validation/auc`; what is before the first `/` is a split, or `final`.
    """

    step: int
    seconds: float
    metrics: Mapping[str, float]


class Tracker(Protocol):
    """Stores what a run reports. Any of its methods may fail with any exception."""

    name: str
    """For warnings, such as `MLflow`."""

    def start(self, run: TrackedRun) -> None:
        """Begins to track a run, or goes on with one that is resumed."""
        ...

    def log(self, points: Sequence[Point]) -> None:
        """Stores metrics; called again with the same points if it failed."""
        ...

    def artifacts(self, paths: Sequence[Path]) -> None:
        """Stores files and directories of the run."""
        ...

    def sealed(self, inventory: str) -> None:
        """Stores the digest of the run's inventory, once no file of the run is written any more."""
        ...

    def end(self, status: str) -> None:
        """Ends the run; `status` is completed, stopped_early, interrupted or failed."""
        ...


def remember(directory: Path, kind: str, note: Mapping[str, Any]) -> None:
    """Notes about a run in its directory what a tracker needs to go on in the same place when it is resumed."""
    files.write_text(directory / "tracking.json", json.dumps({kind: note}, indent=2) + "\n")


def remembered(directory: Path, kind: str) -> dict[str, Any]:
    """What a tracker noted about a run; empty: nothing that can be read."""
    found = json_object(directory / "tracking.json").get(kind)
    return found if isinstance(found, dict) else {}
