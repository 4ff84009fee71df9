"""A report in the terminal, in notebooks, as CSV, JSON and LaTeX, and what the end of a sweep writes and prints."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from embexp.errors import RunError
from embexp.records.folder import RESULTS, finite
from embexp.reports import grid, results
from embexp.reports.grid import Column
from embexp.reports.groups import REPEATS, Group
from embexp.reports.record import Record, Status, at, text_of
from embexp.reports.report import Report, report
from embexp.system import files, printable
from embexp.system.terminal import SafeConsole
from embexp.training.metric_names import Direction

_MARK = "*"
_WIDTH = 120
_MOST = 12
"""Numbers of jobs, and causes, that are listed."""
_WORDS = {
    Status.FAILED: "failed",
    Status.INTERRUPTED: "interrupted",
    Status.CANCELLED: "cancelled",
    Status.PRUNED: "pruned",
    Status.SKIPPED: "skipped",
    Status.RUNNING: "running",
    Status.QUEUED: "queued",
    Status.PLANNED: "not started",
}
"""In the order of the output."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\dots{}",
}
_COMPUTED = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Beginnings of a cell that spreadsheets take as a formula."""
_NUMBER = re.compile(r"[-+](\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+](inf|nan)")
_CSV = "sweep.csv"
PAGE = "report.html"

Maps = Callable[[Sequence[Record]], Sequence[Mapping[str, Any]]]
"""Makes maps of tables for the page: see `embexp.runs.table_maps`."""


def show(report: Report, console: Console) -> None:
    """Prints a report."""
    if report.results:
        _print_table(grid.runs(report), console, "--csv")
    if report.groups:
        _print_table(grid.groups(report), console, "--json")
    for line in _lines(report):
        console.print(Text(line), soft_wrap=True)


def as_text(report: Report) -> str:
    """A report as plain text."""
    text = io.StringIO()
    show(report, SafeConsole(file=text, width=_WIDTH, force_terminal=False, force_jupyter=False, color_system=None))
    return text.getvalue().rstrip("\n")


def _lines(report: Report) -> Iterator[str]:
    """What stands below the tables: the mark, tests, notes, and the runs without results, each cause in one line."""
    if report.best is not None and report.direction is not None:
        better = "lower" if report.direction is Direction.LOWER else "higher"
        yield f"{_MARK} best by validation {report.metric} ({better} is better)"
    if report.tested:
        several = sum(group.comparison is not None for group in report.groups) > 1
        corrected = ", corrected for their number by Holm" if several else ""
        yield f"interval, difference to the reference, and p: of {report.tested}; p by a paired t-test{corrected}"
    for note in report.notes:
        yield f"note: {note}"
    for record in report.records:
        if record.changes and record.same_as is None:
            what = f"the record of {_named([record])} was changed since it ended"
            command = "" if record.directory is None else f"; {shlex.join(['embexp', 'verify', str(record.directory)])}"
            yield f"warning: {what} ({grid.one_line_of(record.changes)}){command}"
    yield from _without_results(report.others, report.keys)
    for key in report.compared:
        if report.results and all(at(record.summary, key) is None for record in report.results):
            yield f"output.compare: no summary.json of these runs has the key {key}"


def _print_table(table: Sequence[Column], console: Console, option: str) -> None:
    best = next((column.best for column in table if column.best is not None), None)
    marks = [Column("", tuple(_MARK if row == best else " " for row in range(len(table[0].cells))))]
    framed = console.is_terminal  # a frame takes a column on each side, and one of the two between columns
    kept, left_out = grid.fitted([*marks, *table] if best is not None else table, console.width - 2 * framed)
    padding = (0, 1 if framed else 2, 0, 0)
    made = Table(box=box.SIMPLE_HEAD if framed else None, pad_edge=False, padding=padding, header_style="bold")
    for column in kept:
        made.add_column(Text(column.heading), justify="right" if column.right else "left", overflow="fold")
    for row in range(len(table[0].cells)):
        made.add_row(*(Text(column.cells[row], "bold green" if column.best == row else "") for column in kept))
    console.print(made)
    if left_out:
        console.print(Text(f"left out for the width: {', '.join(left_out)}; {option} FILE has all"), soft_wrap=True)
    if not framed:
        console.print()


def _without_results(records: Sequence[Record], keys: Sequence[str]) -> Iterator[str]:
    """A line for each status and cause, with the runs that have it."""
    for status, word in _WORDS.items():
        same: dict[str, list[Record]] = {}
        for record in records:
            if record.status is status:
                same.setdefault(record.reason, []).append(record)
        for reason, runs in list(same.items())[:_MOST]:
            yield f"{_named(runs)} {word}{_settings(runs, keys)}" + (f": {grid.one_line_of(reason)}" if reason else "")
            if status is Status.FAILED and runs[0].directory is not None and (runs[0].directory / "run.log").is_file():
                yield f"    {runs[0].directory / 'run.log'}"
        if rest := [record for runs in list(same.values())[_MOST:] for record in runs]:
            yield f"{_named(rest)} {word} for other reasons; --csv FILE has them"


def _named(runs: Sequence[Record]) -> str:
    jobs = all(record.number is not None and record.name.isdecimal() for record in runs)
    names = [str(record.number) if jobs else record.name for record in runs]
    listed = ", ".join(names if len(names) <= _MOST else [*names[:_MOST], f"… {len(names) - _MOST} more"])
    what = "job" if jobs else "run"
    return f"{what} {listed}" if len(runs) == 1 else f"{len(runs)} {what}s ({listed})"


def _settings(runs: Sequence[Record], keys: Sequence[str]) -> str:
    """The settings of a single run, if they are few."""
    values = [f"{key}={grid.setting(runs[0].value(key))}" for key in keys if runs[0].value(key) is not None]
    return f" [{' '.join(values)}]" if len(runs) == 1 and 0 < len(values) <= 6 else ""


def as_html(report: Report) -> str:
    """The tables of runs and of settings over seeds, and the lines below them. All text is escaped."""
    tables = [grid.runs(report)] if report.results else []
    tables += [grid.groups(report)] if report.groups else []
    below = "".join(f"<p>{escape(line.strip().removeprefix(_MARK).strip())}</p>" for line in _lines(report))
    return f"<div>{''.join(''.join(_table(table)) for table in tables)}{below}</div>"


def run_as_html(summary: Mapping[str, Any], directory: Path) -> str:
    """How a run ended, its metrics and its warnings, without anything that differs when it is repeated."""
    headings, rows = results.metric_rows(summary)
    cells = zip(*rows, strict=True)
    columns = [
        Column(heading, each, right=place > 0)
        for place, (heading, each) in enumerate(zip(headings, cells, strict=False))
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


def as_csv(report: Report, *, by_number: bool = False) -> str:
    """One line for each run, with all columns and all digits.

    Args:
        by_number: whether runs are in the order of their jobs, and not in that of the table.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [name for name in report.columns if name != "best"]
    writer.writerow([_csv_text("number" if name == "job" else name) for name in columns])
    for record in _sorted(report, by_number):
        row = report.row(record)
        writer.writerow([_csv_cell(name, row[name]) for name in columns])
    return text.getvalue()


