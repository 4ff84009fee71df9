"""What a tracker is: it receives the parameters of a run, its metrics by step, its files and its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Parameter = bool | int | float | str
"""The value of a setting."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it.

    Attributes:
        name: of the experiment.
        directory: of the run.
        run_id: the same for two runs that must give the same bits.
        parameters: settings that decide the results, by config path.
        config: the whole spec as YAML.
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
        seconds: time of day, since the epoch.
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


def remembered(directory: Path, kind: str) -> dict[str, Any]:
    """What a tracker noted about a run when it began, so that a resumed run goes on in the same place.

    Args:
        directory: of the run.
        kind: of the tracker.
    """
    try:
        content = json.loads((directory / "tracking.json").read_bytes())
        found = content[kind]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
