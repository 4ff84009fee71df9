"""A report as CSV, JSON and LaTeX, and what the end of a sweep writes and prints."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from embexp.errors import CommandLineError, RunError
from embexp.records.folder import RESULTS, finite
from embexp.records.outputs import PAGE, PAGE_MARK, Output, output
from embexp.reports import grid
from embexp.reports.groups import Group, of_setting
from embexp.reports.record import Record, at, text_of
from embexp.reports.report import Report, report, run_columns, setting_columns, show
from embexp.system import files, printable, terminal

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
    "–": r"\textendash{}",
    "…": r"\dots{}",
}
_LIGATURE = re.compile(r"-(?=-)|,(?=,)|'(?=')|[`!?](?=`)")
"""Characters that LaTeX joins with the next one: -- to a dash, '' to a quotation mark."""
_CSV = "sweep.csv"

Tables = Callable[[Sequence[Record]], Sequence[Mapping[str, Any]]]
"""Reads the tables of runs for the page: see `embexp.runs.table_maps`."""


def as_csv(report: Report, *, by_number: bool = False) -> str:
    """One line for each run, with all columns and all digits.

    Args:
        by_number: whether runs are in the order of their jobs, and not in that of the table.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [name for name in report.columns if name != "best"]
    writer.writerow([printable.safe_cell("number" if name == "job" else name) for name in columns])
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
    table = setting_columns(report) if report.groups else run_columns(report)
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
    """Text with the characters escaped that LaTeX takes as commands, and those apart that it would join."""
    return _LIGATURE.sub(r"\g<0>{}", "".join(_LATEX.get(each, each) for each in grid.one_line_of(text)))


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
            return f"{value:.3f}" if name in ("seconds", "train_seconds") else repr(value)
        case _:
            return printable.safe_cell(text_of(value))


def _job(record: Record, compared: Sequence[str]) -> dict[str, Any]:
    return {
        "number": record.number,
        "name": record.name,
        "overrides": dict(record.overridden),
        "status": record.status.value,
        "reason": record.reason,
        "directory": None if record.directory is None else str(record.directory),
        "seconds": None if record.seconds is None else round(record.seconds, 3),
        "train_seconds": None if record.train_seconds is None else round(record.train_seconds, 3),
        "metrics": dict(record.metrics),
        "compared": {key: at(record.summary, key) for key in compared},
        "same_as": record.same_as,
        "record": record.record,
    }


def _mean(group: Group, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "overrides": {key: group.first.value(key) for key in keys if of_setting(key)},
        "jobs": len(group.runs),
        "runs": [run.name for run in group.runs],
        "best": group.best,
        "metrics": {name: asdict(estimate) for name, estimate in group.values.items()},
        "comparison": None if group.comparison is None else asdict(group.comparison),
    }


def write_reports(directory: Path, console: Console, tables: Tables) -> None:
    """Writes the results of a sweep and prints its table.

    The sweep has ended, so a report that can't be written is a warning, not an error.
    """
    with terminal.naming("comparing the runs", console):
        found = report(directory)
    show(found, console)
    written = []
    try:
        with terminal.naming(f"writing {_CSV} and {RESULTS}", console):
            write_results(found, directory)
        written.append(directory / _CSV)
        write_page(found, page_in(directory), tables, console)
        written.append(directory / PAGE)
    except (OSError, CommandLineError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        console.print(Text(f"warning: the report can't be written to {directory}: {why}"), soft_wrap=True)
    console.print(Text(f"results in {' and '.join(map(str, written)) or directory}"), soft_wrap=True)


def write_results(found: Report, directory: Path) -> None:
    """Writes sweep.csv and sweep.json, by the numbers of the jobs, whole or not at all."""
    files.write_text(directory / _CSV, as_csv(found, by_number=True))
    files.write_text(directory / RESULTS, as_json(found, by_number=True))


def page_in(directory: Path, *, force: bool = False) -> Output:
    """The page of a folder of runs, which replaces an earlier page and nothing else.

    Raises:
        CommandLineError: there is something else of that name.
    """
    return output(directory / PAGE, "report", force=force, mark=PAGE_MARK)


def write_page(found: Report, out: Output, tables: Tables, console: Console) -> None:
    """Writes the HTML page, whole or not at all.

    Args:
        console: shows what is being done, if it is a terminal.
    """
    from embexp.reports import page

    with terminal.naming(f"making maps of tables for {Path(out.named).name}", console):
        maps = tables(found.records)
    with terminal.naming(f"writing {Path(out.named).name}", console):
        out.write(page.page_of(found.records, maps=maps))
