"""The process of one job of a sweep, and the server that such processes are forked from.

`python -P -m embexp.cli.job SWEEP NUMBER` is a job. `--elsewhere`: it was started by the launcher of others, and is
described by a file next to the ledger.

`--server` is the server. It has imported TensorFlow, and never runs an operation of it. A job so starts in a fraction
of a second, and shares the memory of the imported code. The sweep asks over a socket, the server's standard input, in
lines of JSON: `{"number": 3, "sweep": DIR, "log": FILE}`. The server answers `{"number": 3, "pid": 1234}` and, when the
job's process has ended, `{"number": 3, "status": 0}` (negative: minus the signal that ended it). It ends when the
socket is closed, and its jobs with it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embexp.cli import workers
from embexp.errors import EmbexpError, RunError
from embexp.reports.jobs import in_use
from embexp.specs.run import RunSpec, allow_fields
from embexp.sweeps import jobs, progress
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.system import environment, interruption, machine, machine_faults, printable, slurm
from embexp.system.printable import print
from embexp.training.listeners import Listener

_PATIENCE = 15.0
"""Seconds that a job waits for an earlier process in its directory, which was killed with its sweep, to be gone."""


def main() -> int:
    """Runs the job as it is planned; the output goes to the job's run.log."""
    sweep, number = Path(sys.argv[1]), int(sys.argv[2])
    become_job(machine.parent())  # elsewhere, the worker of the launcher
    if sys.argv[3:] != ["--elsewhere"]:
        return execute(sweep, _planned(sweep, number))
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # by which submitit's worker hears of a time limit
    interruption.take_over_once()
    job = jobs.submitted_job(sweep, number)
    return _follow(sweep, job) if slurm.task(os.environ) else execute(sweep, job)


def _planned(sweep: Path, number: int) -> LedgerJob:
    with Ledger(sweep) as ledger:
        return ledger.job(number)


def execute(sweep: Path, job: LedgerJob) -> int:
    """Trains a job in this process, from its newest checkpoint if it has one.

    Returns:
        The exit status of the process: 0, `jobs.BUSY` if another process works there, or another one if the job failed.
    """
    printable.write_utf8()
    directory = jobs.made_directory(sweep, job)
    try:
        allow_fields(job.spec)  # the sweep has checked the code that it names
        strategy = job.checked_spec.strategy
        with workers.telling(strategy), contextlib.ExitStack() as locked:
            lock = jobs.lock(sweep, job)
            try:
                locked.enter_context(lock.exclusive(patience=_PATIENCE))
            except RunError as error:
                if in_use(directory):
                    workers.refuse(strategy, error)
                    print(error, file=sys.stderr, flush=True)
                    return jobs.BUSY
                locked.enter_context(lock.exclusive(patience=_PATIENCE))
            (directory / jobs.FAILURE_FILE).unlink(missing_ok=True)
            with printable.lasting_streams(lambda _: None):  # run.log, whose disk may be full
                _train(directory, job.spec, progress.listeners(sweep, job.number))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return jobs.INTERRUPTED
    except Exception as error:
        reported = str(error) if isinstance(error, EmbexpError) else machine_faults.sentence(error)
        with contextlib.suppress(OSError):  # the disk of the log may be what has failed
            if reported is None:
                traceback.print_exc()
            else:
                print(f"error: {reported}", file=sys.stderr, flush=True)
        jobs.note_failure(directory, error)
        return 1
    return 0


