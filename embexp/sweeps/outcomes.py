"""How each job of a sweep ended, why it failed, and its metrics."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from embexp.errors import ConfigError, EmbexpError
from embexp.records import inventory
from embexp.records.folder import json_object
from embexp.reports.record import Status
from embexp.system import files, interruption, machine_faults

_FAILURE = "failure.json"
INTERRUPTED = 130
"""Exit status of a job that was interrupted before it could save anything."""
_INTERRUPTIONS = (*interruption.STATUSES, *(-number for number in interruption.NUMBERS))


@dataclass(frozen=True)
class Outcome:
    """How one job ended, and its metrics.

    Attributes:
        number: of the job, from 0.
        overrides: of the job, key and value as text.
        reason: why it failed or was skipped, or "".
        directory: of the run; None if the job was not started.
        seconds: from its start to its end; None if the job was not started.
        metrics: by split and name, such as "test rmse".
        compared: value in summary.json of each key of `output.compare`; None where it has no such key.
        same_as: number of the earlier job of which it is a duplicate, or None.
    """

    number: int
    overrides: Mapping[str, str]
    status: Status
    reason: str = ""
    directory: Path | None = None
    seconds: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    compared: Mapping[str, Any] = field(default_factory=dict)
    same_as: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The outcome as a JSON value."""
        return asdict(self) | {
            "status": self.status.value,
            "directory": None if self.directory is None else str(self.directory),
            "seconds": None if self.seconds is None else round(self.seconds, 3),
        }


def ending(directory: Path, exit_status: int | None) -> tuple[Status, str]:
    """How the process of a job left its directory: the status, and the reason of a failure.

    Args:
        exit_status: of its process; negative: minus the signal that ended it; None: it is not known, and the last file
            of a run tells whether it has ended.
    """
    if exit_status is None:
        if inventory.digest_of(directory) is None:
            return Status.INTERRUPTED, ""
        exit_status = 0
    known = json_object(directory / "summary.json").get("status")
    status = next((each for each in Status if each.value == known), None)
    if exit_status in _INTERRUPTIONS:
        return Status.INTERRUPTED, ""
    if status is None or status is Status.FAILED or exit_status != 0:
        return Status.FAILED, _why(directory, exit_status)
    return status, ""


def numbers(metrics: Any) -> dict[str, float]:
    """Metrics of the test and validation splits, in this order."""
    found = {}
    for split in ("test", "validation"):
        values = metrics.get(split) if isinstance(metrics, dict) else None
        for name, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, int | float):
                found[f"{split} {name}"] = float(value)
    return found


def varying(overrides: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys whose values are not the same in all jobs."""
    keys = list(dict.fromkeys(key for each in overrides for key in each))
    return [key for key in keys if len({each.get(key) for each in overrides}) > 1]


def note_failure(directory: Path, error: BaseException) -> None:
    """Writes why a job fails, so that its sweep can say so in one sentence."""
    content = {
        "error": type(error).__name__,
        "reason": failure_sentence(error),
        "crash": machine_faults.is_memory(error),
    }
    with contextlib.suppress(OSError):  # what can't be noted is the last line of the log
        files.write_text(directory / _FAILURE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def failure_sentence(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, ConfigError):
        return "; ".join(f"{fault.path or 'config'} = {fault.value}: {fault.rule}" for fault in error.faults)
    text = " ".join(str(error).split())
    if isinstance(error, EmbexpError):
        return text
    return machine_faults.sentence(error) or f"{type(error).__name__}: {text}".removesuffix(": ")


def is_crash(directory: Path, exit_status: int) -> bool:
    """Whether a job's process crashed, rather than finding a fault in its config, its data or the user's code.

    Args:
        exit_status: of its process; negative: minus the signal that ended it.
    """
    noted = json_object(directory / _FAILURE)
    return exit_status != 0 if not noted else bool(noted.get("crash"))


def _why(directory: Path, exit_status: int) -> str:
    """The reason of a failure.

    Args:
        exit_status: of its process; negative: minus the signal that ended it.
    """
    noted = json_object(directory / _FAILURE)
    if noted:
        return str(noted.get("reason"))
    if exit_status < 0:
        hint = " (out of memory?)" if exit_status == -signal.SIGKILL else ""
        return f"ended by signal {-exit_status}{hint}"
    last = _last_line(directory)
    return f"exit status {exit_status}; the last line of its log: {last}" if last else f"exit status {exit_status}"


def _last_line(directory: Path) -> str:
    """The last line of run.log."""
    try:
        lines = (directory / "run.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
