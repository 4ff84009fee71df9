"""Reports and results of runs in notebooks, as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from embexp.reports import grid, metric_rows, results
from embexp.reports.grid import Column
from embexp.reports.report import Report
from embexp.reports.terminal_table import MARK, lines


def as_html(report: Report) -> str:
    """The tables of runs and of settings over seeds, and the lines below them. All text is escaped."""
    tables = [grid.runs(report)] if report.results else []
    tables += [grid.groups(report)] if report.groups else []
    below = "".join(f"<p>{escape(line.strip().removeprefix(MARK).strip())}</p>" for line in lines(report))
    return f"<div>{''.join(''.join(_table(table)) for table in tables)}{below}</div>"


def run_as_html(summary: Mapping[str, Any], directory: Path) -> str:
    """How a run ended, its metrics and its warnings, without anything that differs when it is repeated.

    Args:
        summary: the content of summary.json.
        directory: of the run.
    """
    found = metric_rows.of(summary)
    cells = zip(*found.rows, strict=True) if found.rows else ()
    columns = [
        Column(heading, each, right=place > 0)
        for place, (heading, each) in enumerate(zip(found.headings, cells, strict=False))
    ]
    below = [f"warning: {each}" for each in summary.get("warnings") or ()]
    lines = [f"<p>{escape(line)}</p>" for line in (run_as_text(summary, directory), *below)]
    return f"<div>{lines[0]}{''.join(_table(columns)) if columns else ''}{''.join(lines[1:])}</div>"


def run_as_text(summary: Mapping[str, Any], directory: Path) -> str:
    """The same in one line, without metrics."""
    steps, best = summary.get("steps"), summary.get("best_step")
    parts = [
        str(summary["status"]).replace("_", " "),
        None if steps is None else f"{steps:,} steps",
        None if best is None else f"best at step {best:,}",
        f"in {results.shown_path(directory)}",
    ]
    return ", ".join(filter(None, parts))


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
