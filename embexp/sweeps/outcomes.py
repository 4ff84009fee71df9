"""How each job of a sweep ended, and its metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any


class Status(StrEnum):
    """How a job ended."""

    COMPLETED = "completed"
    STOPPED_EARLY = "stopped_early"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"

    @property
    def has_results(self) -> bool:
        """Whether the training ended normally."""
        return self in (Status.COMPLETED, Status.STOPPED_EARLY)


@dataclass(frozen=True)
class Outcome:
    """How one job ended, and its metrics.

    Attributes:
        number: of the job, from 0.
        overrides: of the job, key and value as text.
        status: how it ended.
        reason: why it failed or was skipped, or "".
        directory: of the run; None if the job was not started.
        seconds: from its start to its end; None if the job was not started.
        metrics: by split and name, such as "test rmse".
        compared: value in summary.json of each key of `output.compare`; None where it has no such key.
    """

    number: int
    overrides: Mapping[str, str]
    status: Status
    reason: str = ""
    directory: Path | None = None
    seconds: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    compared: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The outcome as a JSON value."""
        return {
            "number": self.number,
            "overrides": dict(self.overrides),
            "status": self.status.value,
            "reason": self.reason,
            "directory": None if self.directory is None else str(self.directory),
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "metrics": dict(self.metrics),
            "compared": dict(self.compared),
        }


def read(
    directory: Path,
    *,
    number: int,
    overrides: Mapping[str, str],
    exit_status: int,
    seconds: float,
    compare: Sequence[str] = (),
) -> Outcome:
    """Reads the outcome of a job from its directory.

    Args:
        directory: of the job.
        number: of the job.
        overrides: of the job.
        exit_status: of its process; negative: minus the signal that ended it.
        seconds: duration.
        compare: dotted keys of its summary to return.
    """

    def outcome(status: Status, reason: str = "", metrics: Mapping[str, float] | None = None) -> Outcome:
        return Outcome(number, overrides, status, reason, directory, seconds, metrics or {})

    summary = _summary(directory)
    status = next((each for each in Status if each.value == summary.get("status")), None)
    if status is None or status is Status.FAILED or (exit_status != 0 and status is not Status.INTERRUPTED):
        return outcome(Status.FAILED, _why(directory, exit_status))
    compared = {key: _at(summary, key) for key in compare}
    return replace(outcome(status, metrics=_numbers(summary.get("metrics"))), compared=compared)


def _summary(directory: Path) -> Mapping[str, Any]:
    try:
        content = json.loads((directory / "summary.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _at(summary: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or None."""
    value: Any = summary
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _numbers(metrics: Any) -> dict[str, float]:
    """Metrics of the test and validation splits, in this order."""
    found = {}
    for split in ("test", "validation"):
        values = metrics.get(split) if isinstance(metrics, dict) else None
        for name, value in (values or {}).items():
            if isinstance(value, int | float):
                found[f"{split} {name}"] = float(value)
    return found


def _why(directory: Path, exit_status: int) -> str:
    """The line of a job's log that explains its failure."""
    if exit_status < 0:
        return f"ended by signal {-exit_status}" + (" (out of memory?)" if exit_status == -9 else "")
    try:
        lines = (directory / "run.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    printed = [line.strip() for line in lines if line.strip()]
    marked = [line.removeprefix("error: ") for line in printed if line.startswith("error: ")]
    return (marked or printed or [f"exit status {exit_status}, no output"])[-1]


def varying(overrides: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys whose values are not the same in all jobs."""
    keys = list(dict.fromkeys(key for each in overrides for key in each))
    return [key for key in keys if len({each.get(key) for each in overrides}) > 1]
