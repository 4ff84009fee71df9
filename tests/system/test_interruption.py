"""Signals that ask for the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from embexp.system import interruption
from embexp.system.interruption import Interrupted

BY_CONVENTION = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def taken_over() -> Iterator[None]:
    with interruption.taken_over():
        yield


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # Python calls the handler between two of its instructions


@pytest.mark.parametrize("number", BY_CONVENTION)
def test_a_signal_is_an_exception_and_has_its_status(number: signal.Signals, taken_over: None) -> None:
    assert not interruption.received()
    with pytest.raises(KeyboardInterrupt):
        send(number)
    assert interruption.received()
    assert (interruption.exit_status(), interruption.name()) == (BY_CONVENTION[number], number.name)


def handlers() -> list[object]:
    return [*map(signal.getsignal, BY_CONVENTION), sys.unraisablehook]


def test_handlers_are_put_back() -> None:
    before = handlers()
    with interruption.taken_over():
        assert all(one is not other for one, other in zip(before, handlers(), strict=True))
    assert before == handlers()


class Ending:
    """Calls a function when nothing refers to it any more."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def __del__(self) -> None:
        self.call()


@pytest.mark.parametrize("number", BY_CONVENTION)
@pytest.mark.parametrize("way", ["__del__", "weak reference", "__del__ within a save"])
def test_a_signal_is_raised_where_python_drops_no_exception(
    number: signal.Signals, way: str, taken_over: None, capfd: pytest.CaptureFixture[str]
) -> None:
    reached = []

    def work() -> None:
        ending = Ending(partial(send, number) if way == "__del__" else int)
        reference = weakref.ref(ending, lambda _: send(number)) if way == "weak reference" else None
        del ending
        reached.append(reference)
        time.sleep(20)

    def save() -> None:
        with interruption.finished_first():
            send(number)  # put off
            with contextlib.suppress(Interrupted):
                Ending(partial(send, number))  # the second one
                time.sleep(20)
            reached.append("the end")

    began = time.monotonic()
    with pytest.raises(Interrupted):
        (save if way == "__del__ within a save" else work)()
    assert reached
    assert time.monotonic() - began < 10
    assert interruption.exit_status() == BY_CONVENTION[number]
    assert capfd.readouterr().err == ""


def test_other_exceptions_that_python_drops_are_reported(
    taken_over: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    with interruption.taken_over():
        Ending(lambda: 1 // 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_what_nohup_has_set_stays() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption.taken_over(), interruption.training() as interrupted:
            send(signal.SIGHUP)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_save_is_finished_first(taken_over: None) -> None:
    done = []

    def save() -> None:
        with interruption.finished_first():
            send(signal.SIGTERM)
            done.append("the save")
            with interruption.finished_first():  # one inside the other
                done.append("its index")
            done.append("its name")
        done.append("not reached")

    with pytest.raises(Interrupted):
        save()
    assert done == ["the save", "its index", "its name"]


def test_the_second_signal_does_not_wait(taken_over: None) -> None:
    def save() -> None:
        with interruption.finished_first():
            send(signal.SIGINT)
            send(signal.SIGINT)
            raise AssertionError("not reached")

    with pytest.raises(Interrupted):
        save()


def test_an_error_of_the_save_is_what_is_told(taken_over: None) -> None:
    def save() -> None:
        with interruption.finished_first():
            send(signal.SIGINT)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        save()


@pytest.mark.parametrize("number", BY_CONVENTION)
def test_training_is_asked_to_end_and_a_second_signal_ends_it(
    number: signal.Signals, taken_over: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with interruption.training() as interrupted:
        assert not interrupted()
        send(number)
        assert interrupted()
        assert "saving what was trained" in capsys.readouterr().err
        with pytest.raises(Interrupted):
            send(number)
    assert interruption.exit_status() == BY_CONVENTION[number]


def test_signals_are_counted(taken_over: None) -> None:
    with interruption.collected_signals() as found:
        send(signal.SIGHUP)
        send(signal.SIGINT)
        assert found == [signal.SIGHUP, signal.SIGINT]
    assert interruption.exit_status() == 130


LEFT = """
import os, sys, time
from embexp.system import interruption
with interruption.taken_over(), interruption.leaving_at_once('go on by a command'):
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(1)
"""
CLOSED = """
import os, signal, sys
from embexp.system import interruption
outer, inner = os.openpty()
for each in (1, 2):
    os.dup2(inner, each)
os.close(inner)
status = 1
try:
    with interruption.taken_over(), interruption.collected_signals():
        os.close(outer)
        os.kill(os.getpid(), signal.SIGHUP)
        sys.__stdout__.write("a line\\n")
        sys.__stdout__.flush()
    status = 0
finally:
    os._exit(status)
"""


@pytest.mark.parametrize("number", BY_CONVENTION)
def test_imports_are_left_at_once(number: signal.Signals, forked: Path) -> None:
    command = [forked / "python", "-c", LEFT, str(int(number))]
    left = subprocess.run(command, capture_output=True, check=False)
    assert (left.returncode, left.stderr) == (BY_CONVENTION[number], b"\nembexp: go on by a command\n")


def test_nothing_is_written_to_a_terminal_that_was_closed(forked: Path) -> None:
    """Else the first line after it would be an error, and no table would be written."""
    assert subprocess.run([forked / "python", "-c", CLOSED], check=False).returncode == 0
