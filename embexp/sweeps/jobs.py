"""One job of a sweep: run in this process, as the ledger has planned it, and its outcome."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embexp.errors import EmbexpError, RunError
from embexp.sweeps import failures, locks, outcomes, progress_file
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome, Status
from embexp.system import environment, files

LOCK = ".lock"
_PATIENCE = 15.0
"""Seconds that a job waits for an earlier process in its directory, which was killed with its sweep, to be gone."""


def run_recorded(sweep: str | Path, number: int) -> Outcome:
    """Runs a job of a sweep in this process, and notes in the ledger how it begins and ends.

    For launchers that start processes of their own, here or on other machines: nothing but the sweep's directory has
    to be passed. The process must not have used TensorFlow, as its devices and threads can't change later; output
    goes to the job's run.log. A job that an earlier process has begun goes on from its newest checkpoint; one that is
    done is not repeated.

    Args:
        sweep: directory of the sweep.
        number: of the job.

    Returns:
        How the job ended. A failure is an outcome, not an exception.

    Raises:
        RunError: the directory has no ledger, or the ledger has no such job.
    """
    directory = Path(sweep)
    with Ledger(directory) as ledger:
        job = ledger.job(number)
        if job.same_as is not None:
            job = ledger.job(job.same_as)
        if job.state.is_settled:
            return outcome(directory, ledger.job(number))
        ledger.begin(job.number, time.time())
        place = made_directory(directory, job)
        with (
            (place / "run.log").open("a", encoding="utf-8", buffering=1) as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            status = execute(directory, job)
        return settle(ledger, job.number, status)


def execute(sweep: Path, job: LedgerJob) -> int:
    """Trains a job in this process, from its newest checkpoint if it has one.

    Args:
        sweep: directory of the sweep.
        job: of the ledger, which is left as it is.

    Returns:
        The exit status of the process: 0, or another one if the job failed.
    """
    directory = made_directory(sweep, job)
    try:
        with locks.held(directory / LOCK, f"job {job.number} in {directory}", patience=_PATIENCE):
            (directory / failures.NAME).unlink(missing_ok=True)
            _train(directory, job.spec)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return failures.INTERRUPTED
    except EmbexpError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        failures.note(directory, error)
        return 1
    except Exception as error:
        traceback.print_exc()
        failures.note(directory, error)
        return 1
    return 0


def _train(directory: Path, spec_json: str) -> None:
    environment.load_tensorflow()
    from rich.console import Console

    from embexp.records.folder import RunFolder
    from embexp.specs.run import RunSpec
    from embexp.studies import report
    from embexp.studies import run as studies
    from embexp.training.progress import ProgressLines

    console = Console(file=sys.stdout, width=160)

    def say(sentence: str) -> None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    reached = progress_file.ProgressFile(directory)
    spec = RunSpec.model_validate_json(spec_json)
    if RunFolder(directory).spec.exists():
        result = studies.resume(
            directory, listeners=lambda: [ProgressLines(console), reached], progress=reached, announce=say, say=say
        )
    else:
        result = studies.run(
            spec, directory, listeners=lambda: [ProgressLines(console), reached], progress=reached, announce=say
        )
    console.print(report.terminal_report(result.summary, directory))


def settle(ledger: Ledger, number: int, exit_status: int, *, reason: str = "") -> Outcome:
    """Notes in the ledger how a job's process ended.

    Args:
        ledger: of the sweep.
        number: of the job.
        exit_status: of its process; negative: minus the signal that ended it.
        reason: why it failed, where that is known better than by the job, such as a time limit; else "".
    """
    directory = job_directory(ledger.directory, ledger.job(number))
    status, found = outcomes.ending(directory, exit_status)
    if reason and not status.has_results:
        status, found = Status.FAILED, reason
    run_id = outcomes.read_summary(directory).get("run_id") if status.has_results else None
    ledger.end(number, status, time.time(), reason=found, run_id=run_id)
    (directory / progress_file.NAME).unlink(missing_ok=True)
    return outcome(ledger.directory, ledger.job(number))


def summary_of(sweep: Path) -> dict[str, Any]:
    """The `status` of a sweep, completed, interrupted or failed, and the outcomes of its `jobs` by number.

    Raises:
        RunError: the directory has no ledger.
    """
    with Ledger(sweep) as ledger:
        found = [outcome(sweep, job) for job in ledger.jobs()]
    states = {each.status for each in found}
    status = Status.COMPLETED if all(each.is_settled for each in states) else Status.INTERRUPTED
    if Status.FAILED in states:
        status = Status.FAILED
    return {"status": status.value, "jobs": [each.as_json() for each in found]}


def outcome(sweep: Path, job: LedgerJob) -> Outcome:
    """The outcome of a job, with its metrics if it has ended normally."""
    summary = outcomes.read_summary(job_directory(sweep, job)) if job.state.has_results else {}
    compare = json.loads(job.spec).get("output", {}).get("compare", ())
    reason = job.reason
    if job.same_as is not None:
        reason = f"the same as job {job.same_as}" + (f": {reason}" if reason else "")
    return Outcome(
        job.number,
        job.settings,
        job.state,
        reason,
        None if job.directory is None or not (job.attempts or job.state.has_results) else sweep / job.directory,
        job.seconds,
        outcomes.numbers(summary.get("metrics")),
        {key: outcomes.at(summary, key) for key in compare} if summary else {},
        job.same_as,
    )


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Within the block, no job of a sweep is run in a directory; nothing if it is not that of a job.

    Raises:
        RunError: one is.
    """
    if not (directory / LOCK).exists():
        yield
        return
    with locks.held(directory / LOCK, f"the run in {directory}", patience=_PATIENCE):
        yield


def made_directory(sweep: Path, job: LedgerJob) -> Path:
    """The directory of a job's run, made with the files that Hydra writes if they are not there yet."""
    directory = job_directory(sweep, job)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in job.hydra.items():
        if not (directory / name).exists():
            files.write_text(directory / name, text)
    return directory


def job_directory(sweep: Path, job: LedgerJob) -> Path:
    """The directory of a job's run.

    Raises:
        RunError: the job is skipped, so it has none.
    """
    if job.directory is None:
        raise RunError(f"job {job.number} of {sweep} has no directory: it is {job.state.value}")
    return sweep / job.directory
