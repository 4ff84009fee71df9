"""A job that a launcher of others starts, in a worker process of theirs or on another machine.

Such a job reads one file of the sweep's directory and writes into its own; the ledger stays with the process of the
sweep, as SQLite is not made for several machines. What the launcher's worker runs is a process of the job's own:
TensorFlow's devices and threads can't change in a process that has used it, and workers run one job after the other.

A scheduler may start a worker long after the sweep has given it up, as when the process of the sweep was killed and the
sweep was resumed. So each submission of a job has a number of its own in that file, and a worker with another number
runs nothing.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

from embexp.reports.jobs import last_written
from embexp.reports.record import Status
from embexp.sweeps import jobs
from embexp.sweeps.ledger import LedgerJob
from embexp.system import files, processes

_FOLDER = ".jobs"
_LOOK_EVERY = 1.0
"""Seconds between two looks of a worker at whether the sweep is cancelled."""
NOT_RUN = 0
"""What a worker returns that has run nothing."""


@dataclass(frozen=True)
class Start:
    """One start of a job elsewhere; a scheduler may start a job again that it has preempted.

    Attributes:
        host: on which.
        process: its number there.
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
        if submission(sweep, number) != self.submission or jobs.is_cancelled(sweep):
            return NOT_RUN
        job = read(sweep, number)
        directory = jobs.job_directory(sweep, job)
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
                if not asked and jobs.is_cancelled(sweep):
                    asked = True
                    process.send_signal(signal.SIGINT)

    def _note(self, sweep: Path, number: int, noted: Sequence[Start]) -> None:
        if submission(sweep, number) == self.submission:
            content = {"submission": self.submission, "starts": [dataclasses.asdict(each) for each in noted]}
            files.write_text(sweep / _FOLDER / f"{number}.starts.json", json.dumps(content))


def write(sweep: Path, job: LedgerJob, submission: str) -> None:
    """Writes what a worker has to know of a job. From then on, those of earlier submissions run nothing."""
    content = {"submission": submission, "job": dataclasses.asdict(job)}
    files.write_text(sweep / _FOLDER / f"{job.number}.json", json.dumps(content))


def withdraw(sweep: Path, number: int) -> None:
    """Withdraws a job: a worker that has not begun it runs nothing."""
    (sweep / _FOLDER / f"{number}.json").unlink(missing_ok=True)


def read(sweep: Path, number: int) -> LedgerJob:
    """What `write` wrote."""
    content = json.loads((sweep / _FOLDER / f"{number}.json").read_bytes())["job"]
    content |= {"overrides": tuple(content["overrides"]), "state": Status(content["state"])}
    return LedgerJob(**content)


def submission(sweep: Path, number: int) -> str | None:
    """The number of a job's last submission; None if there is none, or it was withdrawn."""
    content = _content(sweep / _FOLDER / f"{number}.json")
    return None if content is None else str(content.get("submission"))


def starts(sweep: Path, number: int) -> list[Start]:
    """The starts of a job since it was submitted last."""
    content = _content(sweep / _FOLDER / f"{number}.starts.json")
    if content is None or content.get("submission") != submission(sweep, number):
        return []
    try:
        return [Start(**each) for each in content["starts"]]
    except (KeyError, TypeError):
        return []


def _closed(start: Start, directory: Path) -> Start:
    """A start whose worker was killed before it could note the end: that is when the job last wrote something."""
    return dataclasses.replace(start, ended=start.ended or max(start.started, last_written(directory)))


def _content(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
