"""Why a job failed: what it noted itself in `failure.json`, or else how its process ended."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

from embexp.errors import ConfigError, EmbexpError
from embexp.system import files, interruption, machine_faults

NAME = "failure.json"
INTERRUPTED = 130
"""Exit status of a job that was interrupted before it could save anything."""
INTERRUPTIONS = (*interruption.STATUSES, *(-number for number in interruption.NUMBERS))


def note(directory: Path, error: BaseException) -> None:
    """Writes why a job fails, so that its sweep can say so in one sentence."""
    content = {"error": type(error).__name__, "reason": sentence(error), "crash": machine_faults.is_memory(error)}
    with contextlib.suppress(OSError):  # what can't be noted is the last line of the log
        files.write_text(directory / NAME, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def sentence(error: BaseException) -> str:
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
        directory: of the job.
        exit_status: of its process; negative: minus the signal that ended it.
    """
    noted = _noted(directory)
    return exit_status != 0 if noted is None else bool(noted.get("crash"))


def why(directory: Path, exit_status: int) -> str:
    """The reason of a failure.

    Args:
        directory: of the job.
        exit_status: of its process; negative: minus the signal that ended it.
    """
    noted = _noted(directory)
    if noted is not None:
        return str(noted.get("reason"))
    if exit_status < 0:
        hint = " (out of memory?)" if exit_status == -signal.SIGKILL else ""
        return f"ended by signal {-exit_status}{hint}"
    last = _last_line(directory)
    return f"exit status {exit_status}; the last line of its log: {last}" if last else f"exit status {exit_status}"


def _noted(directory: Path) -> dict[str, object] | None:
    try:
        content = json.loads((directory / NAME).read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _last_line(directory: Path) -> str:
    """The last line of run.log."""
    try:
        lines = (directory / "run.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
