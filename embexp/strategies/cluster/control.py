"""Worker 0 leads: it tells the others what to do, and all of them listen for whether the others are alive.

A scheduler sends its signals to all workers. Worker 0 decides what follows, a save and the end; the others only tell
it, after some seconds, as it may be the only one that has not got the signal. All end with the same exit status.

TensorFlow reports a lost worker late, or never, and not always by its name. So each worker is heard of every second by
a connection of its own. A worker that closes it is lost at once, one that is silent for `silence_seconds` is lost then.
Worker 0 ends what TensorFlow waits for, and fails with a message that names it; the other workers end themselves.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from embexp.errors import RunError, WorkerLostError
from embexp.strategies.cluster.rendezvous import Connection, HungUpError, Joined, Member, SilentError
from embexp.system import interruption
from embexp.system.printable import print

_BEAT_SECONDS = 1.0
_GRACE_SECONDS = 4.0
"""How long worker 0 may take to hear of a worker that was lost: with `silence_seconds` of 10, it ends within 15."""
_FAREWELL_SECONDS = 3.0
"""How long a worker may take to end by itself once the run has ended."""
_SETTLE_SECONDS = 0.5
"""How long a worker that hung up is heard of before one that only was silent counts as lost."""
_ALONE_SECONDS = 4.0
"""How long a worker waits before it tells worker 0 of a signal: a second one would end the run without a save."""
Arrays = Sequence[np.ndarray]


class Leader:
    """Worker 0's side: commands to all others, and whether they live.

    Attributes:
        fault: the sentence on a worker that was lost; None: all are there.
        done: by worker, the part of its work that it says it has done, from 0 to 1.
    """

    def __init__(
        self, members: Mapping[int, Member], *, silence_seconds: float, abort: Callable[[str], object]
    ) -> None:
        """Begins to listen for the workers.

        Args:
            abort: ends what TensorFlow waits for, with a reason.
        """
        self._members, self._silence, self._abort = members, silence_seconds, abort
        self.fault: str | None = None
        self.done = dict.fromkeys(members, 0.0)
        self._kind: type[RunError] = WorkerLostError
        self._ended = threading.Event()
        self._known, self._heard = threading.Event(), threading.Event()
        self._passed_on = threading.Lock()  # taken for ever by the first signal of another worker
        for connection in self._beats():
            connection.patience(silence_seconds)
        threads = [threading.Thread(target=self._listen, args=(each,), daemon=True) for each in members]
        threads.append(threading.Thread(target=_beat, args=(self._beats(), self._ended, dict), daemon=True))
        for thread in threads:
            thread.start()

    def tell(self, head: dict[str, Any], arrays: Arrays = ()) -> None:
        """Sends a command to every other worker.

        Raises:
            RunError: one was lost.
        """
        for worker in self._members:
            self.send(worker, head, arrays)

    def send(self, worker: int, head: dict[str, Any], arrays: Arrays = ()) -> None:
        """Sends a command to one worker.

        Raises:
            RunError: it was lost.
        """
        try:
            self._members[worker].connections["commands"].send(head, arrays)
        except HungUpError as error:
            self.failed(error, worker)

    def reply(
        self, worker: int, waiting: Callable[[], object] = lambda: None
    ) -> tuple[dict[str, Any], list[np.ndarray]]:
        """The reply of one worker to the oldest command without one.

        Args:
            waiting: called every second until it comes.

        Raises:
            RunError: it was lost.
        """
        connection = self._members[worker].connections["commands"]
        try:
            while not connection.comes(_BEAT_SECONDS):
                waiting()
            return connection.receive()
        except HungUpError as error:
            self.failed(error, worker)

    def replies(self) -> list[dict[str, Any]]:
        """The heads of the replies of all workers, in order."""
        return [self.reply(worker)[0] for worker in self._members]

    def failed(self, error: Exception, worker: int | None = None) -> NoReturn:
        """Raises what is the cause of an error: a lost worker where there is one, which may be known a moment later.

        Raises:
            RunError: a worker has failed.
            WorkerLostError: a worker was lost.
        """
        self._known.wait(_BEAT_SECONDS if worker is not None else self._silence + _FAREWELL_SECONDS)
        self._known.set()  # nobody waits twice
        self._heard.set()
        if self.fault is None and worker is not None:
            self._lose(worker, _explained(error, self._silence))
        if self.fault is not None:
            raise self._kind(self.fault) from error
        raise error

    def end(self, *, failed: bool = False) -> None:
        """Tells all workers that the run has ended, and which signal has ended it, if one has.

        Args:
            failed: whether a worker that is busy ends with the status of a failure.
        """
        self._ended.set()
        for member in self._members.values():
            for connection in member.connections.values():
                with contextlib.suppress(HungUpError):
                    connection.send({"command": "end", "signal": interruption.last(), "failed": failed})

    def close(self) -> None:
        """Closes all connections."""
        self._ended.set()
        for member in self._members.values():
            for connection in member.connections.values():
                connection.close()

    def _beats(self) -> list[Connection]:
        return [member.connections["beats"] for member in self._members.values()]

    def _listen(self, worker: int) -> None:
        """Listens for one worker until the end."""
        connection = self._members[worker].connections["beats"]
        while not self._ended.is_set():
            try:
                head, _ = connection.receive()
            except HungUpError as error:
                if isinstance(error, SilentError):
                    # TensorFlow may have kept this process and that one from running, and another has hung up.
                    self._ended.wait(_SETTLE_SECONDS)
                if not self._ended.is_set():
                    self._lose(worker, _explained(error, self._silence))
                return
            self.done[worker] = float(head.get("done", 0.0))
            if "signal" in head and not interruption.received() and self._passed_on.acquire(blocking=False):
                interruption.send(int(head["signal"]))
            if "failed" in head:
                self._lose(worker, str(head["failed"]), own=True)
                return

    def _lose(self, worker: int, reason: str, *, own: bool = False) -> None:
        if self.fault is None:
            where = self._members[worker].address
            said = "failed" if own else "was lost"
            self.fault, self._kind = (
                f"worker {worker} at {where} {said}: {reason}",
                RunError if own else WorkerLostError,
            )
        self._known.set()
        threading.Thread(target=self._leave_unless_heard, args=(self.fault,), daemon=True).start()
        self._abort(self.fault)
        for member in self._members.values():  # which ends a wait for a reply
            member.connections["commands"].close()

    def _leave_unless_heard(self, fault: str) -> None:
        """Ends this process if its main thread does not come to hear of the fault."""
        if not self._heard.wait(_GRACE_SECONDS) and not self._ended.is_set():
            _leave(f"error: {fault}", 1)


class Follower:
    """Another worker's side: commands of worker 0, and whether it lives.

    Attributes:
        done: the part of its work that this worker has done, from 0 to 1, of which worker 0 hears.
    """

    def __init__(self, joined: Joined, worker: int, *, silence_seconds: float) -> None:
        """Begins to listen for worker 0. If that is gone, this process ends, whatever it does."""
        self._commands, self._heard = joined.connections["commands"], joined.connections["beats"]
        self._address, self._worker, self._silence = joined.addresses[0], worker, silence_seconds
        self._ended = threading.Event()
        self._signal: tuple[int, float] | None = None
        self.done = 0.0
        self._heard.patience(silence_seconds)
        threading.Thread(target=_beat, args=([self._heard], self._ended, self._news), daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()

    def next(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """The next command.

        Raises:
            RunError: worker 0 is gone.
        """
        try:
            return self._commands.receive()
        except HungUpError as error:
            raise RunError(f"worker 0 at {self._address} was lost: {error}") from error

    def answer(self, head: dict[str, Any], arrays: Arrays = ()) -> None:
        """Replies to a command.

        Raises:
            RunError: worker 0 is gone.
        """
        try:
            self._commands.send(head, arrays)
        except HungUpError as error:
            raise RunError(f"worker 0 at {self._address} was lost: {error}") from error

    def signalled(self, number: int) -> None:
        """Takes note of a signal to this worker, which goes on until worker 0 says that the run has ended."""
        self._signal = (number, time.monotonic())

    def _news(self) -> dict[str, Any]:
        if self._signal is None or time.monotonic() - self._signal[1] < _ALONE_SECONDS:
            return {"done": self.done}
        return {"done": self.done, "signal": self._signal[0]}

    def report(self, reason: str) -> None:
        """Tells worker 0 why this worker fails."""
        with contextlib.suppress(HungUpError):
            self._heard.send({"failed": reason})

    def close(self) -> None:
        """Says nothing more, and hangs up."""
        self._ended.set()
        for connection in (self._commands, self._heard):
            connection.close()

    def wait_for_cause(self) -> None:
        """Gives worker 0 the time to find out which worker is lost, and to end this one, whose fault it is not."""
        self._ended.wait(self._silence + _FAREWELL_SECONDS)

    def _listen(self) -> None:
        while True:
            try:
                head, _ = self._heard.receive()
            except HungUpError as error:
                if self._ended.is_set():
                    return
                reason = _explained(error, self._silence)
                _leave(f"error: worker 0 at {self._address} was lost: {reason}", 1)
            if head.get("command") == "end":
                # The main thread ends this process, unless TensorFlow waits for a step that will never be.
                if not self._ended.wait(_FAREWELL_SECONDS):
                    left = 1 if head.get("failed") else status(head.get("signal"))
                    _leave("the run ended while this worker was still working", left)
                return


def status(number: int | None) -> int:
    """The exit status of a worker, by the signal that has ended the run; None: none has."""
    return 0 if number is None else 128 + number


def _explained(error: Exception, silence: float) -> str:
    """Why a connection has ended, with the seconds of silence if that was it."""
    return f"nothing was heard from it for {silence:g} seconds" if isinstance(error, SilentError) else str(error)


def _beat(connections: Sequence[Connection], ended: threading.Event, news: Callable[[], dict[str, Any]]) -> None:
    """Lets the others hear of this process, and its news."""
    while not ended.wait(_BEAT_SECONDS):
        for connection in connections:
            with contextlib.suppress(HungUpError):
                connection.send(news())


def _leave(sentence: str, status: int) -> NoReturn:
    """Ends this process now, as its main thread may wait for ever."""
    print(f"{time.strftime('%H:%M:%S')} {sentence}", file=sys.stderr, flush=True)
    os._exit(status)
