"""Tables of a report as columns of text: how cells and headings read, and how they are printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from rich.console import Console
from rich.text import Text

from embexp.reports.groups import Estimate, of_setting
from embexp.reports.record import text_of
from embexp.system import printable, terminal

MARK = "*"
_LARGE, _SMALL, _TINY = 1_000, 1e-3, 5e-5


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        cells: from the first row to the last.
        right: whether they end at the right, as numbers do.
        best: rows of the best values: one, or one for each kind of data.
    """

    heading: str
    cells: tuple[str, ...]
    right: bool = False
    best: Collection[int] = ()


def print_table(table: Sequence[Column], console: Console) -> None:
    """Prints a table, the rows of the best values marked in the first column."""
    best = next((column.best for column in table if column.best), ())
    first, *others = table
    if best:
        other = "" if first.right else " " * (len(MARK) + 1)
        cells = (f"{MARK} {cell}" if row in best else f"{other}{cell}" for row, cell in enumerate(first.cells))
        first = replace(first, cells=tuple(cells))
    made, columns = terminal.table(console, []), (first, *others)
    for column in columns:
        made.add_column(Text(column.heading), justify="right" if column.right else "left", overflow="fold")
    for row in range(len(first.cells)):
        made.add_row(*(Text(column.cells[row], "bold green" if row in column.best else "") for column in columns))
    console.print(made)
    if not console.is_terminal:
        console.print()


def as_html(table: Sequence[Column]) -> str:
    """A table in HTML, its text escaped."""
    sides = [f' style="text-align: {"right" if column.right else "left"}"' for column in table]
    heads = (f"<th{side}>{escape(column.heading)}</th>" for column, side in zip(table, sides, strict=True))
    rows = []
    for row in range(len(table[0].cells)):
        cells = ""
        for column, side in zip(table, sides, strict=True):
            text = escape(column.cells[row])
            cells += f"<td{side}>{f'<b>{text}</b>' if row in column.best else text}</td>"
        rows.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def numeric(text: str) -> bool:
    """Whether a cell is empty, or a number."""
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


def headings(keys: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """The heading of each key's column: the fewest last parts of the key that are unique among keys and `taken`.

    `initialization.peak_anonymous_bytes` gets `peak anonymous`; its cells show the unit.
    """
    return _unique_ends(keys, taken, _words)


def short_keys(keys: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """Settings by the fewest last parts that are unique among keys and `taken`, spelled as in the config."""
    return _unique_ends(keys, taken, ".".join)


def described(columns: Sequence[str], values: Sequence[Any]) -> str:
    """A setting as a line.

    Args:
        values: of those of the columns that tell settings apart.
    """
    keys = list(filter(of_setting, columns))
    names = short_keys([key.removesuffix(".kind") for key in keys]).values()
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name}={text_of(value)}" for name, value in pairs if value is not None)


def _unique_ends(
    keys: Sequence[str], taken: Collection[str], spelled: Callable[[Sequence[str]], str]
) -> dict[str, str]:
    found = {}
    for key in keys:
        parts, others = key.split("."), [each.split(".") for each in keys if each != key]
        found[key] = key
        for length in range(1, len(parts) + 1):
            end = spelled(parts[-length:])
            if end not in taken and all(spelled(other[-length:]) != end for other in others):
                found[key] = end
                break
    return found


def _words(parts: Sequence[str]) -> str:
    return " ".join([*parts[:-1], parts[-1].removesuffix("_bytes")]).replace("_", " ")


def cell(key: str, value: Any) -> str:
    """A value of summary.json in the unit that its key names."""
    match value:
        case None:
            return ""
        case bool():
            return text_of(value)
        case int() | float() if key.endswith("bytes"):
            return terminal.byte_size(value)
        case int() | float() if key.endswith("seconds"):
            return terminal.duration(value)
        case int():
            return f"{value:,}"
        case float():
            return figure(value)
        case _:
            return text_of(value)


def setting(value: Any) -> str:
    """A setting, in one line."""
    return "" if value is None else one_line_of(text_of(value))


def settings(values: Sequence[Any]) -> tuple[str, ...]:
    """The settings of one column, each in one line: numbers with as few digits, four or more, as tell them apart."""
    exact = tuple(map(setting, values))
    for digits in range(4, 17):
        cells = tuple(_rounded(value, digits, text) for value, text in zip(values, exact, strict=True))
        if len(set(cells)) == len(set(exact)):
            return cells
    return exact


def _rounded(value: Any, digits: int, exact: str) -> str:
    short = isinstance(value, float) and math.isfinite(value)
    return min(f"{value:.{digits}g}", exact, key=len) if short else exact


def one_line_of(text: str) -> str:
    """A text in one line, without what a terminal would obey."""
    return printable.visible(" ".join(text.split()))


def figure(value: float | None) -> str:
    """A metric: four decimals, fewer of a large value, and three digits of a small one."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) >= _LARGE:
        return f"{value:,.1f}"
    return f"{value:.4f}" if abs(value) >= _SMALL else f"{value:.3g}"


def spread(estimate: Estimate | None, key: str = "") -> str:
    """A mean with its standard deviation, in the unit that the key names."""
    if estimate is None:
        return ""
    if estimate.std is None:
        return cell(key, estimate.mean)
    if key.endswith(("bytes", "seconds")) or not _SMALL <= abs(estimate.mean) < _LARGE or 0 < estimate.std < _TINY:
        return f"{cell(key, estimate.mean)} ± {cell(key, estimate.std)}"
    return f"{estimate.mean:.4f} ± {estimate.std:.4f}"


def interval(estimate: Estimate | None) -> str:
    """The ends of a confidence interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{figure(estimate.low)} – {figure(estimate.high)}"


def probability(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
