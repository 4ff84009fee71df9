"""`embexp plan`: what a run would do. Allocates nothing and imports no TensorFlow, except with `--trace`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser, add_config_arguments, config_loader, is_multirun
from embexp.cli.commands import DONE
from embexp.system import environment

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.runs.dry_run import Traced
    from embexp.runs.prepare import Prepared
    from embexp.specs.run import RunSpec

USAGE = "embexp plan [OVERRIDES] [-m] [--scan] [--trace] [--time] [--config-dir DIR] [--allow-code M:F]"

HELP = f"""\
usage: {USAGE}

Shows what `embexp run` with the same arguments would do: the runtime, the features, and settings without effect. For
each table, shows the bytes of parameters, optimizer slots and frozen rows, its init method and its own settings. With
-m, shows the jobs, and why some are skipped. The config is checked as for a run. Nothing is written, and only --trace
and --time allocate memory.

    --scan    Reads the data and pretrained files (the run reuses the cached result), and shows the size of each
              vocabulary and how much of it the files cover.
    --trace   Also creates the tables without filling them, and traces the training step. With strategy=tpu_simulator
              this shows the TPU's operations and its TPUEmbeddingConfiguration.
    --time    Also makes the tables as the run does, times some steps and a part of each evaluation, and estimates the
              time of the run.

`embexp run --help` describes the other options.
"""

_LONGEST = 120
"""Lines of a configuration that are printed; the middle of a longer one is cut out."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("plan", USAGE, HELP)
    add_config_arguments(parser)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--time", action="store_true")
    options = parser.parse(arguments)
    if options is None:
        return DONE
    from embexp.system import terminal

    console = terminal.console()
    if (spec := _sweep(options, console) if is_multirun(options) else _single(options)) is not None:
        scan = options.scan or options.trace or options.time
        show(spec, console, scan=scan, trace=options.trace, timed=options.time)
    return DONE


def _single(options: argparse.Namespace) -> RunSpec:
    from embexp.config import composition

    spec = composition.job(config_loader(options), options.overrides).spec
    environment.begin_collecting()
    return spec


def _sweep(options: argparse.Namespace, console: Console) -> RunSpec | None:
    """Prints the jobs of a sweep; returns the spec of the first one that would run, None if it is not known."""
    from embexp.sweeps import planning
    from embexp.system import terminal

    environment.begin_collecting()
    with terminal.shown_if_long() as progress:
        plan = planning.plan(config_loader(options), options.overrides, progress)
    if plan.jobs is None:
        lines = ["this sweeper chooses its jobs while the sweep runs"] if plan.search is None else plan.search.lines()
        for line in lines:
            terminal.say(console, line)
        return None
    keys = planning.varying([job.settings for job in plan.jobs])
    table = terminal.table(console, ["job", *keys, "note"])
    for job in plan.jobs:
        note = f"skipped: {job.skip}" if job.skip else ""
        if job.same_as is not None:
            note = f"the same as job {job.same_as}: not run again"
        table.add_row(str(job.number), *(job.settings.get(key, "") for key in keys), note)
    console.print(table)
    to_run = [job for job in plan.jobs if not job.skip and job.same_as is None]
    console.print(f"{len(to_run)} of {len(plan.jobs)} jobs would run; the first:", markup=False, highlight=False)
    console.print()
    return to_run[0].spec


def show(spec: RunSpec, console: Console, *, scan: bool, trace: bool, timed: bool = False) -> None:
    """Prints what a run, or a study, would do.

    Raises:
        EmbexpError: `embexp run` would refuse the run, too.
    """
    from embexp.cli import planned
    from embexp.runs import prepare
    from embexp.specs.studies import NoStudy
    from embexp.system import terminal

    if not isinstance(spec.study, NoStudy):
        planned.show_study(spec, console, scan=scan)
    elif not scan:
        planned.show(planned.from_spec(spec), console)
    else:
        prepared = _prepared(spec)
        prepare.check_memory(prepared)
        planned.show(planned.from_prepared(prepared), console)
        _show_pretrained(prepared, console)
        console.print()
        terminal.say(console, planned.length_line(prepared))
        if trace:
            _trace(prepared, console)
        if timed:
            _time(prepared, console)


def _prepared(spec: RunSpec) -> Prepared:
    """Prepares the run as `embexp run` does."""
    from embexp.cli.stages import show_stages
    from embexp.runs.prepare import prepare

    with show_stages() as stages:
        return prepare(spec, stages)


def _show_pretrained(prepared: Prepared, console: Console) -> None:
    """Prints how much of each table its pretrained file covers."""
    from rich import box

    from embexp.reports import results
    from embexp.system import terminal

    content = prepared.tables.pretrained.as_json()
    if (table := results.coverage_table(content, box.SIMPLE_HEAD if console.is_terminal else None)) is not None:
        console.print()
        console.print(table)
    for note in prepared.notes:
        terminal.say(console, note)
    for name, why in content["unfit"].items():
        terminal.say(console, f"no effect: pretrained on tables.{name}: {why}")


def _trace(prepared: Prepared, console: Console) -> None:
    from embexp.cli.stages import show_stages
    from embexp.system import environment

    environment.load_tensorflow()
    from embexp.runs import dry_run

    with show_stages() as stages:
        traced = dry_run.trace(prepared, stages)
    _show_traced(traced, console)


def _time(prepared: Prepared, console: Console) -> None:
    from embexp.cli import planned
    from embexp.cli.stages import show_stages
    from embexp.system import environment, terminal

    environment.load_tensorflow()
    from embexp.runs import dry_run, run

    with show_stages() as stages:
        timed = dry_run.measure(prepared, run.prepare_machine(prepared.spec.strategy), stages)
    stopping = prepared.spec.train.early_stopping.patience is not None
    for line in planned.time_lines(timed, may_stop_early=stopping):
        terminal.say(console, line)


def _show_traced(traced: Traced, console: Console) -> None:
    """Prints a traced training step; shortens a long configuration."""
    from embexp.system import terminal

    terminal.say(console)
    terminal.say(
        console,
        f"traced: the training step is a graph of {terminal.byte_size(traced.graph_bytes)}; allocated, but not filled:"
        f" {terminal.byte_size(traced.allocated_bytes)} of tables and slots",
    )
    if traced.tpu_operations:
        terminal.say(console)
        terminal.say(console, "operations of the TPU (simulated), in order of first appearance:")
        for operation, count in Counter(str(each) for each in traced.tpu_operations).items():
            terminal.say(console, f"  {f'{count} × ' if count > 1 else ''}{operation}")
    if traced.configuration:
        terminal.say(console)
        terminal.say(console, "TPUEmbeddingConfiguration:")
        for each in _shortened(traced.configuration.rstrip().splitlines()):
            terminal.say(console, f"  {each}")


def _shortened(lines: list[str]) -> list[str]:
    """The first and last lines of a long list."""
    if len(lines) <= _LONGEST:
        return lines
    half = _LONGEST // 2
    return [*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]]
