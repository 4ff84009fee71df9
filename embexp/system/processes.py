"""Processes that end with their parent, and processes that are forked with TensorFlow imported."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import warnings
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_EXPENDABLE = "500"
VARIABLE = "EMBEXP_PARENT"
"""Variable of the environment with the process that a process is to end with."""


def variables() -> dict[str, str]:
    """Of the environment of a process that is to end with this one: it may be gone before the other asks for it."""
    return {VARIABLE: str(os.getpid())}


def parent() -> int:
    """The process that has started this one, perhaps gone by now."""
    named = os.environ.pop(VARIABLE, "")
    return int(named) if named.isdigit() else os.getppid()


def die_with_parent(parent: int) -> None:
    """Has the system kill this process as soon as its parent is gone, however that ends. Only Linux can do that.

    Args:
        parent: process id of the parent: if that is gone already, this process ends at once.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def be_expendable() -> None:
    """Has the system choose this process, rather than its parent, where memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_EXPENDABLE, encoding="ascii")


def fork() -> int:
    """`os.fork`, without the warning that Python 3.12 and later give where a process has other threads.

    For a process that has started none of its own. Imports start some: NumPy's OpenBLAS one for each further core, and
    Arrow's allocator, jemalloc, one. They run no Python, and their libraries handle a fork (`pthread_atfork`).

    Returns:
        0 in the child, in the parent the child's process id.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
        return os.fork()
