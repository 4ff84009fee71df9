"""What the end of a sweep writes and prints: sweep.csv, sweep.json, the table, the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from embexp.records.folder import RESULTS
from embexp.reports import formats, terminal_table
from embexp.reports.record import Record
from embexp.reports.report import Report
from embexp.reports.tabulate import report
from embexp.system import files

_CSV = "sweep.csv"
PAGE = "report.html"

Maps = Callable[[Sequence[Record]], Sequence[Mapping[str, Any]]]
"""Makes maps of tables for the page: see `embexp.runs.table_maps`."""


def write_reports(directory: Path, console: Console, maps: Maps) -> None:
    """Writes the results of a sweep and prints its table.

    The sweep has ended, so a report that can't be written is a warning, not an error.

    Args:
        directory: of the sweep.
        console: to print to.
        maps: makes maps of tables for the page.
    """
    found = report(directory)
    terminal_table.show(found, console)
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
    files.write_text(directory / _CSV, formats.as_csv(found, by_number=True))
    files.write_text(directory / RESULTS, formats.as_json(found, by_number=True))


def write_page(found: Report, path: Path, maps: Maps) -> None:
    """Writes the HTML page, whole or not at all."""
    from embexp.reports.page import document

    document.write_page(found.records, path, maps=maps(found.records))
