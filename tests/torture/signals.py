"""Signals: a run, or a sweep of two jobs at once, gets one of four signals at a random instant, and is resumed.

Half of the commands have a terminal of their own: Ctrl-C is typed there, and SIGHUP comes as it is closed. Commands
are processes of their own, from their first moment.
"""

from __future__ import annotations

import contextlib
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.torture import shim
from tests.torture.kills import Case, Torture
from tests.torture.kinds import RUN

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
_KINDS = ("keep", "incremental", "sweep")
_BEGUN = 0.3
_LOADING = 6.0
"""Seconds in which a command loads TensorFlow."""
_ENDED_SECONDS = 180.0
_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.set_inheritable(int(sys.argv[1]), False);"
    " os.execv(sys.executable, [sys.executable, '-P', '-m', 'embexp', *sys.argv[2:]])"
)
"""Gives a command the terminal that it has as its standard input, and closes a pipe as the command begins."""


def cases(torture: Torture, kinds: Sequence[str], seed: int, numbers: Iterable[int]) -> Iterator[Case]:
    """The signals of these numbers, in turn over signals and kinds; `kinds` are those of other harnesses."""
    for number in numbers:
        yield _case(torture, seed, number)


class _Command:
    """A command and its output."""

    def __init__(self, words: Sequence[str], work: Path, *, terminal: bool) -> None:
        own, theirs = pty.openpty() if terminal else os.pipe()
        begins, begun = os.pipe()
        begin = ["-c", _WITH_TERMINAL, str(begun)] if terminal else ["-P", "-m", "embexp"]
        self.process = subprocess.Popen(
            [sys.executable, *begin, *words],
            cwd=work,
            env={**os.environ, "TMPDIR": str(work.parent / "tmp")},
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            pass_fds=[begun] if terminal else [],
        )
        os.close(theirs)
        os.close(begun)
        os.read(begins, 1)  # returns when nobody can write any more: the command has begun
        os.close(begins)
        self.out = b""
        self._reads: int | None = own

    def wait(self, seconds: float) -> None:
        """Waits for its end, and reads what it prints."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            if self._reads is None:
                time.sleep(0.01)
            elif select.select([self._reads], [], [], 0.01)[0]:
                self._read(self._reads)

    def signal(self, number: signal.Signals, *, terminal: bool) -> None:
        """Sends a signal, as the terminal does where there is one."""
        if terminal and number == signal.SIGINT and self._reads is not None:
            os.write(self._reads, b"\x03")
        elif terminal and number == signal.SIGHUP:
            self.close()
        else:
            self.process.send_signal(number)

    def close(self) -> None:
        """Closes the terminal, or the pipe."""
        if self._reads is not None:
            os.close(self._reads)
        self._reads = None

    def _read(self, reads: int) -> None:
        try:
            read = os.read(reads, 65_536)
        except OSError:  # of a terminal that nobody has any more
            read = b""
        self.out += read
        if not read:
            self.close()


def _case(torture: Torture, seed: int, number: int) -> Case:
    """The signal of a number: at an instant that is the same for the same seed."""
    sent, terminal, kind = NUMBERS[number % 4], number // 4 % 2 == 1, _KINDS[number % 3]
    seconds = random.Random(f"signals {seed} {number}").uniform(_BEGUN, _LOADING + torture.reference(kind).seconds)
    with torture.place(f"signal {number}") as folder:
        work = folder / "work"
        (folder / "tmp").mkdir()
        command = _Command(torture.commands.words(kind), work, terminal=terminal)
        command.wait(seconds)
        had_ended = command.process.poll() is not None
        if not had_ended:
            with contextlib.suppress(OSError):
                command.signal(sent, terminal=terminal)
            command.wait(_ENDED_SECONDS)
        where = "with a terminal" if terminal else "without one"
        case = Case(f"{number}: {kind}", f"{sent.name} after {seconds:.3f} s, {where}{', ended' if had_ended else ''}")
        _check(case, command, sent, work)
        torture.finish(case, kind, work)
        case.faults += [f"left over: {each.name}" for each in (folder / "tmp").iterdir()]
        torture.keep(case, folder)
    return case


def _check(case: Case, command: _Command, sent: signal.Signals, work: Path) -> None:
    """The command has ended by the signal, with all its processes, and a training with a checkpoint."""
    if (status := command.process.poll()) is None:
        case.faults.append(f"it did not end within {_ENDED_SECONDS:g} s")
        command.process.kill()
        command.process.wait()
    elif status not in {128 + sent, -sent, 0}:
        case.faults.append(f"exit status {status}: {command.out.decode(errors='replace')[-400:]}")
    command.close()
    if left := shim.left(work):
        case.faults.append(f"still running: {[' '.join(each.cmdline()) for each in left]}")
    logs = [log.read_text() for log in work.rglob("run.log")]
    if any("Traceback" in text for text in (command.out.decode(errors="replace"), *logs)):
        case.faults.append("a stack trace")
    metrics, checkpoints = work / RUN / "metrics.jsonl", work / RUN / "checkpoints"
    if (
        sent != signal.SIGKILL
        and metrics.exists()
        and metrics.stat().st_size
        and not any(checkpoints.glob("*/state.json"))
    ):
        case.faults.append("steps were trained, and there is no checkpoint")
