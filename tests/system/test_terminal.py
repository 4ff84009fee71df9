"""Tables on the terminal: whole words, whole numbers, and no column without content."""

from __future__ import annotations

import io
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from embexp.cli import commands
from embexp.system import terminal
from embexp.system.terminal import SafeConsole

WIDTHS = (80, 100, 120)
FRAME = "─"


class Recorder(SafeConsole):
    """A terminal that keeps each table it prints, with its lines."""

    def __init__(self, width: int, **settings: Any) -> None:
        self.output = io.StringIO()
        super().__init__(file=self.output, width=width, color_system=None, **{"force_terminal": True} | settings)
        self.tables: list[tuple[Table, list[str]]] = []

    def print(self, *objects: Any, **settings: Any) -> None:
        start = self.output.tell()
        super().print(*objects, **settings)
        if objects and isinstance(objects[0], Table):
            self.tables.append((objects[0], self.output.getvalue()[start:].splitlines()))


def texts(table: Table) -> list[list[str]]:
    """The cells of each column."""
    return [[str(cell) for cell in column.cells] for column in table.columns]


def check(table: Table, lines: list[str], width: int, longest: int) -> None:
    """Words of at most `longest` characters are whole, and nothing is lost."""
    assert all(len(line) <= width for line in lines)
    words = Counter(word for line in lines for word in line.split())
    cells = [cell for column in texts(table) for cell in column]
    expected = Counter(word for cell in cells for word in cell.split() if len(word) <= longest)
    assert not expected - words
    shown, given = (Counter("".join(each).replace(" ", "")) for each in (lines, cells))
    assert not given - shown
    for column, content in zip(table.columns, texts(table), strict=True):
        if column.justify == "right":
            missing = Counter(content) - Counter({cell: sum(line.count(cell) for line in lines) for cell in content})
            assert not missing
        for word in str(column.header).split():
            assert (word in words) == any(content)


PLANS = {
    "names": [
        "+tables.a_rather_long_name_of_a_table_of_customers={vocabulary_size: 1234567, dim: 16}",
        "features.history.table=a_rather_long_name_of_a_table_of_customers",
        "init@tables.user.init=constant",
        "optimizer@tables.user.optimizer=adagrad_momentum",
        "freeze@tables.item.freeze=table",
    ],
    "plain": [],
    "scan": ["--scan", "data.examples=300"],
    "jobs": ["-m", "optimizer=adam,sgd", "model=mlp,dlrm", "name=a/rather_long.name/of_an_experiment_with_a_tail,b"],
}


def recorded(monkeypatch: pytest.MonkeyPatch, width: int, words: list[str], **settings: Any) -> Recorder:
    console = Recorder(width, **settings)
    monkeypatch.setattr(terminal, "console", lambda: console)
    assert commands.main(words) == 0
    return console


@pytest.mark.parametrize("case", PLANS)
@pytest.mark.parametrize("width", WIDTHS)
def test_plans(case: str, width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    console = recorded(monkeypatch, width, ["plan", *PLANS[case]])
    assert len(console.tables) >= 2
    for table, lines in console.tables:
        check(table, lines, width, longest=width - 20)


def planted(width: int, *, rows: int = 3) -> Recorder:
    """A table with more of everything than fits."""
    console = Recorder(width)
    right = [f"number of things {place}" for place in range(6)]
    shown = terminal.table(console, ["key", "nothing", "kind"], right=right, after=["path", "note", "empty"])
    for row in range(rows):
        numbers = [f"{(row + 1) * 1_234_567 * 10**place:,}" for place in range(6)]
        path = f"/data/of_some/people/{row}/in.a.folder/" + "deep_and_deeper/" * 8 + "rows_1,234.5e-05.npy"
        shown.add_row(f"  layer_{row}/kernel", "", "dense", *numbers, path, f"a note of some length {row} " * 5, "")
    console.print(shown)
    return console


@pytest.mark.parametrize("width", WIDTHS)
def test_columns_that_do_not_fit_are_in_a_table_below(width: int) -> None:
    [(table, lines)] = planted(width).tables
    check(table, lines, width, longest=width // 2)
    heads = [line.split()[0] for line, below in pairwise(lines) if FRAME in below]
    assert len(heads) > 1


@pytest.mark.parametrize("width", WIDTHS)
def test_a_word_wider_than_the_terminal_breaks_after_its_parts(width: int) -> None:
    [(table, lines)] = planted(width, rows=1).tables
    path = texts(table)[-3][0]
    pieces = [word for line in lines for word in line.split() if word in path and set(word) & set("/_.")]
    assert "".join(pieces) == path
    assert len(pieces) > 1
    assert all(piece[-1] in "/_." for piece in pieces[:-1])


def test_a_long_first_word_breaks_after_its_parts() -> None:
    console = Recorder(80)
    shown = terminal.table(console, ["key"], right=["bytes"])
    key = "model/" + "layer_of_some_depth/" * 5 + "kernel.12,345"
    shown.add_row(key, "1,234,567 MB")
    console.print(shown)
    lines = [line.replace("1,234,567 MB", "").strip() for line in console.tables[0][1]]
    lines = [line for line in lines[lines.index(FRAME * 78) + 1 :] if line]
    assert "".join(lines) == key
    assert all(line[-1:] in "/_" for line in lines[:-1])


@pytest.mark.parametrize("cells", [[], ["", ""]])
def test_a_table_without_content_prints(cells: list[str]) -> None:
    console = Recorder(80)
    shown = terminal.table(console, ["key", "kind"])
    if cells:
        shown.add_row(*cells)
    console.print(shown)
    assert "key" in console.output.getvalue()


def test_files_have_a_line_for_each_row_and_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    console = recorded(monkeypatch, 200, ["plan"], force_terminal=False)
    for table, lines in console.tables:
        assert len(lines) == 1 + len(table.rows)
        assert lines[0].split() == " ".join(str(column.header) for column in table.columns).split()


class Typed(io.StringIO):
    """A terminal at which something is typed."""

    def __init__(self, text: str = "", *, is_terminal: bool = True) -> None:
        super().__init__(text)
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize(
    ("typed", "is_yes"), [("y\n", True), (" Yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_question_needs_a_yes_and_a_terminal(typed: str, is_yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Typed(typed))
    monkeypatch.setattr("sys.stdout", shown := Typed())
    assert terminal.confirmed("Go\x1b on?") is is_yes
    assert "\x1b" not in shown.getvalue()
    assert shown.getvalue().endswith(" on? [y/N] ")
    monkeypatch.setattr("sys.stdin", Typed("y\n", is_terminal=False))
    assert terminal.confirmed("Go on?") is False
