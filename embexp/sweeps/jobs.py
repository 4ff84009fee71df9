"""One job of a sweep: run in this process, as the ledger has planned it, and its outcome."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path, PurePath
from typing import Any

from embexp.errors import RunError
from embexp.records import inventory
from embexp.reports.query import at
from embexp.reports.record import Status
from embexp.sweeps import outcomes, progress_file
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.system import files, locks
from embexp.system.locks import FileLock

CANCEL = ".cancel"
"""File in the folder of a sweep that is to be cancelled: its process, and the workers of launchers, look for it."""
BUSY = 75
"""Exit status of a job in whose folder another process works (`EX_TEMPFAIL`)."""
_OF_HYDRA = ("config.yaml", "hydra.yaml", "overrides.yaml")
"""The files that Hydra writes for a run."""


def settle(ledger: Ledger, number: int, exit_status: int, *, reason: str = "", ended: float | None = None) -> Outcome:
    """Notes in the ledger how a job's process ended.

    Args:
        ledger: of the sweep.
        number: of the job.
        exit_status: of its process; negative: minus the signal that ended it.
        reason: why it failed, where that is known better than by the job, such as a time limit; else "".
        ended: when it did, in seconds since 1970; None: now.
    """
    directory = job_directory(ledger.directory, ledger.job(number))
    status, found = outcomes.ending(directory, exit_status)
    if reason and not status.has_results:
        status, found = Status.FAILED, reason
    if status is Status.INTERRUPTED and is_cancelled(ledger.directory):
        status = Status.CANCELLED
    run_id = outcomes.read_summary(directory).get("run_id") if status.has_metrics else None
    ended = time.time() if ended is None else ended
    with contextlib.suppress(FileNotFoundError):  # first: what is settled is not looked at again
        (directory / progress_file.NAME).unlink()
        files.to_disk(directory)
    ledger.end(number, status, ended, reason=found, run_id=run_id, inventory=inventory.digest_of(directory))
    return outcome(ledger.directory, ledger.job(number))


def is_cancelled(sweep: Path) -> bool:
    """Whether a sweep is to be cancelled."""
    return (sweep / CANCEL).exists()


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
    summary = outcomes.read_summary(job_directory(sweep, job)) if job.state.has_metrics else {}
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
        {key: at(summary, key) for key in compare} if summary else {},
        job.same_as,
    )


def lock(sweep: Path, job: LedgerJob) -> FileLock:
    """The lock of a job's run: the process that trains it holds it.

    Raises:
        RunError: see `job_directory`.
    """
    directory = job_directory(sweep, job)
    return locks.of_folder(directory, f"job {job.number} in {directory}")


def made_directory(sweep: Path, job: LedgerJob) -> Path:
    """The directory of a job's run, made with the files that Hydra writes if they are not there yet.

    Raises:
        RunError: the ledger, which may come from anywhere, names other files than those.
    """
    directory = job_directory(sweep, job)
    if wrong := [name for name in job.hydra if not _is_below(name) or PurePath(name).name not in _OF_HYDRA]:
        raise RunError(f"{sweep}: its ledger is damaged: job {job.number} has a file {wrong[0]!r}")
    files.make_directories(directory)
    for name, text in job.hydra.items():
        if not (directory / name).exists():
            files.write_text(directory / name, text)
    return directory


def job_directory(sweep: Path, job: LedgerJob) -> Path:
    """The directory of a job's run.

    Raises:
        RunError: the job is skipped, so it has none; or the ledger names one that is not in the sweep's.
    """
    if job.directory is None:
        raise RunError(f"job {job.number} of {sweep} has no directory: it is {job.state.value}")
    if not _is_below(job.directory):
        raise RunError(f"{sweep}: its ledger is damaged: job {job.number} has the directory {job.directory!r}")
    return sweep / job.directory


def _is_below(name: str) -> bool:
    path = PurePath(name)
    return not path.is_absolute() and ".." not in path.parts
