"""Processes that end with their parent, that are forked with TensorFlow, or that may crash, since they are isolated.

Nothing that such a process answers is trusted with more than that; in particular it is no pickle.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil

_SIZES = struct.Struct("<QQ")
_LOOK_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_EXPENDABLE = "500"
VARIABLE = "EMBEXP_PARENT"
"""Variable of the environment with the process that a process is to end with."""


class IsolatedError(Exception):
    """The process could not answer: it raised something, crashed, or took too long."""


class Isolated:
    """A process that answers questions, one at a time. It is started by the first, and again after a crash."""

    def __init__(self, module: str) -> None:
        """Nothing is started yet.

        Args:
            module: whose `main` calls `serve`.
        """
        self._module = module
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._end)

    def ask(self, question: dict[str, Any], *, seconds: float) -> tuple[Any, bytes]:
        """Asks, and waits for the answer.

        Args:
            seconds: of processor time that the answer may take.

        Raises:
            IsolatedError: see there.
        """
        with self._lock:
            try:
                return self._answer(question, seconds)
            except EOFError:  # perhaps it was ended by somebody else, so once more
                self._end()
            try:
                return self._answer(question, seconds)
            except EOFError:
                self._end()
                raise IsolatedError("the library that reads it crashed: the file is damaged") from None

    def _answer(self, question: dict[str, Any], seconds: float) -> tuple[Any, bytes]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        watch = _Watch(process, seconds)
        watch.start()
        try:
            try:
                _send(process.stdin, json.dumps(question).encode())
                answer, data = _receive(process.stdout)
            finally:
                watch.end()
        except (EOFError, BrokenPipeError):
            process.wait()
            if watch.stuck:
                self._end()
                raise IsolatedError(f"it is not read within {seconds:.0f} s: the file is damaged") from None
            raise EOFError from None
        content = json.loads(answer)
        if "error" in content:
            raise IsolatedError(content["error"])
        return content["answer"], data

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for us
                env={**os.environ, _PARENT: str(os.getpid())},
            )
        return self._process

    def _forget(self) -> None:
        """In a process forked from that which asks: it has none of its own yet."""
        self._lock, self._process = threading.Lock(), None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


_PARENT = "EMBEXP_ISOLATED_BY"


def serve(answer: Callable[[dict[str, Any]], tuple[Any, Any]]) -> None:
    """Answers questions on standard input until it ends.

    Args:
        answer: gives JSON and bytes; what it raises is reported as an error.
    """
    die_with_parent(int(os.environ[_PARENT]))
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # nothing else is to be written between answers
        while True:
            try:
                question, _ = _receive(sys.stdin.buffer)
            except EOFError:
                return
            data: Any = b""
            try:
                content, data = answer(json.loads(question))
                told = json.dumps({"answer": content})
            except Exception as error:
                told = json.dumps({"error": " ".join(str(error).split()) or type(error).__name__})
            _send(out, told.encode(), data)


def _send(pipe: IO[bytes], content: bytes, data: Any = b"") -> None:
    pipe.write(_SIZES.pack(len(content), len(data)))
    pipe.write(content)
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[bytes, bytes]:
    first, second = _SIZES.unpack(_exactly(pipe, _SIZES.size))
    return _exactly(pipe, first), _exactly(pipe, second)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


class _Watch(threading.Thread):
    """Kills a process that takes more processor time than it may."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        super().__init__(daemon=True)
        self.stuck = False
        self._watched, self._done = process, threading.Event()
        self._limit = seconds + self._taken()

    def run(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            if self._taken() > self._limit:
                self.stuck = True
                self._watched.kill()
                return

    def end(self) -> None:
        """Ends the watch; whether the process was killed is known then."""
        self._done.set()
        self.join()

    def _taken(self) -> float:
        try:
            times = psutil.Process(self._watched.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)


def variables() -> dict[str, str]:
    """Of the environment of a process that is to end with this one: it may be gone before the other asks for it."""
    return {VARIABLE: str(os.getpid())}


def parent() -> int:
    """The process that has started this one, perhaps gone by now."""
    named = os.environ.pop(VARIABLE, "")
    return int(named) if named.isdigit() else os.getppid()


def die_with_parent(parent: int) -> None:
    """Has the system kill this process as soon as its parent is gone, however that ends. Only Linux can do that.

    Args:
        parent: process id of the parent: if that is gone already, this process ends at once.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def be_expendable() -> None:
    """Has the system choose this process, rather than its parent, where memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_EXPENDABLE, encoding="ascii")


def fork() -> int:
    """`os.fork`, without the warning that Python 3.12 and later give where a process has other threads.

    For a process that has started none of its own. Imports start some: NumPy's OpenBLAS one for each further core, and
    Arrow's allocator, jemalloc, one. They run no Python, and their libraries handle a fork (`pthread_atfork`).

    Returns:
        0 in the child, in the parent the child's process id.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
        return os.fork()
