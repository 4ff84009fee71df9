from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.spinner import Spinner

from embexp.training import progress
from embexp.training.listeners import Listener, Pace


def console(terminal: bool, width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None, legacy_windows=False)


def output(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def train(listener: Listener) -> None:
    listener.started(1000, 80_000)
    listener.progressed(500)
    listener.paced(Pace(500, 0.61234, 25.0, 20.0, 2))
    listener.logged(500, 0.61234, None)
    listener.evaluated(500, "validation", {"auc": 0.75, "log_loss": 0.6})
    listener.progressed(1000)
    listener.paced(Pace(1000, 0.51234, 25.0, 12.0))
    listener.logged(1000, 0.51234, 1_234_567.0)


def test_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 20.0, 45.0, 3723.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    plain = console(terminal=False, width=30)  # narrower than the lines, which must stay whole
    listener = progress.progress(plain)
    train(listener)
    listener.ended("stopped_early")
    assert output(plain).splitlines() == [
        "training for 1,000 steps on 80,000 examples",
        "step 500 of 1,000, loss 0.6123, 25 steps/s, 0:20 elapsed, 0:20 and 2 evaluations left",
        "step 500 of 1,000, validation: auc 0.7500, log_loss 0.6000",
        "step 1,000 of 1,000, loss 0.5123, 25 steps/s, 0:45 elapsed, 0:12 left",
        "step 1,000 of 1,000, loss 0.5123, 1.23 M examples/s",
        "training stopped early after 1,000 steps, 1:02:03",
    ]


@pytest.mark.parametrize(
    ("step_seconds", "shown"),
    [(0.25, [40, 80, 120]), (2.0, [5, 10, 15]), (40.0, [1, 2, 3])],
    ids=["quick steps", "steps of two seconds", "steps of forty seconds"],
)
def test_plain_lines_come_by_time(step_seconds: float, shown: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """No loss is logged: at a hundred log events a run, the first would come after hours."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    plain = console(terminal=False)
    listener = progress.progress(plain)
    listener.started(100_000, 80_000)
    for step in range(1, shown[-1] + 1):
        now[0] = step * step_seconds
        listener.paced(Pace(step))
    steps = [line.removeprefix("step ").split(" of")[0] for line in output(plain).splitlines()[1:]]
    assert steps == [str(step) for step in shown]


def test_a_log_of_days_stays_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    plain = console(terminal=False)
    listener = progress.progress(plain)
    listener.started(1_000_000, 80_000)
    for second in range(0, 3 * 86_400, 2):
        now[0] = float(second)
        listener.paced(Pace(second))
    assert 800 < len(output(plain).splitlines()) < 1100


@pytest.mark.parametrize("width", [80, 120])
def test_bar(width: int) -> None:
    terminal = console(terminal=True, width=width)
    listener = progress.progress(terminal)
    train(listener)
    listener.ended("completed")
    last = output(terminal).rsplit("\x1b[2K", 1)[-1]
    assert "completed" in last
    assert "1000/1000 steps" in last
    assert "1.23 M examples/s" in last
    assert " in 0:00" in last
    assert "25 steps/s" in last
    assert "training loss 0.5123" in last
    assert "validation (step 500) auc 0.7500, log_loss 0.6000" in last
    assert "…" not in last, "cut off"
    assert output(terminal).endswith("\x1b[?25h")  # the cursor is shown again


def test_ended_may_come_before_started_and_twice() -> None:
    terminal = console(terminal=True)
    listener = progress.progress(terminal)
    listener.ended("failed")
    assert output(terminal) == ""
    listener.started(10, 10)
    listener.ended("failed")
    shown = output(terminal)
    assert "failed" in shown
    listener.ended("failed")
    assert output(terminal) == shown


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.5, "0.5 examples/s"), (999, "999 examples/s"), (1500, "1.5 k examples/s"), (25e6, "25 M examples/s")],
)
def test_rates(rate: float, text: str) -> None:
    plain = console(terminal=False)
    listener = progress.progress(plain)
    listener.started(1, 1)
    listener.logged(1, 0.0, rate)
    assert output(plain).splitlines()[-1] == f"step 1 of 1, loss 0.0000, {text}"


def test_an_evaluation_between_two_steps_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    terminal = console(terminal=True)
    listener = progress.progress(terminal)
    listener.started(1000, 80_000)
    for second in range(31):
        now[0] = float(second)
        listener.working("evaluating", second / 60)
    listener._live.refresh()  # type: ignore[attr-defined]
    assert "evaluating" in output(terminal)
    assert "50%, 0:30 left" in output(terminal)
    listener.evaluated(500, "validation", {"auc": 0.75})
    listener.ended("completed")
    assert "evaluating" not in output(terminal).rsplit("\x1b[2K", 1)[-1]


def test_an_evaluation_between_two_steps_has_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    plain = console(terminal=False)
    listener = progress.progress(plain)
    listener.started(1000, 80_000)
    for second in range(31):
        now[0] = float(second)
        listener.working("evaluating", second / 60)
    assert output(plain).splitlines()[1:] == [
        "evaluating 17%, 0:50 left",
        "evaluating 33%, 0:40 left",
        "evaluating 50%, 0:30 left",
    ]


def test_the_name_of_a_stage_is_one_line() -> None:
    """In the seconds before its time is shown, next to the spinner that stands before it."""
    stage = progress.Stage()
    stage.moved("loading TensorFlow", None, progress.time.monotonic())
    screen = console(terminal=True)
    screen.print(Spinner("line", text=stage))
    assert output(screen).count("\n") == 1
