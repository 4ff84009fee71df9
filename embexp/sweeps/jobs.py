"""One job of a sweep: its folder, how it ended and why, and how a worker of another launcher runs it.

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
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from embexp.errors import ConfigError, DataError, EmbexpError, RunError, WorkerLostError
from embexp.records import inventory
from embexp.records.folder import json_object
from embexp.reports.jobs import last_written
from embexp.reports.record import Status, at
from embexp.sweeps import processes
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.system import files, interruption, locks, machine_faults, slurm
from embexp.system.locks import FileLock
from embexp.system.printable import masked

CANCEL = ".cancel"
"""File in the folder of a sweep that is to be cancelled: its process, and the workers of launchers, look for it."""
OTHER_DIRECTORY = "choose another hydra.sweep.dir, or start a new sweep in the next free folder with --fresh"
"""What to do if a folder has another sweep."""
BUSY = 75
"""Exit status of a job in whose folder another process works (`EX_TEMPFAIL`)."""
_OF_HYDRA = ("config.yaml", "hydra.yaml", "overrides.yaml")
"""The files that Hydra writes for a run."""
_FOLDER = ".jobs"
_LOOK_EVERY = 1.0
"""Seconds between two looks of a worker at whether the sweep is cancelled."""
NOT_RUN = 0
"""What a worker returns that has run nothing."""
INTERRUPTED = 130
"""Exit status of a job that was interrupted before it could save anything."""
PROGRESS_FILE = ".progress.json"
FAILURE_FILE = "failure.json"
_INTERRUPTIONS = (*interruption.STATUSES, *(-number for number in interruption.NUMBERS))


@dataclass(frozen=True)
class Outcome:
    """How one job ended, and its metrics.

    Attributes:
        number: from 0.
        overrides: key and value as text.
        reason: why it failed or was skipped, or "".
        directory: of the run; None if the job was not started.
        seconds: seconds from start to end; None if the job was not started.
        metrics: by split and name, such as "test rmse".
        compared: value in summary.json of each key of `output.compare`; None if it has no such key.
        same_as: number of the earlier job that it duplicates, or None.
    """

    number: int
    overrides: Mapping[str, str]
    status: Status
    reason: str = ""
    directory: Path | None = None
    seconds: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    compared: Mapping[str, Any] = field(default_factory=dict)
    same_as: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The outcome as a JSON value."""
        return asdict(self) | {
            "status": self.status.value,
            "directory": None if self.directory is None else str(self.directory),
            "seconds": None if self.seconds is None else round(self.seconds, 3),
        }


def outcome(sweep: Path, job: LedgerJob) -> Outcome:
    """The outcome of a job, with its metrics if it has ended normally."""
    summary = json_object(job_directory(sweep, job) / "summary.json") if job.state.has_metrics else {}
    compare = json.loads(job.spec).get("output", {}).get("compare", ()) if summary else ()
    reason = job.reason
    if job.same_as is not None:
        reason = f"duplicate of job {job.same_as}" + (f": {reason}" if reason else "")
    return Outcome(
        job.number,
        job.settings,
        job.state,
        reason,
        None if job.directory is None or not (job.attempts or job.state.has_results) else sweep / job.directory,
        job.seconds,
        _numbers(summary.get("metrics")),
        {key: at(summary, key) for key in compare},
        job.same_as,
    )


def _numbers(metrics: Any) -> dict[str, float]:
    """Metrics of the test and validation splits, in this order."""
    found = {}
    for split in ("test", "validation"):
        values = metrics.get(split) if isinstance(metrics, dict) else None
        for name, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, int | float):
                found[f"{split} {name}"] = float(value)
    return found


