"""`embexp run`: one experiment, or a sweep over several."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from embexp.cli.arguments import Parser, composing
from embexp.cli.commands import DONE, FAILED
from embexp.errors import CommandLineError

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec

USAGE = "embexp run [OVERRIDES] [-m] [--config-dir DIR] [--cfg job|hydra|all]"

HELP = f"""\
usage: {USAGE}

Composes a config, checks it and runs the experiment. Nothing is written before the config is right.

overrides
    model=mlp                                choose another file of a group
    optimizer.learning_rate=0.01             set a value
    optimizer@tables.item.optimizer=adam     choose for one table alone; likewise init, freeze, pretrained
    +model.args.width=64                     add a key (it must be one that a config may have)
    ~features.history                        take a key out
    hydra.run.dir=DIR                        where the run lies; hydra.sweep.dir=DIR of a sweep

flags
    -m, --multirun         run once for each combination of the values: optimizer=sgd,adam 'data.fold=range(0,5)'
    -cd, --config-dir DIR  a folder of your own configs: it extends the shipped groups, and its files come first
    -cn, --config-name N   start from N.yaml instead of config.yaml
    -c, --cfg WHAT         only show the config: job (the experiment's), hydra or all
    -p, --package PART     with --cfg: only this part, such as tables.item
    --resolve              with --cfg: with interpolations resolved

exit status: 0 done, 1 the run failed, 2 the config or the command line is wrong

groups and their choices
"""


class Result(Protocol):
    """What a run gives back."""

    @property
    def status(self) -> str:
        """How it ended."""
        ...


Runner = Callable[["RunSpec", Path], Result]
"""Runs a spec in a directory that exists."""


def main(arguments: Sequence[str], *, runner: Runner | None = None) -> int:
    """Runs the command.

    Args:
        arguments: the words after `run`.
        runner: runs a single experiment; None: `embexp.runs.run`.
    """
    options = _parse(arguments)
    if options.help:
        from embexp.cli.groups import listing
        from embexp.config import folders

        print(HELP + listing(folders.find(Path(options.config_dir) if options.config_dir else None)))
        return DONE
    if options.cfg is not None:
        from embexp.cli.show_config import show

        return show(options)
    if options.package is not None or options.resolve:
        raise CommandLineError("--package and --resolve say what --cfg shows: add --cfg job")
    if options.multirun:
        from embexp.sweeps.sweep import sweep

        succeeded = sweep(options.overrides, config_dir=options.config_dir, config_name=options.config_name)
        return DONE if succeeded else FAILED
    return _single(options, runner or _with_progress)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("run", USAGE)
    composing(parser)
    parser.add_argument("-r", "--run", action="store_true")  # Hydra's word for what is done anyway
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.add_argument("--resolve", action="store_true")
    options = parser.parse_intermixed_args(list(arguments))
    if options.multirun and (options.run or options.cfg):
        raise CommandLineError(f"-m runs several experiments, {'--run' if options.run else '--cfg'} is about one")
    return options


def _single(options: argparse.Namespace, runner: Runner) -> int:
    from embexp.config import composition, record
    from embexp.specs import notes
    from embexp.system import files

    job = composition.job(composition.loader(options.config_dir, options.config_name), options.overrides)
    directory = files.new_directory(record.run_directory(job.composition.config))
    record.write(job.composition.config, directory)
    print(f"{job.spec.name} in {directory}", flush=True)
    for warning in notes.doubtful(job.spec):
        print(f"warning: {warning}", flush=True)
    result = runner(job.spec, directory)
    return FAILED if result.status in ("interrupted", "failed") else DONE


def _with_progress(spec: RunSpec, directory: Path) -> Result:
    """Runs, shows how it goes and what it came to, and keeps both in run.log."""
    from embexp.errors import EmbexpError

    with (directory / "run.log").open("a", encoding="utf-8", buffering=1) as log:
        try:
            result = _shown(spec, directory, log)
        except EmbexpError as error:
            log.write(f"error: {error}\n")
            raise
    sys.stdout.flush()
    return result


def _shown(spec: RunSpec, directory: Path, log: TextIO) -> Result:
    from embexp.strategies import tpu_address
    from embexp.system import environment

    tpu_address.check_strategy(spec.strategy)  # that there is no TPU can be told before TensorFlow is there
    environment.load_tensorflow()
    from rich.console import Console

    from embexp.cli.stages import Stages
    from embexp.studies import run as studies
    from embexp.studies import shown
    from embexp.training.progress import ProgressLines, progress

    terminal = Console()
    stages = Stages(terminal)
    file = Console(file=log, width=160)

    def announce(words: str) -> None:
        stages.close()
        for console in (terminal, file):
            console.print(f"\n{words}", style="bold", markup=False, highlight=False, soft_wrap=True)

    try:
        result = studies.run(
            spec,
            directory,
            listeners=lambda: [stages, progress(terminal), ProgressLines(file)],
            progress=stages,
            announce=announce,
        )
    finally:
        stages.close()
    for console in (terminal, file):
        console.print(shown.of(result.summary, directory))
    return result
