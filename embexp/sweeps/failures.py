"""Why a job failed: what it noted itself in `failure.json`, or else how its process ended."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from embexp.errors import ConfigError, EmbexpError
from embexp.system import files

NAME = "failure.json"
INTERRUPTED = 130
"""Exit status of a job that was interrupted before it could save anything."""
INTERRUPTIONS = (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)


def note(directory: Path, error: BaseException) -> None:
    """Writes why a job fails, so that its sweep can say so in one sentence."""
    content = {"error": type(error).__name__, "reason": sentence(error), "crash": _out_of_memory(error)}
    files.write_text(directory / NAME, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def sentence(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, ConfigError):
        return "; ".join(f"{fault.path or 'config'} = {fault.value}: {fault.rule}" for fault in error.faults)
    text = " ".join(str(error).split())
    return text if isinstance(error, EmbexpError) else f"{type(error).__name__}: {text}".removesuffix(": ")


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


def _out_of_memory(error: BaseException) -> bool:
    """Whether memory was lacking; TensorFlow's error is known by its name, as nothing here imports TensorFlow."""
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"
