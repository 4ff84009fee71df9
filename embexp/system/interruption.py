"""SIGINT, SIGTERM and SIGHUP, and SIGUSR1 in jobs of Slurm: each asks for the end, which is a tidy one.

While a command has taken the signals over, one of them raises `Interrupted`: blocks clean up behind themselves, and the
process ends with the status that shells give it, 128 + the signal's number. Three kinds of blocks do something else:

- `training` only notes the first one, so that the training ends by itself, with a checkpoint and a summary;
- `finished_first` puts the first one off to its end: what is being saved is saved;
- `leaving_at_once` ends the process there, for imports: an exception inside a half-imported module has strange effects.

The second signal ends what the first one has not ended yet. Where Python drops exceptions, as in a `__del__` or a
callback of a weak reference, the signal is sent again a moment later.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from embexp.system.printable import print, send_nowhere

_WARNING = ("SIGUSR1",) if "SLURM_JOB_ID" in os.environ else ()  # elsewhere, it is the user's own
NUMBERS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", *_WARNING) if hasattr(signal, name))
"""The signals that ask for the end: Ctrl-C, a scheduler or `kill`, a terminal that is closed, Slurm's warning."""
STATUSES = tuple(128 + number for number in NUMBERS)
"""The exit statuses of processes that they have ended, by convention."""


AGAIN_AFTER = 0.02
"""Seconds until a signal is sent again whose exception Python has dropped."""


class Interrupted(KeyboardInterrupt):
    """A signal asks for the end."""


@dataclass
class _State:
    """Of this process.

    Attributes:
        deferring: how many blocks of `finished_first` are running.
        pending: the signal that such a block has put off.
        leaving: the file descriptor and the sentence that tell of the end, while a signal ends the process at once.
        terminals: file descriptors of the output that goes to a terminal.
        once: whether only the first signal counts.
    """

    received: list[int] = field(default_factory=list)
    deferring: int = 0
    pending: int | None = None
    leaving: tuple[int, str] | None = None
    terminals: tuple[int, ...] = ()
    once: bool = False


_state = _State()


class Interruption:
    """Whether the user, or the system, has requested the end of training: `interruption()`."""

    def __init__(self) -> None:
        self._requested = False

    def __call__(self) -> bool:
        """Whether training should end."""
        return self._requested

    def request(self) -> None:
        """Requests the end of training."""
        self._requested = True


@contextmanager
def taken_over() -> Iterator[None]:
    """Within the block, the signals raise `Interrupted`. Outside the main thread, nothing is changed."""
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            stack.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
            stack.callback(_restore, take_over())
        yield


def take_over() -> dict[int, Any]:
    """Has the signals raise `Interrupted` from now on, and forgets earlier ones; returns the handlers before.

    A SIGHUP that is ignored stays so: that is what `nohup` is for.
    """
    _state.received.clear()
    _state.pending = None
    _state.terminals = tuple(number for number in (1, 2) if os.isatty(number))
    sys.unraisablehook = partial(_dropped, sys.unraisablehook)
    return _handle_by(_raise)


def take_over_once() -> None:
    """As `take_over`, for a process that gets several signals for one end: those after the first have no effect.

    A scheduler that ends a job signals what it has started, and that passes it on.
    """
    take_over()
    _state.once = True


def received() -> bool:
    """Whether one of the signals has come since they were taken over."""
    return bool(_state.received)


def last() -> int | None:
    """The last of the signals that have come; None: none has."""
    return _state.received[-1] if _state.received else None


def exit_status() -> int:
    """The status of a process that the last signal has ended: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + (last() or int(signal.SIGINT))


def name() -> str:
    """The name of the last signal."""
    return signal.Signals(last() or signal.SIGINT).name


@contextmanager
def finished_first() -> Iterator[None]:
    """A block that the first signal does not interrupt: `Interrupted` is raised at its end."""
    _state.deferring += 1
    try:
        yield
    finally:
        _state.deferring -= 1
    if _state.pending is not None and not _state.deferring:
        _state.pending = None
        raise Interrupted


@contextmanager
def nothing_begun() -> Iterator[None]:
    """A block before anything is written, so that there is nothing to resume: the exception of a signal says so."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("interrupted before the run started; nothing was written") from None


@contextmanager
def leaving_at_once(sentence: str = "interrupted") -> Iterator[None]:
    """A block in which a signal that was taken over ends the process with a sentence, without cleaning up."""
    before, _state.leaving = _state.leaving, (os.dup(2), sentence)
    terminal, _ = _state.leaving
    try:
        yield
    finally:
        _state.leaving = before
        os.close(terminal)


@contextmanager
def training() -> Iterator[Interruption]:
    """Within the block, the first signal requests a clean end; a second one has the effect that it had before.

    Outside the main thread, where signals can't be caught, nothing is changed.
    """
    interruption = Interruption()

    def stop(number: int) -> None:
        interruption.request()
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(
                "\nStopping and saving what was trained; interrupt again to quit at once.", file=sys.stderr, flush=True
            )

    with noted(stop):
        yield interruption


@contextmanager
def noted(then: Callable[[int], object]) -> Iterator[None]:
    """Within the block, the first signal only calls `then`; a second one has the effect that it had before.

    Outside the main thread, where signals can't be caught, nothing is changed.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        _restore(previous)
        note(number)
        then(number)

    with _handled(handle) as previous:
        yield


@contextmanager
def kept() -> Iterator[None]:
    """At the end of the block, signals have the handlers of its beginning, whatever C++ code has set in between."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            _restore({number: handler for number, handler in before.items() if handler is not None})


@contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Within the block, signals are collected in the list. Outside the main thread, nothing is changed."""
    found: list[int] = []

    def count(number: int, frame: FrameType | None) -> None:
        note(number)
        found.append(number)

    with _handled(count):
        yield found


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[dict[int, Any]]:
    """Within the block, signals have this handler; gives those before. Outside the main thread, nothing is changed."""
    in_main = threading.current_thread() is threading.main_thread()
    before = _handle_by(handler) if in_main else {}
    try:
        yield before
    finally:
        _restore(before)


def note(number: int) -> None:
    """Takes note of a signal; output to a terminal that is gone is dropped from now on."""
    _state.received.append(number)
    for terminal in _state.terminals:
        if not os.isatty(terminal):  # it was closed, and every line written to it would be an error
            with contextlib.suppress(OSError):
                send_nowhere(terminal)


def _raise(number: int, frame: FrameType | None) -> None:
    first = not _state.received
    note(number)
    if _state.leaving is not None:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        terminal, sentence = _state.leaving
        with contextlib.suppress(OSError):
            os.write(terminal, os.fsencode(f"\nembexp: {sentence}\n"))
        os._exit(128 + number)
    if not first and _state.once:
        return
    if first and _state.deferring:
        _state.pending = number
        return
    raise Interrupted


def _dropped(report: Callable[[sys.UnraisableHookArgs], Any], dropped: sys.UnraisableHookArgs) -> None:
    """Called with an exception that Python drops: a signal's is raised again, others are reported."""
    if not isinstance(dropped.exc_value, Interrupted) or not _state.received:
        report(dropped)
        return
    # The signal counts as coming only then. A `threading.Thread` would take locks that the main thread may hold here.
    _thread.start_new_thread(_send_again, (_state.received.pop(),))


def _send_again(number: int) -> None:
    time.sleep(AGAIN_AFTER)
    send(number)


def send(number: int) -> None:
    """Sends a signal to the main thread, whose waiting it ends."""
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, number)


def _handle_by(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Sets the handler of all signals, and returns those before."""
    chosen = [number for number in NUMBERS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in chosen}


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
