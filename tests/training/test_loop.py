from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from embexp.errors import DivergedError
from embexp.training import loop
from embexp.training.listeners import Listener
from embexp.training.loop import EarlyStopping, SaveTimes


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


def train(
    recorder: Recorder,
    schedule: loop.LoopSchedule,
    *,
    validation: loop.Validation | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    saving: loop.Saving | None = None,
    outcome: loop.Outcome | None = None,
) -> loop.Outcome:
    validation = validation or loop.Validation(lambda: {"rmse": 1.0})
    training = loop.Loop(recorder, schedule, validation, [recorder], saving)  # type: ignore[arg-type]
    return training.train(
        None,
        loop.Outcome() if outcome is None else outcome,
        interrupted=interrupted,
        first_step_done=lambda: setattr(recorder, "first", recorder.first + 1),
    )


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


def test_at_the_last_step_nothing_is_stopped_early() -> None:
    """The patience runs out after step 40 of 40: the training is complete."""
    series = iter([3.0, 2.0, 2.5, 2.1])
    outcome = train(
        Recorder(),
        loop.LoopSchedule(steps=40, log_every=10, evaluate_every=10, batch_size=8),
        validation=loop.Validation(
            evaluate=lambda: {"rmse": next(series)},
            stopping=EarlyStopping(metric="rmse", lower_is_better=True, patience=2, min_delta=0.0),
        ),
    )
    assert (outcome.status, outcome.steps, outcome.best_step) == ("completed", 40, 20)


@pytest.mark.parametrize(("series", "saved_at"), [([0.9, 1.0, 1.0], 30), ([0.9, 0.8, 0.7], 30)])
def test_a_training_that_was_stopped_is_not_continued(series: list[float], saved_at: int) -> None:
    """Killed after its last checkpoint, it has no more steps than without that."""
    schedule = loop.LoopSchedule(steps=100, log_every=10, evaluate_every=10, batch_size=8)
    stopping, values = EarlyStopping("auc", lower_is_better=False, patience=2, limit=1.0), iter(series)
    validation = loop.Validation(lambda: {"auc": next(values)}, stopping)
    outcome = train(Recorder(), schedule, validation=validation)
    assert (outcome.status, outcome.steps) == ("stopped_early", saved_at)
    resumed = loop.Outcome(**outcome.as_json())
    again = Recorder()
    assert train(again, schedule, validation=validation, outcome=resumed).status == "stopped_early"
    assert (resumed.steps, resumed.stopped_by, again.steps) == (saved_at, outcome.stopped_by, 0)


def saved_steps(times: SaveTimes, schedule: loop.LoopSchedule, **changes: Any) -> list[int]:
    saved: list[int] = []

    def save(outcome: loop.Outcome) -> bool:
        saved.append(outcome.steps)
        return True

    train(Recorder(), schedule, saving=loop.Saving(times, save), **changes)
    return saved


def test_the_state_is_saved_every_so_many_steps_and_when_interrupted() -> None:
    schedule = loop.LoopSchedule(steps=100, log_every=10, evaluate_every=50, batch_size=8)
    assert saved_steps(SaveTimes(every_steps=33), schedule) == [33, 66, 99]
    calls = iter([False, False, True])
    outcome = loop.Outcome()
    saved = saved_steps(SaveTimes(every_steps=1000), schedule, interrupted=lambda: next(calls), outcome=outcome)
    assert outcome.status == "interrupted"
    assert saved == [outcome.steps]


def test_the_best_state_is_saved_before_it_is_kept() -> None:
    values = iter([3.0, 2.0, 2.5, 2.1, 1.0])
    stopping = EarlyStopping(metric="rmse", lower_is_better=True, patience=None)
    validation = loop.Validation(lambda: {"rmse": next(values)}, stopping)
    schedule = loop.LoopSchedule(steps=50, log_every=10, evaluate_every=10, batch_size=8)
    assert saved_steps(SaveTimes(every_steps=1000), schedule, validation=validation) == [10, 20, 50]


def test_a_loop_continues_where_another_ended() -> None:
    schedule = loop.LoopSchedule(steps=100, log_every=8, evaluate_every=25, batch_size=8)
    whole, first, second = Recorder(0.5), Recorder(0.5), Recorder(0.5)
    expected = train(whole, schedule)
    states: list[str] = []

    def save(outcome: loop.Outcome) -> bool:
        states.append(json.dumps(outcome.as_json()))
        return True

    train(first, schedule, saving=loop.Saving(SaveTimes(every_steps=30), save))
    outcome = train(second, schedule, outcome=loop.Outcome(**json.loads(states[1])))
    assert outcome.as_json() == expected.as_json()
    assert second.losses == [each for each in whole.losses if each[0] > 60]
    assert second.evaluations == [75, 100]


def test_without_an_interval_the_cost_of_a_save_decides() -> None:
    now = 0.0
    times = SaveTimes(clock=lambda: now)
    times.started()
    now = 59.0
    assert not times.due(10)
    now = 60.0
    assert times.due(10)
    times.saved(10, 4.0)
    now = 60.0 + 199.0
    assert not times.due(20)
    now += 2.0
    assert times.due(20)
    assert not times.due(10)


def test_a_listener_ends_the_training_after_an_evaluation() -> None:
    class Ends(Recorder):
        def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
            super().evaluated(step, split, metrics)
            if step == 50:
                self.stop_status = "pruned"

    recorder = Ends()
    outcome = train(recorder, loop.LoopSchedule(steps=100, log_every=10, evaluate_every=25, batch_size=8))
    assert (outcome.status, outcome.steps, recorder.evaluations) == ("pruned", 50, [25, 50])
    assert outcome.validation == {"rmse": 1.0}
