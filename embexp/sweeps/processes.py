"""The processes of jobs: forked from a server that has imported TensorFlow, or fresh; how they share the machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from embexp.specs.running import Launching
from embexp.specs.strategies import GPU, MultiWorker, Strategy
from embexp.system import machine, slurm

_NOT_FORKED = ("gpu", "tpu")
Command = Callable[[Path, int], Sequence[str]]
"""The command that runs a job: of the sweep's directory and the job's number."""


def own_command(sweep: Path, number: int) -> list[str]:
    """Runs a job in a new process; the working directory can't shadow modules (`-P`)."""
    return _job(os.fspath(sweep), str(number))


def _job(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "embexp.cli.job", *words]


def start(
    command: Sequence[str], *, log: Path, folder: Path | None, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process in a group of its own: Ctrl-C reaches the sweep alone, which passes it on.

    Args:
        log: file to which its output and errors are appended.
        folder: its working directory; None: that of this process.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env={**_environment(), **(variables or {})},
        )


def _environment() -> dict[str, str]:
    """That of a job, which starts its workers itself, whatever Slurm's tasks are for, unless they are the workers."""
    inherited = dict(os.environ)
    if slurm.task(inherited) is None:
        inherited.pop(slurm.NTASKS, None)
    return {**inherited, "PYTHONUNBUFFERED": "1", **machine.variables()}


class Fresh:
    """The process of a job that was started with a command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def exit_status(self) -> int | None:
        """None while it runs; negative: minus the signal that ended it."""
        status = self._process.poll()
        if status is not None:
            _kill_group(self._process.pid)
        return status

    def signal(self, number: int) -> None:
        """Sends a signal to it; SIGKILL also to what it has started."""
        if number == signal.SIGKILL:
            _kill_group(self._process.pid)
        self._process.send_signal(number)


class Server:
    """The process that jobs are forked from: see `cli.job`."""

    def __init__(self, folder: Path | None) -> None:
        """Starts it; jobs that are asked for meanwhile begin as soon as it is ready.

        Args:
            folder: working directory of the jobs; None: that of this process.
        """
        self._socket, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                _job("--server"),
                stdin=other.fileno(),
                start_new_session=True,
                cwd=folder,
                env=_environment(),
            )
        self._socket.setblocking(False)
        self._received = b""
        self._jobs: dict[int, Forked] = {}
        self.gone = False

    def start(self, sweep: Path, number: int, log: Path) -> Forked:
        """Starts a job."""
        request = {"number": number, "sweep": os.fspath(sweep), "log": os.fspath(log)}
        job = self._jobs[number] = Forked(self)
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            self._lost()
        return job

    def receive(self) -> None:
        """Takes note of jobs that have started and ended."""
        try:
            while received := self._socket.recv(65_536):
                self._received += received
        except BlockingIOError:
            pass
        except OSError:
            self._lost()
        else:
            self._lost()
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if "status" in answer:
                self._jobs.pop(answer["number"]).status = answer["status"]
            else:
                self._jobs[answer["number"]].began(answer["pid"])

    def close(self) -> None:
        """Ends the server, and with it the jobs that still run."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _lost(self) -> None:
        """The server has ended, as without memory, and its jobs with it."""
        self.gone = True
        for job in self._jobs.values():
            job.status = -signal.SIGKILL


class Forked:
    """A process that was forked from the server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.pid: int | None = None
        self.status: int | None = None
        self._waiting: list[int] = []
        """Signals for a process that has not started yet."""

    def began(self, pid: int) -> None:
        """Takes note of the process, and sends it the signals that came before."""
        self.pid = pid
        for number in self._waiting:
            self.signal(number)

    def exit_status(self) -> int | None:
        """None while it runs."""
        if self.status is None:
            self._server.receive()
        if self.status is not None and self.pid is not None:
            _kill_group(self.pid)
        return self.status

    def signal(self, number: int) -> None:
        """Sends a signal to it, as soon as it has started."""
        if self.status is not None:
            return
        if self.pid is None:
            self._waiting.append(number)
            return
        if number == signal.SIGKILL:
            _kill_group(self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _kill_group(leader: int) -> None:
    """Kills what is left of a process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class Starter:
    """Starts the processes of a sweep's jobs, each in the way that its devices allow."""

    def __init__(self, sweep: Path, *, folder: Path | None = None, command: Command | None = None) -> None:
        """Starts nothing yet.

        Args:
            folder: working directory of the jobs; None: that of this process.
            command: runs a job in a new process; None: jobs are forked from a server where their devices allow that.
        """
        self._sweep = sweep
        self._folder = folder
        self._command = command
        self._server: Server | None = None

    def start(self, number: int, *, strategy: Strategy, log: Path, gpus: Sequence[str] = ()) -> Fresh | Forked:
        """Starts a job.

        Args:
            strategy: a process that has loaded the libraries of GPUs or TPUs must not be forked, and one that has
                loaded TensorFlow keeps its kernels, so such jobs start afresh.
            log: file to which its output and errors are appended.
            gpus: those that it may see; none: all.
        """
        own_libraries = strategy.kind in _NOT_FORKED or strategy.kernels["onednn"] is not None
        if self._command is not None or own_libraries or gpus or not hasattr(os, "fork"):
            command = (self._command or own_command)(self._sweep, number)
            variables = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
            return Fresh(start(command, log=log, folder=self._folder, variables=variables))
        if self._server is None or self._server.gone:
            self._server = Server(self._folder)
        return self._server.start(self._sweep, number, log)

    def close(self) -> None:
        """Ends all processes."""
        if self._server is not None:
            self._server.close()


def jobs_at_once(launching: Launching, strategies: Iterable[Strategy], gpus: Sequence[str]) -> int:
    """The number of jobs to run at once; for `auto`, one for each core, or for each GPU that the jobs use.

    A job of several workers has a core for each.
    """
    if launching.jobs != "auto":
        return launching.jobs
    found = list(strategies)
    devices = max(map(gpus_of, found), default=0)
    if devices and gpus:
        return max(1, len(gpus) // devices)
    return max(1, machine.cores() // max(map(workers_of, found), default=1))


def with_threads(strategy: Strategy, jobs: int, cores: int | None = None) -> Strategy:
    """A strategy with its share of the cores, where it leaves the numbers of threads to TensorFlow.

    No result depends on them.

    Args:
        jobs: number of jobs that share the cores, each with all its workers; a single process has all, unchanged.
        cores: None: those of this machine.
    """
    sharing = jobs * workers_of(strategy)
    share = max(1, (cores or machine.cores()) // sharing)
    unset = [key for key in ("intra_op_threads", "inter_op_threads") if not getattr(strategy, key)]
    if sharing == 1 or not unset:
        return strategy
    return strategy.model_copy(update=dict.fromkeys(unset, share))


def workers_of(strategy: Strategy) -> int:
    """Number of processes of a job."""
    return strategy.workers if isinstance(strategy, MultiWorker) else 1


def restarts_of(strategy: Strategy) -> int:
    """How often a job is tried again that has lost a worker."""
    return strategy.restarts if isinstance(strategy, MultiWorker) else 0


def gpus_of(strategy: Strategy) -> int:
    """Number of GPUs that a job uses."""
    return strategy.devices if isinstance(strategy, GPU) else 0


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, or else those that the driver knows, by their numbers."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(part.strip() for part in named.split(",") if part.strip() not in ("", "-1"))
    return tuple(str(number) for number, _ in enumerate(Path("/proc/driver/nvidia/gpus").glob("*")))
