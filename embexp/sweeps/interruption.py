"""Ctrl-C and SIGTERM of a sweep: the first ends its jobs cleanly, the second kills them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Signals:
    """How often the user, or the system, has asked for the end.

    Attributes:
        count: of signals so far.
    """

    def __init__(self) -> None:
        self.count = 0


@contextlib.contextmanager
def counted() -> Iterator[Signals]:
    """Within the block, SIGINT and SIGTERM are counted. Outside the main thread, nothing is changed."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def count(*_: object) -> None:
        signals.count += 1

    before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
