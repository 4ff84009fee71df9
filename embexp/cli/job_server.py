"""The process that jobs are forked from: it has imported TensorFlow, and never runs an operation of it.

A job so starts in a fraction of a second, and shares the memory of the imported code. The sweep asks over a socket, the
server's standard input, in lines of JSON: `{"number": 3, "sweep": DIR, "log": FILE}`. The server answers
`{"number": 3, "pid": 1234}` and, when the job's process has ended, `{"number": 3, "status": 0}` (negative: minus the
signal that ended it). It ends when the socket is closed, and its jobs with it.
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
from pathlib import Path
from typing import Any

from embexp.cli.job import become_job, execute
from embexp.sweeps import outcomes
from embexp.sweeps.ledger import Ledger
from embexp.system import environment, interruption, processes


def main() -> None:
    """Serves until the sweep closes its end of the socket."""
    for number in interruption.NUMBERS:
        signal.signal(number, signal.SIG_IGN)  # meant for the sweep, which tells its jobs
    processes.die_with_parent(processes.parent())  # while it imports, it does not notice that the socket is closed
    asking = socket.socket(fileno=os.dup(0))
    environment.load_tensorflow()
    import embexp.studies.report
    import embexp.studies.run  # noqa: F401

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
        pid = processes.fork()
        if pid == 0:
            status = 1
            try:
                self._asking.close()
                os.close(self._woken)
                signal.set_wakeup_fd(-1)
                status = _job(request, parent)
            except KeyboardInterrupt:
                status = outcomes.INTERRUPTED
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
    with Ledger(sweep) as ledger:
        job = ledger.job(request["number"])
    return execute(sweep, job)


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
    main()
