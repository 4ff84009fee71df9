"""`embexp resume`: completes a run, or a sweep, that was interrupted or killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli import commands, workers
from embexp.cli.arguments import WHICH_RUN, Parser
from embexp.cli.commands import DONE, FAILED, exit_status
from embexp.errors import WorkerLostError
from embexp.sweeps import ledger
from embexp.system import environment

if TYPE_CHECKING:
    from embexp.records.folder import RunFolder
    from embexp.runs.run import RunResult
    from embexp.specs.run import RunSpec

HELP = """\
usage: embexp resume DIR [OVERRIDES] [--allow-code MODULE:FUNCTION]

Completes a run from its newest complete checkpoint, in its own directory. Tables, slots, model and metrics end as if
the run had never been interrupted. Without a checkpoint, the run starts again. If it was killed after training, only
the remaining files are written. A finished run stays unchanged unless an override makes it longer. If files of the run
were changed since, it is refused.

In the directory of a sweep, the jobs are completed as they were planned, even if YAML files have changed. Finished jobs
are kept, interrupted and cancelled jobs continue from their newest checkpoints, and failed jobs run again. The command
waits for jobs that are queued on a cluster or that another process runs.

    --allow-code MODULE:FUNCTION             Allows code that the folder names, such as your own model. You can repeat
                                             it.

If the folder names other machines, they are used only if the environment names them, too: a tracking server by
MLFLOW_TRACKING_URI or WANDB_MODE=online, a TPU by TPU_NAME, the database of a search by OPTUNA_STORAGE.

overrides of a run
    train.epochs=40, train.steps=100000      Trains longer.
    output.KEY=VALUE, checkpoint.KEY=VALUE   Changes which files are written, but no result.

overrides of a sweep
    hydra.launcher.KEY=VALUE                 Changes the number of parallel jobs, the time limit or the retries.

    embexp resume outputs/2026-01-31/12-00-00
    embexp resume outputs/2026-01-31/12-00-00_sweep hydra.launcher.jobs=2
    embexp resume outputs/2026-01-31/12-00-00 train.epochs=40

The exit status is 0 on success, 1 if the run or a job failed, and 2 if the command line is invalid. If Ctrl-C, SIGTERM
or SIGHUP interrupts the command, it is 130, 143 or 129.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser.of_run("resume", HELP)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse(arguments)
    directory = Path(options.directory)
    if "=" in options.directory and not directory.exists():
        raise parser.incomplete(WHICH_RUN)
    if ledger.exists(directory):
        from embexp.sweeps.sweep import resume

        return DONE if resume(directory, options.overrides, allow_code=options.allow_code) else FAILED
    from embexp.records.folder import RunFolder, check_code, named_functions

    folder = RunFolder(directory)
    folder.check(folder.spec, folder.summary, folder.coverage)  # before TensorFlow is loaded
    led = folder.recorded_spec()
    environment.choose_kernels(portable=led.strategy.portable)
    if workers.is_led(led.strategy):
        check_code(named_functions(led), options.allow_code, record=folder.spec)
        changed = _changed(folder, options.overrides)  # as worker 0 does, which has the same command
        return workers.follow(changed or led, None if changed else directory)
    try:
        with workers.telling(led.strategy):
            return exit_status(resume_run(directory, options.overrides, options.allow_code))
    except WorkerLostError as error:
        return workers.restart(error, led.strategy, directory, options.allow_code)


def _changed(folder: RunFolder, overrides: Sequence[str]) -> RunSpec | None:
    """The spec of a run with overrides, such as `train.epochs=40`; None: there are none.

    Raises:
        ConfigError: with all faults.
    """
    if not overrides:
        return None
    from embexp.config import composition

    return composition.changed_spec(folder.recorded_spec().model_dump(mode="json"), overrides, composition.loader())


def resume_run(directory: Path, overrides: Sequence[str], allow_code: Sequence[str]) -> RunResult:
    """Completes a run, or a study, with progress and results on the terminal and in run.log."""
    from embexp.cli.stages import Shown, logged
    from embexp.records.folder import RunFolder, check_code, named_functions
    from embexp.specs import tracking

    folder = RunFolder(directory)
    recorded = folder.recorded_spec()
    check_code(named_functions(recorded), allow_code, record=folder.spec)  # before TensorFlow is loaded
    tracking.check_addresses([recorded], folder.spec)
    changed = _changed(folder, overrides)

    def execute(shown: Shown) -> RunResult:
        from embexp.runs import experiment

        return experiment.resume(directory, changed, allow_code=allow_code, observer=shown.observer)

    with folder.writing(warn=commands.warn):
        return logged(recorded.strategy, directory, execute)
