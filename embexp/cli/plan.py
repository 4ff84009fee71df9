"""`embexp plan`: what a run would take. Allocates nothing and imports no TensorFlow."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser, add_config_arguments
from embexp.cli.commands import DONE

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.freezing.policies import TablePolicy
    from embexp.pretrained.aligned import Pretrained
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
    _show(spec, terminal.console(), scan=options.scan or options.trace, trace=options.trace)


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
    _show(to_run[0].spec, console, scan=options.scan or options.trace, trace=options.trace)


def _show(spec: RunSpec, console: Console, *, scan: bool, trace: bool) -> None:
    from rich import box

    from embexp.cli import planned_run, planned_study
    from embexp.cli.planned_run import Sizes
    from embexp.pretrained import dims, heads
    from embexp.reports import coverage
    from embexp.specs.studies import NoStudy

    if not isinstance(spec.study, NoStudy):
        planned_study.show(spec, console, scan=scan)
        return
    if not scan:
        planned_run.show(spec, Sizes(heads.rows(spec), heads.dims(spec.pretrained, spec.tables)), console)
        return
    rows, found, policies_of = _scanned(spec)
    settled = dims.with_dims(spec, found)
    sizes = Sizes(rows, {name: table.width for name, table in settled.tables.items()})
    planned_run.show(spec, sizes, console, settled=settled, policies=policies_of(settled))
    content = found.as_json()
    if (table := coverage.table(content, box.SIMPLE_HEAD if console.is_terminal else None)) is not None:
        console.print()
        console.print(table)
    for note in (note for table in found.tables.values() for note in table.notes):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for name, why in content["unfit"].items():
        console.print(f"no effect: pretrained on tables.{name}: {why}", markup=False, highlight=False, soft_wrap=True)
    if trace:
        _trace(spec, console)


def _trace(spec: RunSpec, console: Console) -> None:
    from rich.console import Console

    from embexp.cli.stages import Stages
    from embexp.system import environment

    environment.load_tensorflow()
    from embexp.cli import traced_run
    from embexp.runs import tracing

    stages = Stages(Console(stderr=True))
    try:
        traced = tracing.trace(spec, say=stages)
    finally:
        stages.close()
    traced_run.show(traced, console)


def _scanned(
    spec: RunSpec,
) -> tuple[Mapping[str, int | None], Pretrained, Callable[[RunSpec], Mapping[str, TablePolicy]]]:
    """Rows of each table after reading the data, what pretrained files have for them, and what gives the policies."""
    from rich.console import Console

    from embexp.cli.stages import Stages
    from embexp.data.columns import columns_of
    from embexp.data.scan import scan
    from embexp.freezing import policies
    from embexp.pretrained.aligned import align
    from embexp.specs import resolution
    from embexp.system import places

    columns, shared = columns_of(spec.data, spec.features)
    stages = Stages(Console(stderr=True))
    try:
        cache = places.cache(spec.output.cache)
        found = scan(spec.data, columns, cache=cache, progress=stages)
        vocabularies = {name: found.vocabularies[shared[name]] for name in spec.tables}
        sizes = {name: table.vocabulary_size or vocabularies[name].size for name, table in spec.tables.items()}
        given = align(spec, vocabularies, sizes, cache=cache, say=stages)
    finally:
        stages.close()
    rows = sizes | {name: table.rows for name, table in given.tables.items()}

    def policies_of(settled: RunSpec) -> Mapping[str, TablePolicy]:
        return policies.settle(
            settled,
            {
                name: policies.row_facts(vocabularies[name], rows[name], given.tables.get(name))
                for name in settled.tables
            },
            given,
            steps_per_epoch=len(found.splits["train"]) / spec.train.batch_size,
            runtime=resolution.runtime_of(settled),
        )

    return dict(rows), given, policies_of
