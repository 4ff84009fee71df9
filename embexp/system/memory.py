"""Anonymous memory of this process: allocated, without the pages of mapped files."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

_STATUS = Path("/proc/self/status")


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