def as_json(report: Report, *, by_number: bool = False) -> str:
    """Runs, settings over seeds, and the best, as JSON; numbers that JSON lacks are null."""
    content = {
        "metric": report.metric or None,
        "direction": None if report.direction is None else report.direction.value,
        "best": None if report.best is None else report.best.name,
        "jobs": [_job(record, report.compared) for record in _sorted(report, by_number)],
        "means": [_mean(group, report.keys) for group in report.groups],
        "tested": report.tested or None,
        "notes": list(report.notes),
    }
    return json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_latex(report: Report) -> str:
    r"""A `tabular` for the package booktabs: settings over seeds, or the runs where nothing was repeated.

    The best value is bold. All text is escaped.

    Raises:
        RunError: no run has ended.
    """
    if not report.results:
        raise RunError("no run has ended normally, so there is no table for LaTeX")
    table = grid.groups(report) if report.groups else grid.runs(report)
    lines = ["% needs \\usepackage{booktabs}"]
    lines += [f"\\begin{{tabular}}{{{''.join('r' if column.right else 'l' for column in table)}}}", "\\toprule"]
    lines += [_latex_row([latex(column.heading) for column in table]), "\\midrule"]
    for row in range(len(table[0].cells)):
        cells = [latex(column.cells[row]) for column in table]
        bold = [column.best == row for column in table]
        lines.append(
            _latex_row([f"\\textbf{{{cell}}}" if best else cell for cell, best in zip(cells, bold, strict=True)])
        )
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    """Text with the characters escaped that LaTeX takes as commands."""
    return "".join(_LATEX.get(each, each) for each in grid.one_line_of(text))


