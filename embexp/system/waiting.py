"""Progress outside of runs: of what is usually quick, shown only if it takes long, and of what always takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from embexp.system.progress import Progress
from embexp.system.terminal import SafeConsole

LONG = 10.0
"""Seconds after which progress is shown, and between two lines of it where the output is no terminal."""


@contextmanager
def shown_if_long(
    to: Console | None = None, *, after: float = LONG, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """Within the block, shows the stage that it is called with, from some time on.

    Args:
        to: where; None: standard error.
        after: seconds until then.
        clock: seconds.
    """
    console = to or SafeConsole(stderr=True)
    status: Status | None = None
    next_line = clock() + after

    def progress(stage: str, done: float | None) -> None:
        nonlocal status, next_line
        if clock() < next_line:
            return
        text = stage if done is None else f"{stage}: {done:.0%}"
        if not console.is_terminal:
            next_line = clock() + LONG
            console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        if status is None:
            status = console.status("")
            status.start()
        status.update(Text(text))

    try:
        yield progress
    finally:
        if status is not None:
            status.stop()
