"""Anonymous memory of this process: allocated, without the pages of mapped files."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from types import TracebackType

_STATUS = Path("/proc/self/status")
_HEAP = 64 << 20
"""Bytes of a heap of glibc's, of which a thread has several."""
_MALLOPT = {-3: 32 << 20, -1: 128 << 20, -2: _HEAP}
"""By number in malloc.h: M_MMAP_THRESHOLD, from which size on memory is mapped on its own; M_TRIM_THRESHOLD, free bytes
that the process' first heap keeps at its end; M_TOP_PAD, those that threads' heaps keep, without which one that is free
as a whole goes. Each one that is set also ends glibc's own adaptation of the others."""
_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
"""Environment variables by which a user decides instead."""


def anonymous_bytes() -> int | None:
    """Resident anonymous memory of this process in bytes; None where the system doesn't report it (it has no /proc)."""
    try:
        text = _STATUS.read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def keep_freed() -> bool:
    """Has this process keep some freed memory for its next allocations; whether it does.

    A training step frees what the next one allocates again. By itself glibc gives it back to the system in between,
    which then clears it page by page: with many tables, a fifth of a step's processor time. It is a hint: other
    systems and C libraries go on as before, and so does a process whose user has set glibc's own variables.
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _SETTINGS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(number, value) == 1 for number, value in _MALLOPT.items())


class PeakMemory:
    """Watches the anonymous memory between start and stop, from a thread that looks every few milliseconds.

    Attributes:
        added: the largest value seen, minus the one at the start, in bytes; None where the system doesn't report it.
    """

    def __init__(self, interval: float = 0.005) -> None:
        self._interval = interval
        self._start = anonymous_bytes()
        self._peak = self._start or 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="embexp-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        if self._start is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        while not self._done.wait(self._interval):
            self._peak = max(self._peak, anonymous_bytes() or 0)

    def stop(self) -> int | None:
        """Ends the watch (again: does nothing) and returns `added`."""
        if self._start is not None and not self._done.is_set():
            self._peak = max(self._peak, anonymous_bytes() or 0)
            self._done.set()
            self._thread.join()
        return self.added

    @property
    def added(self) -> int | None:
        """Bytes that the process held at its peak beyond those at the start."""
        return None if self._start is None else self._peak - self._start
