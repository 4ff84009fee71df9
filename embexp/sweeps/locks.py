"""Locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from embexp.errors import RunError

_STEP = 0.05


@contextlib.contextmanager
def held(path: Path, what: str, *, patience: float) -> Iterator[None]:
    """Holds a lock within the block.

    The system releases it when the process is gone, so what a killed process leaves behind never has to be judged by
    the number or the age of that process.

    Args:
        path: the file of the lock; it stays.
        what: what the lock is for, for the error message: "the sweep in DIR".
        patience: seconds to wait for it: a process that was killed may need a moment to end.

    Raises:
        RunError: another process holds it, or the file system has no locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(handle, path, what, patience)
        os.truncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _take(handle: int, path: Path, what: str, patience: float) -> None:
    give_up = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < give_up:
                time.sleep(_STEP)
                continue
            owner = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            raise RunError(f"{what} is at work already: {owner} holds {path}\n    wait for it, or end it") from None
        except OSError as error:
            raise RunError(f"{path} can't be locked: {error.strerror}; use a file system that has locks") from None
        return
