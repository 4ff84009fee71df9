"""Running experiments from Python: `embexp.run` and `embexp.resume`."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from embexp.records.folder import RunFolder
from embexp.runs.run import RunResult
from embexp.specs.run import RunSpec
from embexp.studies import run as studies
from embexp.sweeps import jobs, ledger
from embexp.system import files
from embexp.training.progress import progress


def run(spec: RunSpec, directory: str | Path | None = None) -> RunResult:
    """Runs an experiment, or all runs of a study.

    Args:
        spec: from `embexp.compose`.
        directory: of the run; None: `outputs/DATE/TIME`. An existing directory is never written to: the run then gets
            the next free name, `…_2`.

    Returns:
        The directory of the run and its summary.

    Raises:
        RunError: the run fails for a reason in the data, a file or the machine.
    """
    if directory is None:
        directory = Path("outputs") / f"{datetime.datetime.now():%Y-%m-%d/%H-%M-%S}"
    return studies.run(spec, files.new_directory(Path(directory)), listeners=lambda: [progress(Console())])


def resume(directory: str | Path, overrides: Sequence[str] = ()) -> RunResult:
    """Completes a run, or a sweep, that was interrupted or killed, in its own directory, as `embexp resume` does.

    Args:
        directory: of the run, of a study, or of a sweep.
        overrides: such as `["train.epochs=40"]`, to train longer; only the length, `output` and `checkpoint` may
            change. Of a sweep, only `hydra.launcher`.

    Returns:
        The directory of the run and its summary: the same results as those of a run that was never interrupted. The
        summary of a sweep has its `status` (completed, interrupted or failed) and its `jobs`, as `sweep.json` has them.

    Raises:
        ConfigError: an override is invalid; with all faults.
        NotARunError: there is no run in the directory.
        RunError: the run can't be resumed, or fails.
    """
    folder, changed = Path(directory), None
    if ledger.exists(folder):
        from embexp.sweeps import resuming

        resuming.resume(folder, overrides)
        return RunResult(folder, jobs.summary_of(folder))
    if overrides:
        from embexp.config import composition
        from embexp.config.changed_spec import changed_spec

        changed = changed_spec(RunFolder(folder).recorded_spec(), overrides, composition.loader())
    return studies.resume(folder, changed, listeners=lambda: [progress(Console())], say=print)
