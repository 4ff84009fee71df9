"""`embexp plan`: what a run would do. Allocates nothing and imports no TensorFlow, except with `--trace`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser, add_config_arguments, config_loader, is_multirun
from embexp.cli.commands import DONE
from embexp.errors import plural
from embexp.system import environment

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.specs.run import RunSpec

HELP = """\
usage: embexp plan [OVERRIDES] [-m] [--scan] [--trace] [--time] [--config-dir DIR] [--allow-code M:F]

Shows what `embexp run` with the same arguments would do: the directory that it writes to, what happens to an earlier
run there, the runtime, the features, and settings without effect. Each table is listed with the size of its parameters,
optimizer slots and frozen rows, its init method and its own settings. With -m, the jobs are listed, and why some are
skipped. The config is checked as for a run. Nothing is written, and only --trace and --time allocate memory.

    --scan    Reads the data and the pretrained files, and shows the size of each vocabulary and how much of it the
              files cover. The run reuses the cached result.
    --trace   Also creates the tables without filling them, and traces the training step. With strategy=tpu_simulator,
              it shows the TPU's operations and its TPUEmbeddingConfiguration.
    --time    Also creates the tables as the run does, times some steps and part of each evaluation, and estimates how
              long the run will take.

The other options work as in `embexp run`.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("plan", HELP)
    add_config_arguments(parser)
    parser.switches("--scan", "--trace", "--time")
    options = parser.parse(arguments)
    from embexp.system import terminal

    console = terminal.console()
    if (spec := _sweep(options, console) if is_multirun(options) else _single(options, console)) is not None:
        scan = options.scan or options.trace or options.time
        from embexp.cli import run_plan

        run_plan.show(spec, console, scan=scan, trace=options.trace, timed=options.time)
    return DONE


def _single(options: argparse.Namespace, console: Console) -> RunSpec:
    """Prints where the run would be; returns its spec."""
    from embexp.config import composition, hydra_job
    from embexp.records import outputs
    from embexp.records.folder import RunFolder
    from embexp.specs.running import Existing
    from embexp.system import terminal

    job = composition.job(config_loader(options), options.overrides)
    environment.choose_kernels(portable=job.spec.strategy.portable and (options.trace or options.time))
    environment.begin_collecting()
    config = job.composition.config
    place, dated = hydra_job.run_directory(config), hydra_job.is_dated(config)
    existing = Existing.NUMBER if dated else job.spec.output.existing
    where = outputs.foreseen_directory(place, RunFolder(place).located(job.spec).model_dump(mode="json"), existing)
    outside = composition.elsewhere(job.composition, composition.IN_RUNS)
    terminal.say(console, f"writes    {f'{place}, named after its start time' if dated else where}{outside}")
    return job.spec


def _sweep(options: argparse.Namespace, console: Console) -> RunSpec | None:
    """Prints the jobs of a sweep; returns the spec of the first one that would run, None if it is not known."""
    from embexp.config import hydra_job
    from embexp.records.folder import why_another
    from embexp.sweeps import engines, ledger, planning
    from embexp.sweeps.sweep import settled_before
    from embexp.system import files, terminal

    environment.begin_collecting()
    with terminal.shown_if_long() as progress:
        plan = planning.plan(config_loader(options), options.overrides, progress)
    if plan.jobs is None:
        lines = ["this sweeper chooses its jobs while the sweep runs"] if plan.search is None else plan.search.lines()
        for line in (*lines, *plan.notes):
            terminal.say(console, line)
        return None
    before = settled_before(plan)
    to_run = [job for job in plan.jobs if not job.skip and job.same_as is None and job.number not in before]
    portable = bool(to_run) and to_run[0].spec.strategy.portable
    environment.choose_kernels(portable=portable and (options.trace or options.time))
    place = hydra_job.sweep_directory(plan.base)
    made = place if ledger.exists(place) else files.free_directory(place)
    terminal.say(console, f"writes    {made}, the directory of the sweep{why_another(place, made)}{plan.outside}")
    keys = planning.varying([job.settings for job in plan.jobs])
    table = terminal.table(console, ["job", *keys, "note"])
    for job in plan.jobs:
        note = f"skipped: {job.skip}" if job.skip else ""
        if job.inert and not job.skip:
            note = f"no effect: {', '.join(map(planning.key_of, job.inert))}"
        if job.same_as is not None:
            note = "; ".join(filter(None, [f"duplicate of job {job.same_as}, not run again", note]))
        note = before.get(job.number, note)
        table.add_row(str(job.number), *(job.settings.get(key, "") for key in keys), note)
    console.print(table)
    for line in plan.notes:
        terminal.say(console, line)
    for line in engines.planned(plan.engine, plan.launching, [job.spec.strategy for job in to_run]):
        terminal.say(console, line)
    count = f"{len(to_run)} of {plural(len(plan.jobs), 'job')} would run"
    console.print(f"{count}; the first:" if to_run else count, markup=False, highlight=False)
    console.print()
    return to_run[0].spec if to_run else None
