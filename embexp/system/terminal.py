"""Tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from embexp.system import printable

_WIDE = 200
"""Columns where the output is no terminal: files and pipes have room, and a cell in two lines can't be read back."""


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
        to: where it will be printed.
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