def summary_of(sweep: Path) -> dict[str, Any]:
    """The `status` of a sweep, completed, interrupted or failed, and the outcomes of its `jobs` by number.

    Raises:
        RunError: the directory has no ledger.
    """
    with Ledger(sweep) as ledger:
        found = [outcome(sweep, job) for job in ledger.jobs()]
    states = {each.status for each in found}
    status = Status.COMPLETED if all(state.is_settled for state in states) else Status.INTERRUPTED
    status = Status.FAILED if Status.FAILED in states else status
    return {"status": status.value, "jobs": [each.as_json() for each in found]}


def ending(directory: Path, exit_status: int | None) -> tuple[Status, str]:
    """How the process of a job left its directory: the status, and the reason of a failure.

    Args:
        exit_status: of its process; negative: minus the signal that ended it; None: it is not known, and the last file
            of a run tells whether it has ended.
    """
    if exit_status in _INTERRUPTIONS or (exit_status is None and inventory.digest_of(directory) is None):
        return Status.INTERRUPTED, ""
    known = json_object(directory / "summary.json").get("status")
    status = next((each for each in Status if each.value == known), Status.FAILED)
    if status is Status.FAILED or exit_status:
        return Status.FAILED, _why(directory, exit_status or 0)
    return status, ""


def loss(sweep: Path, job: LedgerJob) -> str:
    """Why a job that has ended must run again: its results, or the folder of a failed one, are gone; "" if not."""
    had_folder = job.state.has_results or (job.state is Status.FAILED and job.attempts > 0)
    if not had_folder or job.same_as is not None:
        return ""
    directory = job_directory(sweep, job)
    if not directory.is_dir():
        return f"its folder {directory} is missing"
    if job.state is Status.FAILED:
        return ""
    try:
        lost = inventory.lost_results(directory)
    except DataError:  # which the report shows, and `embexp verify`
        lost = ()
    if lost:
        return f"{', '.join(lost)} is missing in {directory}"
    known = json_object(directory / "summary.json").get("status")
    return "" if known in list(Status) else f"{directory / 'summary.json'} is damaged"


def settle(ledger: Ledger, number: int, exit_status: int, *, reason: str = "", ended: float | None = None) -> Outcome:
    """Notes in the ledger how a job's process ended.

    Args:
        exit_status: of its process; negative: minus the signal that ended it.
        reason: why it failed, where that is known better than by the job, such as a time limit; else "".
        ended: when it did, in seconds since 1970; None: now.
    """
    directory = job_directory(ledger.directory, ledger.job(number))
    status, found = ending(directory, exit_status)
    if reason and not status.has_results:
        status, found = Status.FAILED, reason
    if status is Status.INTERRUPTED and is_cancelled(ledger.directory):
        status = Status.CANCELLED
    run_id = json_object(directory / "summary.json").get("run_id") if status.has_metrics else None
    ended = time.time() if ended is None else ended
    with contextlib.suppress(FileNotFoundError):  # first: what is settled is not looked at again
        (directory / PROGRESS_FILE).unlink()
        files.to_disk(directory)
    ledger.end(number, status, ended, reason=found, run_id=run_id, inventory=inventory.digest_of(directory))
    return outcome(ledger.directory, ledger.job(number))


