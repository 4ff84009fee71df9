"""Tables and progress on the terminal: progress outside of runs, of what takes long or may do so."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from embexp.system import printable
from embexp.system.parallel import Progress

_WIDE = 200
"""Columns where the output is no terminal: files and pipes have room, and a cell in two lines can't be read back."""
_UNBOUNDED = 1_000_000
_NARROW = 16
"""Columns of the terminal that a text gets at least, if it needs them: words one below the other are hard to read."""
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


def console(*, stderr: bool = False) -> Console:
    """The standard output, or the standard error."""
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return SafeConsole(stderr=stderr, width=None if is_terminal else _WIDE)


def as_text(show: Callable[[Console], object], width: int = 120) -> str:
    """What `show` prints on a console, as plain text without blank lines at its end."""
    text = io.StringIO()
    show(SafeConsole(file=text, width=width, force_terminal=False, force_jupyter=False, color_system=None))
    return text.getvalue().rstrip("\n")


def say(to: Console, sentence: str = "", *, style: str | None = None) -> None:
    """Prints a sentence as it is, in one line however wide the terminal is."""
    to.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def confirmed(question: str) -> bool:
    """Whether the user says yes to a question; not, where nobody can: without a terminal for both."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    sys.stdout.write(f"{printable.visible(question)} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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


class FittedTable(Table):
    """A table that breaks no word, where it can be avoided, and on a terminal has no column without content.

    Texts wrap at blanks, the widest columns first. Numbers, which are the columns at the right, don't wrap. Where the
    columns don't fit next to each other, the others are in another table below, which repeats the first column. A word
    is only broken if it does not fit next to a column that it must stand next to: after `/`, `_`, `.`, `,`, `=`, `:` or
    `-`, if it has any. What fits is as Rich makes it in files and pipes.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the tables that the columns make."""
        natural = super().__rich_measure__(console, options.update(max_width=_UNBOUNDED)).maximum
        if not self.rows or (not console.is_terminal and natural <= options.max_width):
            yield from super().__rich_console__(console, options)
            return

        def text(cell: RenderableType) -> Text:
            assert isinstance(cell, str | Text)
            return cell if isinstance(cell, Text) else console.render_str(cell, highlight=bool(options.highlight))

        columns = [
            _Column(text(column.header), [text(cell) for cell in column.cells], column.justify == "right")
            for column in self.columns
        ]
        first, *others = [column for column in columns if any(map(str, column.cells))] or columns[:1]
        for number, block in enumerate(self._blocks(first, others, options.max_width)):
            if number and self.box is None:
                yield Text()
            yield from self._part(block, options.max_width, again=number > 0).__rich_console__(console, options)

    def _blocks(self, first: _Column, others: Sequence[_Column], width: int) -> Iterator[list[_Column]]:
        room = self._room(2, width)
        widest = max((column.words for column in others if column.words <= room // 2), default=0)
        least = first.words if first.words + widest <= room else min(first.words, room // 2)
        block = [first]
        for column in others:
            taken = least + sum(each.words for each in block[1:])
            if len(block) > 1 and taken + column.words > self._room(len(block) + 1, width):
                yield block
                block = [first]
            block.append(column)
        yield block

    def _room(self, columns: int, width: int) -> int:
        """What frames and the gaps between columns leave of a width."""
        frame = 0 if self.box is None else columns + 1
        return width - frame - (columns - 1) * (self.padding[1] + self.padding[3])

    def _part(self, block: Sequence[_Column], width: int, *, again: bool) -> Table:
        room = self._room(len(block), width)
        least = [column.words for column in block]
        if sum(least) > room:
            least[0] = max(block[0].pieces, min(least[0], room // 2))
        if sum(least) > room:
            least = [column.pieces for column in block]
        if sum(least) > room:
            least = [column.widest if column.right else 1 for column in block]
        widths = [min(column.widest, room) for column in block]
        while sum(widths) > room:
            spare = [place for place, each in enumerate(widths) if each > least[place]]
            if not spare:
                break
            widths[max(spare, key=widths.__getitem__)] -= 1
        made = Table(box=self.box, pad_edge=self.pad_edge, padding=self.padding, header_style=self.header_style)
        made.title = None if again else self.title
        made.title_justify, made.title_style = self.title_justify, self.title_style
        for column, size in zip(block, widths, strict=True):
            made.add_column(
                _wrapped(column.heading, size),
                justify="right" if column.right else "left",
                overflow="fold",
                width=size,
            )
        for place, row in enumerate(self.rows):
            cells = [column.cells[place] for column in block]
            if again and place == len(self.rows) - 1 and not any(map(str, cells[1:])):
                continue  # a sum, of columns above
            made.add_row(*map(_wrapped, cells, widths), style=row.style)
        return made


class _Column:
    """A column's texts and what widths they take.

    Attributes:
        widest: without a line break.
        words: if texts break at blanks; a number does not.
        pieces: if words break where `_pieces` says, too.
    """

    def __init__(self, heading: Text, cells: Sequence[Text], right: bool) -> None:
        self.heading, self.cells, self.right = heading, cells, right
        lines = [line for cell in (heading, *cells) for line in str(cell).splitlines()]
        self.widest = max(map(cell_len, lines), default=1)
        headings = [word for line in str(heading).splitlines() for word in _words(line)]
        texts = [line for cell in cells for line in str(cell).splitlines()]
        words = texts if right else [word for line in texts for word in _words(line)]
        longest = max((cell_len(word) for word in (*headings, *words)), default=1)
        wide = max(map(cell_len, texts), default=1)
        self.words = longest if right else max(longest, min(wide, _NARROW))
        pieces = words if right else [piece for word in words for piece in _pieces(word)]
        self.pieces = max((cell_len(piece) for piece in (*headings, *pieces)), default=1)


def _words(line: str) -> list[str]:
    return [word.rstrip() for word in re.findall(r"\s*\S+\s*", line)]


def _pieces(word: str) -> list[str]:
    """Where a word breaks: after some characters, but not within a number."""
    places = r"(?<=[/_=:,.-])(?![/_=:,.\d-])|(?<=[/_=])(?=\d)"
    return [piece for piece in re.split(places, word.rstrip()) if piece]


def _wrapped(text: Text, width: int) -> Text:
    """A text with line breaks between the pieces of the words that are wider than a column."""
    places, start = [], 0
    for word in re.findall(r"\s*\S+\s*", str(text)):
        if cell_len(word.rstrip()) > width:
            taken, place = 0, start
            for piece in _pieces(word):
                if taken and taken + cell_len(piece) > width:
                    places.append(place)
                    taken = 0
                taken, place = taken + cell_len(piece), place + len(piece)
        start += len(word)
    return Text("\n").join(text.divide(places)) if places else text


def frames(to: Console | ConsoleOptions) -> box.Box | None:
    """The lines of tables: none unless the output is a terminal."""
    ascii_only = to.ascii_only if isinstance(to, ConsoleOptions) else to.options.ascii_only
    return box.SIMPLE_HEAD if to.is_terminal and not ascii_only else None


def table(
    to: Console | ConsoleOptions, left: Sequence[str], *, right: Sequence[str] = (), after: Sequence[str] = ()
) -> Table:
    """An empty table, without frames where `to` is no terminal.

    Args:
        left: names of columns whose text starts at the left.
        right: names of columns of numbers, after them.
        after: names of further columns of text.
    """
    made = FittedTable(box=frames(to), pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
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
