"""Running experiments from Python: `embexp.run`, `embexp.resume` and `embexp.verify`."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from embexp.records.folder import RunFolder
from embexp.runs.run import RunResult
from embexp.specs.run import RunSpec
from embexp.studies import run as studies
from embexp.studies import verification
from embexp.studies.verification import Verification
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
    """Completes a run that was interrupted or killed, in its own directory, as `embexp resume` does.

    Args:
        directory: of the run, or of a study.
        overrides: such as `["train.epochs=40"]`, to train longer; only the length, `output` and `checkpoint` may
            change.

    Returns:
        The directory of the run and its summary: the same results as those of a run that was never interrupted.

    Raises:
        ConfigError: an override is invalid; with all faults.
        NotARunError: there is no run in the directory.
        RunError: the run can't be resumed, or fails.
    """
    folder, changed = Path(directory), None
    if overrides:
        from embexp.config import composition
        from embexp.config.changed_spec import changed_spec

        changed = changed_spec(RunFolder(folder).recorded_spec(), overrides, composition.loader())
    return studies.resume(folder, changed, listeners=lambda: [progress(Console())], say=print)


def verify(directory: str | Path, *, allow_code: Sequence[str] = (), keep: str | Path | None = None) -> Verification:
    """Runs a run, or a study, again from its record in a new process and compares the results, as `embexp verify` does.

    Args:
        directory: of the run.
        allow_code: functions that the recorded spec may run, such as `["my_models:tower"]`.
        keep: where the new run is kept; None: nowhere.

    Returns:
        Whether the results are `identical`, and all `differences`: of results, the earliest first, then of
        circumstances.

    Raises:
        NotARunError: there is no run in the directory.
        RunError: the run has not ended, can't be repeated, or fails this time.
        UsageError: the spec names code that isn't allowed, or `keep` exists.
    """
    return verification.verify(Path(directory), allow_code=allow_code, keep=None if keep is None else Path(keep))
