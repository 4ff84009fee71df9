"""Runs a job in its own process, and ends it on Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn


class InterruptedSweepError(Exception):
    """The user interrupted the sweep; its running job has ended.

    Attributes:
        exit_status: of that job's process.
    """

    def __init__(self, exit_status: int) -> None:
        super().__init__("interrupted")
        self.exit_status = exit_status


def run(command: Sequence[str], *, standard_input: str, log: Path) -> int:
    """Runs a command to its end and returns its exit status; below 0: minus the signal that ended it.

    The process has its own session, so that Ctrl-C reaches only this process, which passes it on: the first Ctrl-C lets
    the job finish cleanly, a second one kills it.

    Args:
        command: program and arguments.
        standard_input: what it reads, as UTF-8.
        log: file to which its output and errors are appended.

    Raises:
        InterruptedSweepError: Ctrl-C or SIGTERM came; the process has ended.
    """
    with log.open("ab") as file, _terminated_as_interrupted():
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:  # type: ignore[union-attr]
                process.stdin.write(standard_input.encode("utf-8"))  # type: ignore[union-attr]
            return _ended(process)
        except KeyboardInterrupt:
            print("\nending the running job; press Ctrl-C again to kill it", file=sys.stderr, flush=True)
            raise InterruptedSweepError(_end(process)) from None


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Waits for the process to end, a minute at a time.

    A signal that another thread receives, or that arrives just before the wait, does not wake a thread that waits in
    the kernel: Python would handle it only after the process has ended.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=60)


def _end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    try:
        return _ended(process)
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Within the block, SIGTERM does what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
