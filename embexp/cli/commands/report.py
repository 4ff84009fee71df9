"""`embexp report`: the table and the page of runs and sweeps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, warn
from embexp.errors import CommandLineError, RunError
from embexp.system import printable
from embexp.system.printable import print

if TYPE_CHECKING:
    import argparse

    from embexp.records.outputs import Output
    from embexp.reports.record import Record

HELP = """\
usage: embexp report DIR… [--sort KEY[:desc]] [--filter CONDITION]… [--baseline CONDITION] [--csv FILE] …
       embexp report RUN --chain [--plot FILE]

Compares all runs in the given directories, at any depth: those of one or several sweeps, or of any folder with runs.
Prints a table, best run first, with the settings that vary and the validation and test metrics. The best run is the one
with the best validation metric. Settings with several seeds get means, standard deviations, confidence intervals and a
paired test. A mark shows which runs have files that were changed after they ended; `embexp verify` lists the changes.
Below the table are jobs that failed, and jobs that are queued, running, interrupted or cancelled.

    --chain               Shows RUN and the runs that it continues: test data, new rows, and what training added.
    --plot FILE           With --chain, plots the metric of these runs to a PNG file.
    --sort KEY[:desc]     Sorts by a setting, a metric, seconds, train_seconds, job, or a key of summary.json.
    --filter CONDITION    Shows only runs that meet the condition. If you repeat it, all conditions must hold.
    --baseline CONDITION  Compares settings with the one that meets the condition instead of the best one.
    --csv FILE            Writes all runs with all columns.
    --json FILE           Writes all runs, and the statistics over seeds.
    --latex FILE          Writes a table for the LaTeX package booktabs.
    --format FORMAT       Prints csv, json or latex instead of the table.
    --html FILE           Writes the HTML page to FILE (default: DIR/report.html, if you give one folder of runs).
    --no-html             Writes no HTML page.
    --force               Replaces files that embexp did not write, or that were changed since.

One FILE may be -, for standard output. The table then goes to standard error.

A CONDITION is a key, one of = != < <= > >=, and a value. After = and !=, you can list several values with commas:

    embexp report outputs/sweep --filter optimizer=adam,adagrad --filter 'test rmse<0.95' --sort 'test rmse'
    embexp report outputs/sweep --baseline optimizer=sgd --latex table.tex
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("report", HELP)
    parser.needs("directories", "of which runs? Give a directory, such as outputs", nargs="*")
    parser.values("--sort", "--baseline")
    parser.add_argument("--filter", action="append", default=[])
    for name in ("csv", "json", "latex", "html"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE")
    parser.add_argument("--format", choices=("table", "csv", "json", "latex"), default="table")
    parser.switches("--no-html", "--force", "--chain")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    options = parser.parse(arguments)
    if options.chain:
        if len(options.directories) > 1:
            raise CommandLineError("--chain shows the runs that one run went on from: give the directory of one")
        return _show_chain(Path(options.directories[0]), options.plot, force=options.force)
    if options.plot is not None:
        raise CommandLineError("--plot draws the runs of a chain: add --chain")
    if options.html and options.no_html:
        raise CommandLineError("--html names a file for the page and --no-html writes none: give one of them")
    from embexp.reports import report
    from embexp.reports.collected import collect
    from embexp.reports.report import show, tabulate
    from embexp.runs import table_maps
    from embexp.system import terminal

    named = _outputs(options)
    for_programs = options.format != "table" or any(out.path is None for out in named.values())
    messages = sys.stderr if for_programs else sys.stdout
    console = terminal.console(stderr=for_programs)
    busy = terminal.SafeConsole(stderr=True)
    with terminal.naming("reading the records of the runs", busy):
        records: Sequence[Record] = collect(options.directories)
    found = tabulate(records, sort=options.sort, filters=options.filter, baseline=options.baseline)
    writers = {"csv": report.as_csv, "json": report.as_json, "latex": report.as_latex}
    if options.format == "table":
        show(found, console)
    else:
        printable.write_data(writers[options.format](found))
    for name, out in named.items():
        try:
            if name == "html":
                report.write_page(found, out, table_maps.of_best, busy)
            else:
                out.write(writers[name](found))
        except OSError as error:
            raise RunError(f"{out.named} can't be written: {error.strerror}") from None
        if out.is_file:
            print(f"written: {out.named}", file=messages)
    return DONE


def _show_chain(directory: Path, plot: Path | None, *, force: bool) -> int:
    """Shows the runs that a run went on from."""
    from embexp.records.outputs import output
    from embexp.reports import chain
    from embexp.system import terminal

    out = None if plot is None else output(plot, "report --plot", option="--plot", force=force)
    chain.show(directory, terminal.console(), None if out is None else out.path)
    return DONE


def _outputs(options: argparse.Namespace) -> dict[str, Output]:
    """The files to write, by their kind.

    Raises:
        CommandLineError: one can't be written, or must not be, or two are the same.
    """
    from embexp.records.outputs import PAGE_MARK, output
    from embexp.reports.report import page_in

    kinds = {f"--{name}": getattr(options, name) for name in ("csv", "json", "latex", "html")}
    given = {option: path for option, path in kinds.items() if path is not None}
    found = {
        option[2:]: output(
            path,
            f"report {option}",
            option=option,
            force=options.force,
            mark=PAGE_MARK if option == "--html" else None,
        )
        for option, path in given.items()
    }
    named = [out.path for out in found.values() if out.path is None or out.is_file]
    if options.format != "table":  # which the standard output gets
        given["--format"], named = options.format, [*named, None]
    if len(set(named)) < len(named):
        raise CommandLineError(
            f"{', '.join(f'{option} {path}' for option, path in given.items())}: name each file once"
        )
    if (
        not options.no_html
        and options.html is None
        and (folder := _default_folder(options.directories, options.format))
    ):
        try:
            found["html"] = page_in(folder, force=options.force)
        except CommandLineError as error:
            warn(f"no page is written: {error}")
    return found


def _default_folder(directories: Sequence[str], printed: str) -> Path | None:
    """Where the page goes if no place is named: into the one folder of runs that is given, but never into a run."""
    from embexp.reports.collected import is_run

    folder = Path(directories[0])
    return folder if printed == "table" and len(directories) == 1 and not is_run(folder) else None
