"""Processes that end with the process that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_EXPENDABLE = "500"


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
