"""What the end of a run says about each table, and about those that are too many to name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NAME, STORAGE, UNMOVED, FROZEN = "table", "storage", "never moved", "rows frozen"
_NAMED = 30
"""Tables with a row of their own; further ones share one."""
_USUAL = {FROZEN: "0", STORAGE: "variable"}
"""Columns that are left out first where the width is too small, if they have only these cells."""
_DISPENSABLE = ("MB", "dim")
"""Columns that are left out after them."""


@dataclass(frozen=True)
class Row:
    """A row of the closing table.

    Attributes:
        cells: by column.
        several: whether it sums up several tables.
    """

    cells: Mapping[str, str]
    several: bool = False


def of(summary: Mapping[str, Any]) -> list[Row]:
    """The tables of a run: all, or the first ones and a sum of the others.

    Args:
        summary: the content of summary.json; of the facts of a table any may be missing.
    """
    facts = [_facts(summary, name) for name in summary.get("tables") or {}]
    any_unmoved = any(each.get(UNMOVED) for each in facts)
    rows = [_row(each, any_unmoved=any_unmoved) for each in facts]
    if len(rows) <= _NAMED + 1:
        return rows
    rest = facts[_NAMED:]
    summed: dict[str, Any] = {NAME: f"{len(rest):,} more", STORAGE: "", "dim": None}
    for key in ("rows", "bytes", "rows touched", UNMOVED, FROZEN):
        summed[key] = sum(each.get(key) or 0 for each in rest)
    return [*rows[:_NAMED], Row(_row(summed, any_unmoved=any_unmoved).cells, several=True)]


def headings(rows: Sequence[Row], width: int, between: int) -> dict[str, str]:
    """The columns that fit, with their headings, which get a second line where it saves a column.

    Args:
        rows: one at least.
        width: in characters; if it is small, summary.json has what is left out.
        between: blanks between two columns.
    """

    def fits(shown: Mapping[str, str]) -> bool:
        widest = [max(map(len, (*shown[name].split("\n"), *(row.cells[name] for row in rows)))) for name in shown]
        return sum(widest) + between * (len(widest) - 1) <= width

    shown = {name: name for name in rows[0].cells}
    for name, usual in _USUAL.items():
        if not fits(shown) and all(row.cells[name] in ("", usual) for row in rows):
            del shown[name]
    if not fits(shown):
        shown = {name: name.replace(" ", "\n") for name in shown}
    for name in _DISPENSABLE:
        if not fits(shown):
            del shown[name]
    return shown


def _facts(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = summary["tables"][name]
    freeze = (summary.get("freeze") or {}).get(name) or {}
    initialized = ((summary.get("initialization") or {}).get("tables") or {}).get(name) or {}
    rows, dim = table.get("vocabulary_size"), table.get("dim")
    return {
        NAME: name,
        "rows": rows,
        "dim": dim,
        "bytes": initialized.get("bytes", 4 * rows * dim if rows and dim else None),
        "rows touched": freeze.get("trainable_rows_touched"),
        UNMOVED: freeze.get("trainable_rows_never_moved"),
        FROZEN: freeze.get("frozen_rows"),
        STORAGE: str(table.get(STORAGE, "")),
    }


def _row(facts: Mapping[str, Any], *, any_unmoved: bool) -> Row:
    size = facts["bytes"]
    cells = {
        NAME: facts[NAME],
        "rows": _whole(facts["rows"]),
        "dim": _whole(facts["dim"]),
        "MB": "" if size is None else f"{size / 1e6:,.2f}",
        "rows touched": _share(facts["rows touched"], facts["rows"]),
        UNMOVED: _share(facts[UNMOVED], facts["rows"]),
        FROZEN: _share(facts[FROZEN], facts["rows"]),
        STORAGE: facts[STORAGE],
    }
    return Row({name: cell for name, cell in cells.items() if name != UNMOVED or any_unmoved})


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _share(count: int | None, total: int | None) -> str:
    if count is None:
        return ""
    return f"{count:,} ({100 * count / total:.3g}%)" if total and count else f"{count:,}"
