"""Ctrl-C ends training cleanly; a second one ends it at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interruption:
    """Whether the user, or the system, has requested the end of training: `interruption()`."""

    def __init__(self) -> None:
        self._requested = False

    def __call__(self) -> bool:
        """Whether training should end."""
        return self._requested

    def request(self) -> None:
        """Requests the end of training."""
        self._requested = True


@contextmanager
def graceful_interruption() -> Iterator[Interruption]:
    """Within the block, SIGINT and SIGTERM request a clean end; a second signal has its previous effect.

    Outside the main thread, where signals can't be caught, nothing is changed.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    previous: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for caught, handler in previous.items():
            signal.signal(caught, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        interruption.request()
        print("\nStopping and keeping what is trained; interrupt again to quit at once.", file=sys.stderr, flush=True)

    for caught in (signal.SIGINT, signal.SIGTERM):
        previous[caught] = signal.signal(caught, handle)
    try:
        yield interruption
    finally:
        restore()
