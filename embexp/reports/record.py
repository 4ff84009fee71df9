"""`Record`: one run of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from embexp.training.metric_names import Direction

NO_RESULT = ("output", "checkpoint", "sweep", "seeds", "tracking")
"""Parts of a spec that say where files go and how runs are searched, and change no result."""


class Status(StrEnum):
    """How a run ended, or where it is."""

    COMPLETED = "completed"
    STOPPED_EARLY = "stopped_early"
    RUNNING = "running"
    QUEUED = "queued"
    PLANNED = "planned"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    PRUNED = "pruned"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def has_results(self) -> bool:
        """Whether the training ended normally."""
        return self in (Status.COMPLETED, Status.STOPPED_EARLY)

    @property
    def has_metrics(self) -> bool:
        """Whether there are metrics: those of a pruned training are not of its end."""
        return self.has_results or self is Status.PRUNED

    @property
    def is_under_way(self) -> bool:
        """Whether a job runs, or a scheduler will run it."""
        return self in (Status.RUNNING, Status.QUEUED)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do: the run has ended normally, or is not to run at all."""
        return self.has_results or self in (Status.PRUNED, Status.SKIPPED)


@dataclass(frozen=True)
class Record:
    """A run, or a job of a sweep that has not become one.

    Attributes:
        directory: of the run; None if it was never started.
        name: tells it apart from the other runs of the report.
        number: of the job in its sweep, or None.
        reason: why it failed or was skipped, in one line, or "".
        settings: the spec, by dotted path; lists are values. Empty if the spec can't be read.
        overrides: of the command line, such as `optimizer=adam`.
        metrics: of the run, such as "validation rmse"; NaN where it was not finite.
        metric: the one that chooses the best run: the objective of the search, what early stopping watches, or the
            task's first. "" if unknown.
        direction: which way `metric` gets better, or None.
        summary: the content of summary.json, or empty.
        seconds: from the start of the job to its end, or None.
        same_as: number of the earlier job of the sweep that this one repeats, or None.
        changes: files of the run that were changed or removed since it ended, such as `changed: metrics.jsonl`; of
            checkpoints and events, only the sizes were compared. None: the run has no inventory, so it is not known.
    """

    directory: Path | None
    name: str
    number: int | None
    status: Status
    reason: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    metric: str = ""
    direction: Direction | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    same_as: int | None = None
    changes: str | None = None

    @property
    def seed(self) -> int | None:
        """The seed of the run."""
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def validation(self) -> float | None:
        """The validation value of `metric`."""
        return self.metrics.get(f"validation {self.metric}")

    @cached_property
    def overridden(self) -> Mapping[str, str]:
        """Value of each override by key, without + and ~."""
        pairs = (each.lstrip("+~").partition("=") for each in self.overrides)
        return {key: value for key, _, value in pairs}

    @property
    def record(self) -> str | None:
        """Whether the files of the run are those that it wrote: `intact`, or which are not; None: not known."""
        return "intact" if self.changes == "" else self.changes

    def value(self, key: str) -> Any:
        """The value of a setting (`train.steps`) or choice (`optimizer`); None if the run has no such thing."""
        if key in self.settings:
            return self.settings[key]
        if key in self.overridden:
            return _parsed(self.overridden[key])
        group, _, package = key.partition("@")
        return self.settings.get(f"{package or group.replace('/', '.')}.kind")


def _parsed(text: str) -> Any:
    """The value of an override: a number, a list, true, false, null, or its text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