def _follow(sweep: Path, job: LedgerJob) -> int:
    """Takes part in a job whose worker 0 is another task of the scheduler; returns the exit status.

    How the job ends is noted by that one.
    """
    printable.write_utf8()
    try:
        allow_fields(job.spec)
        spec = job.checked_spec
        if not workers.is_led(spec.strategy):
            raise RunError(f"a job of strategy={spec.strategy.kind} is one process, and this is another task")
        return workers.follow(spec, jobs.job_directory(sweep, job))
    except KeyboardInterrupt:
        return jobs.INTERRUPTED
    except EmbexpError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def _train(directory: Path, spec_json: str, listeners: Sequence[Listener]) -> None:
    from embexp.records.folder import RunFolder, named_functions

    spec, folder = RunSpec.model_validate_json(spec_json), RunFolder(directory)
    if not (has_begun := folder.spec.exists()):
        folder.write_spec(spec)  # before TensorFlow is loaded: a job that is killed meanwhile can be resumed
    environment.load_tensorflow(**spec.strategy.kernels)
    from embexp.runs import experiment
    from embexp.runs.run import Observer
    from embexp.system import terminal
    from embexp.training.progress import ProgressLines

    environment.begin_collecting()
    console = terminal.SafeConsole(file=sys.stdout, width=160)

    def say(sentence: str) -> None:
        terminal.say(console, sentence)

    reached = progress.ProgressFile(directory)

    def ending(summary: Mapping[str, Any], place: Path) -> None:
        console.print(experiment.results(summary, place))
        sys.stdout.flush()  # before the inventory takes the digest of the log

    observer = Observer(lambda: [ProgressLines(console), reached, *listeners], reached, say, say, ending)
    if has_begun:  # the sweep has checked the code that it names
        experiment.resume(directory, allow_code=named_functions(spec), observer=observer)
    else:
        experiment.run(spec, directory, observer)


def become_job(parent: int) -> None:
    """Prepares this process for a job: it ends with its parent, and signals interrupt it whatever its parent does."""
    machine.die_with_parent(parent)
    machine.be_expendable()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in interruption.NUMBERS:
        signal.signal(number, signal.SIG_DFL)  # which the server ignores
    interruption.take_over()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interruption.NUMBERS)


def serve() -> None:
    """Serves until the sweep closes its end of the socket."""
    for number in interruption.NUMBERS:
        signal.signal(number, signal.SIG_IGN)  # meant for the sweep, which ends its jobs
    machine.die_with_parent(machine.parent())  # while it imports, it does not notice that the socket is closed
    asking = socket.socket(fileno=os.dup(0))
    environment.load_tensorflow()
    import embexp.reports.tensorboard  # which takes half a second in each job otherwise
    import embexp.runs.experiment  # noqa: F401

    gc.freeze()  # collections in a job would otherwise copy the pages of all imported code
    environment.begin_collecting()
    _Server(asking).serve()


class _Server:
    def __init__(self, asking: socket.socket) -> None:
        self._asking = asking
        self._numbers: dict[int, int] = {}
        """Number of each job by process id."""
        self._received = b""
        self._woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._asking.fileno(), self._woken], [], [])
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            if self._asking.fileno() in ready:
                received = self._asking.recv(65_536)
                if not received:
                    return
                *lines, self._received = (self._received + received).split(b"\n")
                for line in lines:
                    self._start(json.loads(line))

    def _start(self, request: dict[str, Any]) -> None:
        parent = os.getpid()
        signal.pthread_sigmask(
            signal.SIG_BLOCK, interruption.NUMBERS
        )  # one that comes now waits until the job can take it
        pid = machine.fork()
        if pid == 0:
            status = 1
            try:
                self._asking.close()
                os.close(self._woken)
                signal.set_wakeup_fd(-1)
                status = _job(request, parent)
            except KeyboardInterrupt:
                status = jobs.INTERRUPTED
            except BaseException:
                traceback.print_exc()
            finally:
                _leave(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interruption.NUMBERS)
        self._numbers[pid] = request["number"]
        self._answer({"number": request["number"], "pid": pid})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._numbers:
                self._answer({"number": self._numbers.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _answer(self, content: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._asking.sendall(json.dumps(content).encode() + b"\n")


def _job(request: dict[str, Any], parent: int) -> int:
    """What the process of a job does; its exit status."""
    os.setsid()  # Ctrl-C reaches the sweep alone, and what the job starts can be ended with it
    become_job(parent)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sweep = Path(request["sweep"])
    return execute(sweep, _planned(sweep, request["number"]))


def _leave(status: int) -> None:
    """Ends the process as Python would, but without taking apart what the server imported."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    environment.postpone_collecting()
    if sys.argv[1:] == ["--server"]:
        serve()
    else:
        sys.exit(main())