def _latex_row(cells: Sequence[str]) -> str:
    # A row that began with [ would be read as an argument of the \\ before it.
    return " & ".join(f"{{{cell}}}" if cell.startswith("[") else cell for cell in cells) + r" \\"


def _sorted(report: Report, by_number: bool) -> Sequence[Record]:
    if not by_number:
        return report.records
    return sorted(report.records, key=lambda record: (record.number is None, record.number or 0))


def _csv_cell(name: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.3f}" if name == "seconds" else repr(value)
        case _:
            return _csv_text(text_of(value))


def _csv_text(text: str) -> str:
    """A text as a cell: without what a terminal would obey, and with a quote where a spreadsheet would compute it.

    Numbers such as -1 and +1e-3, also those that are given as texts, stay numbers.
    """
    text = printable.visible(text)
    return f"'{text}" if text.startswith(_COMPUTED) and not _NUMBER.fullmatch(text) else text


def _job(record: Record, compared: Sequence[str]) -> dict[str, Any]:
    return {
        "number": record.number,
        "name": record.name,
        "overrides": dict(record.overridden),
        "status": record.status.value,
        "reason": record.reason,
        "directory": None if record.directory is None else str(record.directory),
        "seconds": None if record.seconds is None else round(record.seconds, 3),
        "metrics": dict(record.metrics),
        "compared": {key: at(record.summary, key) for key in compared},
        "same_as": record.same_as,
        "record": record.record,
    }


def _mean(group: Group, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "overrides": {key: group.first.value(key) for key in keys if key not in REPEATS},
        "jobs": len(group.runs),
        "runs": [run.name for run in group.runs],
        "best": group.best,
        "metrics": {name: asdict(estimate) for name, estimate in group.values.items()},
        "comparison": None if group.comparison is None else asdict(group.comparison),
    }


def write_reports(directory: Path, console: Console, maps: Maps) -> None:
    """Writes the results of a sweep and prints its table.

    The sweep has ended, so a report that can't be written is a warning, not an error.

    Args:
        maps: makes maps of tables for the page.
    """
    found = report(directory)
    show(found, console)
    written = []
    try:
        write_results(found, directory)
        written.append(directory / _CSV)
        write_page(found, directory / PAGE, maps)
        written.append(directory / PAGE)
    except OSError as error:
        console.print(Text(f"warning: the report can't be written to {directory}: {error.strerror}"), soft_wrap=True)
    console.print(Text(f"results in {' and '.join(map(str, written)) or directory}"), soft_wrap=True)


def write_results(found: Report, directory: Path) -> None:
    """Writes sweep.csv and sweep.json, by the numbers of the jobs, whole or not at all."""
    files.write_text(directory / _CSV, as_csv(found, by_number=True))
    files.write_text(directory / RESULTS, as_json(found, by_number=True))


def write_page(found: Report, path: Path, maps: Maps) -> None:
    """Writes the HTML page, whole or not at all."""
    from embexp.reports import page

    page.write_page(found.records, path, maps=maps(found.records))
