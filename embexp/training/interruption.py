"""Ctrl-C ends a run tidily; a second one ends it at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interruption:
    """Whether the user, or the system, has asked the run to end. Calling it tells."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        """Whether the run should end."""
        return self._asked

    def ask(self) -> None:
        """Asks the run to end."""
        self._asked = True


@contextmanager
def tidy_interruption() -> Iterator[Interruption]:
    """Within the block, SIGINT and SIGTERM ask for a tidy end; a second signal does what it did before.

    Outside the main thread, where signals can't be caught, nothing is changed.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        interruption.ask()
        print("\nEnding the run with what it has; once more ends it at once.", file=sys.stderr, flush=True)

    for caught in (signal.SIGINT, signal.SIGTERM):
        before[caught] = signal.signal(caught, handle)
    try:
        yield interruption
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