def note_failure(directory: Path, error: BaseException) -> None:
    """Writes why a job fails, so that its sweep can say so in one sentence."""
    content = {
        "error": type(error).__name__,
        "reason": failure_sentence(error),
        "crash": machine_faults.is_memory(error) or isinstance(error, WorkerLostError),
    }
    with contextlib.suppress(OSError):  # what can't be noted is the last line of the log
        files.write_text(directory / FAILURE_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def failure_sentence(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, ConfigError):
        return "; ".join(f"{fault.path or 'config'} = {fault.value}: {fault.rule}" for fault in error.faults)
    text = masked(" ".join(str(error).split()))
    if isinstance(error, EmbexpError):
        return text
    return machine_faults.sentence(error) or f"{type(error).__name__}: {text}".removesuffix(": ")


def is_crash(directory: Path, exit_status: int) -> bool:
    """Whether a job's process crashed, rather than finding a fault in its config, its data or the user's code."""
    noted = json_object(directory / FAILURE_FILE)
    return bool(noted.get("crash")) if noted else exit_status != 0


def _why(directory: Path, exit_status: int) -> str:
    """The reason of a failure: as the job noted it, or by its exit status and the last line of its log."""
    if noted := json_object(directory / FAILURE_FILE):
        return str(noted.get("reason"))
    if exit_status < 0:
        hint = " (out of memory?)" if exit_status == -signal.SIGKILL else ""
        return f"ended by signal {-exit_status}{hint}"
    try:
        log = (directory / "run.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        log = ""
    last = f"; the last line of its log: {log.strip().splitlines()[-1].strip()}" if log.strip() else ""
    return f"exit status {exit_status}{last}"


def is_cancelled(sweep: Path) -> bool:
    """Whether a sweep is to be cancelled."""
    return (sweep / CANCEL).exists()


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
        submission: see `submit`.
        command: runs a job, with the sweep and the job's number as further arguments; empty: `embexp.cli.job`, with the
            Python of the worker.
    """

    sweep: str
    folder: str
    submission: str
    command: tuple[str, ...] = ()

    def __call__(self, config: Any) -> int:
        """Runs a job to its end, and returns the exit status of its process.

        Of several tasks of Slurm's, each runs a worker of the job, and that of worker 0 notes what becomes of it.

        Args:
            config: `job`, the number.
        """
        sweep, number = Path(self.sweep), int(config["job"])
        if submission(sweep, number) != self.submission or is_cancelled(sweep):
            return NOT_RUN
        directory = job_directory(sweep, submitted_job(sweep, number))
        directory.mkdir(parents=True, exist_ok=True)
        command = [*self.command, self.sweep, str(number)]
        if not self.command:
            command = [*processes.own_command(sweep, number), "--elsewhere"]
        if task := slurm.task(os.environ):
            process = processes.start(command, log=directory / f"worker-{task}.log", folder=Path(self.folder))
            self._wait(sweep, process)
            return process.returncode
        # The worker of a start without an end was killed before it could note that: when the job last wrote something.
        earlier = [
            dataclasses.replace(each, ended=each.ended or max(each.started, last_written(directory)))
            for each in starts(sweep, number)
        ]
        process = processes.start(command, log=directory / "run.log", folder=Path(self.folder))
        start = Start(socket.gethostname(), process.pid, time.time())
        self._note(sweep, number, [*earlier, start])
        try:
            self._wait(sweep, process)
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
            except BaseException:  # the launcher ends its worker, or Ctrl-C came: the job saves what is trained
                process.send_signal(signal.SIGINT)
                process.wait()
                raise

    def _note(self, sweep: Path, number: int, noted: Sequence[Start]) -> None:
        if submission(sweep, number) == self.submission:
            content = {"submission": self.submission, "starts": [asdict(each) for each in noted]}
            files.write_text(sweep / _FOLDER / f"{number}.starts.json", json.dumps(content))


def submit(sweep: Path, job: LedgerJob, submission: str) -> None:
    """Writes what a worker has to know of a job. From then on, those of earlier submissions run nothing."""
    content = {"submission": submission, "job": asdict(job)}
    files.write_text(sweep / _FOLDER / f"{job.number}.json", json.dumps(content))


def withdraw(sweep: Path, number: int) -> None:
    """Withdraws a job: a worker that has not begun it runs nothing."""
    (sweep / _FOLDER / f"{number}.json").unlink(missing_ok=True)


def submitted_job(sweep: Path, number: int) -> LedgerJob:
    """What `submit` wrote."""
    content = json.loads((sweep / _FOLDER / f"{number}.json").read_bytes())["job"]
    return LedgerJob(**content | {"overrides": tuple(content["overrides"]), "state": Status(content["state"])})


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
        return [Start(**start) for start in content["starts"]]
    except (KeyError, TypeError):
        return []
