from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from embexp.training import loop
from embexp.training.listeners import Listener, Pace, Pacing


class Clock(Listener):
    """A runtime whose steps take two seconds and an evaluation whose calls take ten, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.paces: list[Pace] = []

    def train(self, iterator: object, steps: int) -> float:
        self.now += 2.0 * steps
        return 0.5 * steps

    def evaluate(self) -> Mapping[str, float]:
        self.now += 10.0
        return {"rmse": 1.0}

    def paced(self, pace: Pace) -> None:
        self.paces.append(pace)


def test_the_time_left_has_the_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    schedule = loop.LoopSchedule(steps=10, log_every=100, evaluate_every=4, batch_size=8)
    training = loop.Loop(clock, schedule, loop.Validation(clock.evaluate), [clock])  # type: ignore[arg-type]
    training.train(None, loop.Outcome(), interrupted=lambda: False, first_step_done=lambda: None)
    assert [pace.step for pace in clock.paces] == list(range(1, 11))  # each call lasts two seconds
    assert clock.paces[0] == Pace(1, 0.5)  # the first call traces
    assert clock.paces[1] == Pace(2, 0.5, 0.5, 8 * 2.0, 3)
    assert clock.paces[4] == Pace(5, 0.5, 0.5, 5 * 2.0 + 2 * 10.0, 0)
    assert clock.paces[9] == Pace(10, 0.5, 0.5, 10.0, 0)
    assert clock.now == 10 * 2.0 + 3 * 10.0


@pytest.mark.parametrize("every", [1, 3, 4, 10, 11])
@pytest.mark.parametrize("done", [0, 1, 4, 9, 10])
def test_how_many_evaluations_come(every: int, done: int) -> None:
    schedule = loop.LoopSchedule(steps=10, log_every=5, evaluate_every=every, batch_size=8)
    assert schedule.evaluations(done) == sum(schedule.evaluates_at(step) for step in range(done + 1, 11))


def test_nothing_is_known_before_a_step_was_timed() -> None:
    assert Pacing().pace(3, loss=None, steps_left=7, evaluations_left=1) == Pace(3)
