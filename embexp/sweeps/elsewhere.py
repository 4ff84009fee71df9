"""A job that a launcher of others starts, in a worker process of theirs or on another machine.

Such a job reads one file of the sweep's directory and writes into its own; the ledger stays with the process of the
sweep, as SQLite is not made for several machines. What the launcher's worker runs is a process of the job's own:
TensorFlow's devices and threads can't change in a process that has used it, and workers run one job after the other.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.reports.record import Status
from embexp.sweeps import jobs
from embexp.sweeps.ledger import LedgerJob
from embexp.system import files, parents

_FOLDER = ".jobs"


@dataclass(frozen=True)
class Attempt:
    """One start of a job elsewhere.

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
        command: runs a job, with the sweep and the job's number as further arguments; empty: `embexp.cli.job`, with the
            Python of the worker.
    """

    sweep: str
    folder: str
    command: tuple[str, ...] = ()

    def __call__(self, config: Any) -> int:
        """Runs a job to its end, and returns the exit status of its process.

        Args:
            config: `job`, the number.
        """
        sweep, number = Path(self.sweep), int(config["job"])
        job = read(sweep, number)
        directory = jobs.job_directory(sweep, job)
        directory.mkdir(parents=True, exist_ok=True)
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
                env={**os.environ, "PYTHONUNBUFFERED": "1", **parents.variables()},
                start_new_session=True,  # Ctrl-C reaches the sweep alone, which passes it on
            )
        attempt = Attempt(socket.gethostname(), process.pid, time.time())
        _note(sweep, number, attempt)
        try:
            process.wait()
        except BaseException:  # the launcher ends its worker, or Ctrl-C came: the job saves what is trained
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        finally:
            ended = dataclasses.replace(attempt, ended=time.time(), exit_status=process.returncode)
            _note(sweep, number, ended)
        return process.returncode


def write(sweep: Path, job: LedgerJob) -> None:
    """Writes what a worker has to know of a job; what an earlier attempt noted goes."""
    (sweep / _FOLDER / f"{job.number}.attempt.json").unlink(missing_ok=True)
    files.write_text(sweep / _FOLDER / f"{job.number}.json", json.dumps(dataclasses.asdict(job)))


def read(sweep: Path, number: int) -> LedgerJob:
    """What `write` wrote."""
    content = json.loads((sweep / _FOLDER / f"{number}.json").read_bytes())
    content |= {"overrides": tuple(content["overrides"]), "state": Status(content["state"])}
    return LedgerJob(**content)


def attempt(sweep: Path, number: int) -> Attempt | None:
    """The attempt at a job since `write`; None if no worker has begun it."""
    try:
        return Attempt(**json.loads((sweep / _FOLDER / f"{number}.attempt.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _note(sweep: Path, number: int, attempt: Attempt) -> None:
    files.write_text(sweep / _FOLDER / f"{number}.attempt.json", json.dumps(dataclasses.asdict(attempt)))
