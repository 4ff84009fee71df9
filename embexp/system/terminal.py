"""Tables and progress on the terminal: progress outside of runs, of what takes long or may do so."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from embexp.system import printable
from embexp.system.parallel import Progress

_WIDE = 200
"""Columns where the output is no terminal: files and pipes have room, and a cell in two lines can't be read back."""
LONG = 10.0
"""Seconds after which progress is shown, and between two lines of it where the output is no terminal."""


class SafeConsole(Console):
    """A console that prints no character of a text that the terminal would obey, such as an escape in a token.

    Nor is a text taken for markup, such as `[red]` in a name.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of what is printed, without control characters in their texts; as wide as with them."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable.visible(text), style, control)


def console() -> Console:
    """The standard output."""
    return SafeConsole() if sys.stdout.isatty() else SafeConsole(width=_WIDE)


def say(to: Console, sentence: str = "", *, style: str | None = None) -> None:
    """Prints a sentence as it is, in one line however wide the terminal is."""
    to.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def byte_size(count: float) -> str:
    """Bytes for people; 1 kB is 1,000."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(count) >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds for people."""
    for factor, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs" if seconds > 0 else "0 s"


def table(to: Console, left: Sequence[str], *, right: Sequence[str] = (), after: Sequence[str] = ()) -> Table:
    """An empty table, without frames where `to` is no terminal.

    Args:
        left: names of columns whose text starts at the left.
        right: names of columns of numbers, after them.
        after: names of further columns of text.
    """
    frames = box.SIMPLE_HEAD if to.is_terminal else None
    made = Table(box=frames, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in left:
        made.add_column(name, overflow="fold")
    for name in right:
        made.add_column(name, justify="right", no_wrap=True)
    for name in after:
        made.add_column(name, overflow="fold")
    return made


@contextmanager
def naming(stage: str, console: Console) -> Iterator[None]:
    """Within the block, a terminal says what is being done."""
    if not console.is_terminal:
        yield
        return
    with console.status(Text(stage)):
        yield


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
