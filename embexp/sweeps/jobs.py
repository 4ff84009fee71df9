"""One job of a sweep: its folder, its outcome, and how a worker of another launcher runs it.

A job that a launcher of others starts, in a worker process of theirs or on another machine, reads one file of the
sweep's directory and writes into its own; the ledger stays with the process of the sweep, as SQLite is not made for
several machines. What the launcher's worker runs is a process of the job's own: TensorFlow's devices and threads can't
change in a process that has used it, and workers run one job after the other.

A scheduler may start a worker long after the sweep has given it up, as when the process of the sweep was killed and the
sweep was resumed. So each submission of a job has a number of its own in that file, and a worker with another number
runs nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from embexp.errors import RunError
from embexp.records import inventory
from embexp.records.folder import json_object
from embexp.reports.jobs import last_written
from embexp.reports.record import Status, at
from embexp.sweeps import outcomes, progress
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.system import files, locks, processes
from embexp.system.locks import FileLock

CANCEL = ".cancel"
"""File in the folder of a sweep that is to be cancelled: its process, and the workers of launchers, look for it."""
BUSY = 75
"""Exit status of a job in whose folder another process works (`EX_TEMPFAIL`)."""
_OF_HYDRA = ("config.yaml", "hydra.yaml", "overrides.yaml")
"""The files that Hydra writes for a run."""
_FOLDER = ".jobs"
_LOOK_EVERY = 1.0
"""Seconds between two looks of a worker at whether the sweep is cancelled."""
NOT_RUN = 0
"""What a worker returns that has run nothing."""


def settle(ledger: Ledger, number: int, exit_status: int, *, reason: str = "", ended: float | None = None) -> Outcome:
    """Notes in the ledger how a job's process ended.

    Args:
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
    run_id = json_object(directory / "summary.json").get("run_id") if status.has_metrics else None
    ended = time.time() if ended is None else ended
    with contextlib.suppress(FileNotFoundError):  # first: what is settled is not looked at again
        (directory / progress.PROGRESS_FILE).unlink()
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
    summary = json_object(job_directory(sweep, job) / "summary.json") if job.state.has_metrics else {}
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


@dataclass(frozen=True)
class Start:
    """One start of a job elsewhere; a scheduler may start a job again that it has preempted.

    Attributes:
        started: when, in seconds since 1970.
        ended: when; None while it runs, or if it was killed.
        exit_status: of its process; negative: minus the signal that ended it.
    """

    host: str
    process: int
    started: float
    ended: float | None = None
    exit_status: int | None = None


@dataclass(frozen=True)
class RunElsewhere:
    """What a launcher calls in its worker; it is passed there by pickle.

    Attributes:
        sweep: directory of the sweep, which worker and sweep share.
        folder: the working folder of the sweep, from which the user's own modules are imported.
        submission: see `write`.
        command: runs a job, with the sweep and the job's number as further arguments; empty: `embexp.cli.job`, with the
            Python of the worker.
    """

    sweep: str
    folder: str
    submission: str
    command: tuple[str, ...] = ()

    def __call__(self, config: Any) -> int:
        """Runs a job to its end, and returns the exit status of its process.

        Args:
            config: `job`, the number.
        """
        sweep, number = Path(self.sweep), int(config["job"])
        if submission(sweep, number) != self.submission or is_cancelled(sweep):
            return NOT_RUN
        job = submitted_job(sweep, number)
        directory = job_directory(sweep, job)
        directory.mkdir(parents=True, exist_ok=True)
        earlier = [_closed(each, directory) for each in starts(sweep, number)]
        command = [*self.command, self.sweep, str(number)]
        if not self.command:  # `-P`: no file of the folder hides a module
            command = [sys.executable, "-P", "-m", "embexp.cli.job", *command, "--elsewhere"]
        with (directory / "run.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **processes.variables()},
                start_new_session=True,  # Ctrl-C reaches the sweep alone, which passes it on
            )
        start = Start(socket.gethostname(), process.pid, time.time())
        self._note(sweep, number, [*earlier, start])
        try:
            self._wait(sweep, process)
        except BaseException:  # the launcher ends its worker, or Ctrl-C came: the job saves what is trained
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        finally:
            ended = dataclasses.replace(start, ended=time.time(), exit_status=process.returncode)
            self._note(sweep, number, [*earlier, ended])
        return process.returncode

    def _wait(self, sweep: Path, process: subprocess.Popen[bytes]) -> None:
        """Waits for the end of a job, which is asked to save its state and to end if the sweep is cancelled."""
        asked = False
        while True:
            try:
                process.wait(_LOOK_EVERY)
                return
            except subprocess.TimeoutExpired:
                if not asked and is_cancelled(sweep):
                    asked = True
                    process.send_signal(signal.SIGINT)

    def _note(self, sweep: Path, number: int, noted: Sequence[Start]) -> None:
        if submission(sweep, number) == self.submission:
            content = {"submission": self.submission, "starts": [dataclasses.asdict(each) for each in noted]}
            files.write_text(sweep / _FOLDER / f"{number}.starts.json", json.dumps(content))


def submit(sweep: Path, job: LedgerJob, submission: str) -> None:
    """Writes what a worker has to know of a job. From then on, those of earlier submissions run nothing."""
    content = {"submission": submission, "job": dataclasses.asdict(job)}
    files.write_text(sweep / _FOLDER / f"{job.number}.json", json.dumps(content))


def withdraw(sweep: Path, number: int) -> None:
    """Withdraws a job: a worker that has not begun it runs nothing."""
    (sweep / _FOLDER / f"{number}.json").unlink(missing_ok=True)


def submitted_job(sweep: Path, number: int) -> LedgerJob:
    """What `write` wrote."""
    content = json.loads((sweep / _FOLDER / f"{number}.json").read_bytes())["job"]
    content |= {"overrides": tuple(content["overrides"]), "state": Status(content["state"])}
    return LedgerJob(**content)


def submission(sweep: Path, number: int) -> str | None:
    """The number of a job's last submission; None if there is none, or it was withdrawn."""
    content = json_object(sweep / _FOLDER / f"{number}.json")
    return str(content["submission"]) if "submission" in content else None


def starts(sweep: Path, number: int) -> list[Start]:
    """The starts of a job since it was submitted last."""
    content = json_object(sweep / _FOLDER / f"{number}.starts.json")
    if content.get("submission") != submission(sweep, number):
        return []
    try:
        return [Start(**each) for each in content["starts"]]
    except (KeyError, TypeError):
        return []


def _closed(start: Start, directory: Path) -> Start:
    """A start whose worker was killed before it could note the end: that is when the job last wrote something."""
    return dataclasses.replace(start, ended=start.ended or max(start.started, last_written(directory)))
