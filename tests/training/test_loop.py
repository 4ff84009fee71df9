from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from embexp.errors import DivergedError
from embexp.training import loop
from embexp.training.early_stopping import EarlyStopping
from embexp.training.listeners import Listener


class Recorder(Listener):
    """A runtime and a listener that record their calls."""

    def __init__(self, loss: float = 1.0) -> None:
        self.loss = loss
        self.steps = 0
        self.losses: list[tuple[int, float]] = []
        self.evaluations: list[int] = []
        self.first = 0

    def train(self, iterator: object, steps: int) -> float:
        self.steps += steps
        return self.loss * steps

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        self.losses.append((step, loss))

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        self.evaluations.append(step)


def train(recorder: Recorder, schedule: loop.LoopSchedule, **changes: object) -> loop.Outcome:
    arguments: dict[str, object] = {
        "validation": loop.Validation(lambda: {"rmse": 1.0}),
        "listeners": [recorder],
        "interrupted": lambda: False,
        "first_step_done": lambda: setattr(recorder, "first", recorder.first + 1),
    }
    return loop.train(recorder, None, schedule=schedule, **(arguments | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "steps", "log_every", "evaluate_every"),
    [
        ({"steps": 50, "epochs": None}, 50, 1, 13),
        ({"steps": None, "epochs": 2}, 25, 1, 13),
        ({"steps": 7, "epochs": 2}, 7, 1, 13),
        ({"steps": 1000, "epochs": 2}, 25, 1, 13),
        ({"steps": None, "epochs": 0.01}, 1, 1, 13),
        ({"steps": 5000, "epochs": None}, 5000, 50, 13),
    ],
    ids=["steps", "epochs", "steps first", "epochs first", "part of an epoch", "a hundred log lines"],
)
def test_loop_schedule(settings: dict[str, float], steps: int, log_every: int, evaluate_every: int) -> None:
    schedule = loop.loop_schedule(examples=100, batch_size=8, log_every=None, evaluate_every=None, **settings)  # type: ignore[arg-type]
    assert (schedule.steps, schedule.log_every, schedule.evaluate_every) == (steps, log_every, evaluate_every)


def test_every_event_comes_at_its_step_however_calls_are_cut() -> None:
    recorder = Recorder()
    outcome = train(recorder, loop.LoopSchedule(steps=103, log_every=10, evaluate_every=25, batch_size=8))
    assert recorder.steps == outcome.steps == 103
    assert [step for step, _ in recorder.losses] == [*range(10, 101, 10), 103]
    assert {loss for _, loss in recorder.losses} == {1.0}
    assert recorder.evaluations == [25, 50, 75, 100, 103]
    assert recorder.first == 1
    assert outcome.status == "completed"


def test_interruption_keeps_what_was_done() -> None:
    recorder = Recorder()
    outcome = train(
        recorder,
        loop.LoopSchedule(steps=1000, log_every=5, evaluate_every=1000, batch_size=8),
        interrupted=lambda: recorder.steps >= 20,
    )
    assert outcome.status == "interrupted"
    assert 20 <= outcome.steps < 1000
    assert recorder.evaluations == []


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run(loss: float) -> None:
    with pytest.raises(DivergedError, match=r"the loss is (nan|inf) at step 10: .*learning_rate"):
        train(Recorder(loss), loop.LoopSchedule(steps=100, log_every=10, evaluate_every=100, batch_size=8))


def test_early_stopping_ends_after_its_patience_and_keeps_the_best() -> None:
    series = iter([3.0, 2.0, 2.5, 2.1, 1.0])
    kept: list[int] = []
    recorder = Recorder()
    outcome = train(
        recorder,
        loop.LoopSchedule(steps=100, log_every=10, evaluate_every=10, batch_size=8),
        validation=loop.Validation(
            evaluate=lambda: {"rmse": next(series)},
            stopping=EarlyStopping(metric="rmse", lower_is_better=True, patience=2, min_delta=0.0),
            keep_best=lambda: kept.append(recorder.steps),
        ),
    )
    assert outcome.status == "stopped_early"
    assert outcome.steps == 40
    assert outcome.best_step == 20
    assert kept == [10, 20]
