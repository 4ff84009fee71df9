"""`embexp plan`: what a run would take. Allocates nothing and imports no TensorFlow."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from embexp.cli.arguments import Parser, composing
from embexp.cli.commands import DONE
from embexp.specs.run import RunSpec

USAGE = "embexp plan [OVERRIDES] [-m] [--scan] [--config-dir DIR]"

HELP = f"""\
usage: {USAGE}

Shows what `embexp run` with the same words would do: the tables with the bytes of their parameters and of their
optimizers' slots, which settings are a table's own, the features, settings without effect; with -m, the jobs.
The config is checked as for a run. Nothing is allocated and nothing is written.

    --scan    read the data (once; it is kept for the run) to know the size of each vocabulary
    the rest: embexp run --help
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("plan", USAGE)
    composing(parser)
    parser.add_argument("--scan", action="store_true")
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
    from embexp import composition, terminal
    from embexp.cli import planned_run

    spec = composition.job(composition.loader(options.config_dir, options.config_name), options.overrides).spec
    planned_run.show(spec, _scanned(spec) if options.scan else planned_run.known_rows(spec), terminal.console())


def _sweep(options: argparse.Namespace) -> None:
    from embexp import composition, terminal
    from embexp.cli import planned_run
    from embexp.sweeps import outcomes, planned

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
    first = to_run[0].spec
    planned_run.show(first, _scanned(first) if options.scan else planned_run.known_rows(first), console)


def _scanned(spec: RunSpec) -> Mapping[str, int | None]:
    """Rows of each table after reading the data."""
    from rich.console import Console

    from embexp import places
    from embexp.cli.stages import Stages
    from embexp.data.columns import columns_of
    from embexp.data.scan import scan

    columns, shared = columns_of(spec.data, spec.features)
    stages = Stages(Console(stderr=True))
    try:
        found = scan(spec.data, columns, cache=Path(places.cache(spec.output.cache)), progress=stages)
    finally:
        stages.close()
    return {name: table.vocabulary_size or found.vocabularies[shared[name]].size for name, table in spec.tables.items()}
