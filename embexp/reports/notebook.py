"""A report as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from embexp.reports import grid
from embexp.reports.grid import Column
from embexp.reports.report import Report
from embexp.reports.terminal_table import lines


def as_html(report: Report) -> str:
    """The tables of runs and of settings over seeds, and the lines below them. All text is escaped."""
    tables = [grid.runs(report)] if report.results else []
    tables += [grid.groups(report)] if report.groups else []
    below = "".join(f"<p>{escape(line.strip())}</p>" for line in lines(report))
    return f"<div>{''.join(''.join(_table(table)) for table in tables)}{below}</div>"


def _table(table: Sequence[Column]) -> Iterator[str]:
    yield "<table><thead><tr>"
    for column in table:
        yield f"<th{_side(column)}>{escape(column.heading)}</th>"
    yield "</tr></thead><tbody>"
    for row in range(len(table[0].cells)):
        yield "<tr>"
        for column in table:
            text = escape(column.cells[row])
            yield f"<td{_side(column)}>{f'<b>{text}</b>' if column.best == row else text}</td>"
        yield "</tr>"
    yield "</tbody></table>"


def _side(column: Column) -> str:
    return f' style="text-align: {"right" if column.right else "left"}"'
