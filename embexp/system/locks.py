"""A lock between processes for work that one of them does and the others then use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_STEP = 0.1


@contextlib.contextmanager
def alone(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds a lock within the block; waits for the process that has it, which releases it however it ends.

    On a file system without locks the block runs at once: what it does must be right then too, if done twice.

    Args:
        path: the file of the lock; it stays.
        waiting: called once if another process has the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        told = False
        while not _taken(handle):
            if not told:
                waiting()
                told = True
            time.sleep(_STEP)
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
