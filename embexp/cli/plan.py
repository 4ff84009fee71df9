"""`embexp plan`: what a run would take. Allocates nothing and imports no TensorFlow."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser, add_config_arguments
from embexp.cli.commands import DONE

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.runs.prepare import Prepared
    from embexp.specs.run import RunSpec

USAGE = "embexp plan [OVERRIDES] [-m] [--scan] [--trace] [--config-dir DIR]"

HELP = f"""\
usage: {USAGE}

Shows what `embexp run` with the same words would do: the runtime, the tables with the bytes of their parameters, of
their optimizers' slots and of what is frozen, how they are filled, which settings are a table's own, the features,
settings without effect; with -m, the jobs, and why some can't be run.
The config is checked as for a run. Nothing is allocated (but by --trace, which says how much), nothing is written.

    --scan    read the data and pretrained files (once; they are kept for the run) to know the size of each
              vocabulary, and how much of it a file has
    --trace   scan, make the tables without filling them, and trace the training step; with strategy=tpu_simulator this
              shows the TPU's operations and its TPUEmbeddingConfiguration
    the rest: embexp run --help
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("plan", USAGE)
    add_config_arguments(parser)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if options.multirun:
        _sweep(options)
    else:
        _single(options)
    return DONE


def _single(options: argparse.Namespace) -> None:
    from embexp.config import composition
    from embexp.system import terminal

    spec = composition.job(composition.loader(options.config_dir, options.config_name), options.overrides).spec
    show(spec, terminal.console(), scan=options.scan or options.trace, trace=options.trace)


def _sweep(options: argparse.Namespace) -> None:
    from embexp.config import composition
    from embexp.sweeps import outcomes, planned
    from embexp.system import terminal

    plan = planned.plan(composition.loader(options.config_dir, options.config_name), options.overrides)
    console = terminal.console()
    if plan.jobs is None:
        console.print("the sweeper chooses the jobs while it goes on", markup=False)
        return
    keys = outcomes.varying([job.settings for job in plan.jobs])
    table = terminal.table(console, ["job", *keys, "note"])
    for job in plan.jobs:
        note = f"skipped: {job.skip}" if job.skip else ""
        table.add_row(str(job.number), *(job.settings.get(key, "") for key in keys), note)
    console.print(table)
    to_run = [job for job in plan.jobs if not job.skip]
    console.print(f"{len(to_run)} of {len(plan.jobs)} jobs would run; the first:", markup=False, highlight=False)
    console.print()
    show(to_run[0].spec, console, scan=options.scan or options.trace, trace=options.trace)


def show(spec: RunSpec, console: Console, *, scan: bool, trace: bool) -> None:
    """Prints what a run, or a study, would do.

    Args:
        spec: what the user asked for.
        console: where to print.
        scan: whether to read the data and the pretrained files.
        trace: whether to trace the training step too.

    Raises:
        EmbexpError: the run would be refused, once the data is read.
    """
    from embexp.cli import planned_run, planned_study
    from embexp.specs.studies import NoStudy

    if not isinstance(spec.study, NoStudy):
        planned_study.show(spec, console, scan=scan)
    elif not scan:
        planned_run.show(planned_run.unread(spec), console)
    else:
        prepared = _prepared(spec)
        planned_run.show(planned_run.read(prepared), console)
        _show_pretrained(prepared, console)
        if trace:
            _trace(prepared, console)


def _prepared(spec: RunSpec) -> Prepared:
    """The run as `embexp run` would prepare it."""
    from embexp.cli.stages import shown
    from embexp.runs.prepare import prepare

    with shown() as stages:
        return prepare(spec, stages)


def _show_pretrained(prepared: Prepared, console: Console) -> None:
    """Prints what pretrained files have for the tables."""
    from rich import box

    from embexp.reports import coverage

    content = prepared.tables.pretrained.as_json()
    if (table := coverage.table(content, box.SIMPLE_HEAD if console.is_terminal else None)) is not None:
        console.print()
        console.print(table)
    for note in prepared.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for name, why in content["unfit"].items():
        console.print(f"no effect: pretrained on tables.{name}: {why}", markup=False, highlight=False, soft_wrap=True)


def _trace(prepared: Prepared, console: Console) -> None:
    from embexp.cli.stages import shown
    from embexp.system import environment

    environment.load_tensorflow()
    from embexp.cli import traced_run
    from embexp.runs import tracing

    with shown() as stages:
        traced = tracing.trace(prepared, stages)
    traced_run.show(traced, console)
