"""The training loop: steps, logging, evaluation, early stopping, interruption. Imports no TensorFlow."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embexp.errors import DivergedError
from embexp.training.early_stopping import EarlyStopping
from embexp.training.listeners import Listener
from embexp.training.runtime import Runtime

_CALL_SECONDS = 0.2
"""How long one call into the runtime should last: short enough for a progress bar and for Ctrl-C."""


@dataclass(frozen=True)
class LoopSchedule:
    """How long to train, and when to log and to evaluate.

    Attributes:
        steps: total number of steps.
        log_every: steps between two logged losses.
        evaluate_every: steps between two evaluations.
        batch_size: examples per step.
    """

    steps: int
    log_every: int
    evaluate_every: int
    batch_size: int

    def next_stop(self, done: int) -> int:
        """The first step after `done` at which to log, to evaluate or to end."""
        return min(
            self.steps,
            (done // self.log_every + 1) * self.log_every,
            (done // self.evaluate_every + 1) * self.evaluate_every,
        )


def loop_schedule(
    *,
    examples: int,
    batch_size: int,
    steps: int | None,
    epochs: float | None,
    log_every: int | None,
    evaluate_every: int | None,
) -> LoopSchedule:
    """The schedule of a training run on `examples` examples; `steps` or `epochs`, whichever comes first, ends it.

    Unless set, `log_every` gives about a hundred log lines, and `evaluate_every` an evaluation per epoch.
    """
    per_epoch = examples / batch_size
    limits = [steps] if steps is not None else []
    if epochs is not None:
        limits.append(max(1, math.ceil(epochs * per_epoch)))
    total = min(limits)
    return LoopSchedule(
        steps=total,
        log_every=log_every or max(1, total // 100),
        evaluate_every=evaluate_every or math.ceil(per_epoch),
        batch_size=batch_size,
    )


@dataclass(frozen=True)
class Validation:
    """The evaluation of the validation split during training, with early stopping.

    Attributes:
        evaluate: returns the metrics of the validation split.
        stopping: decides on early stopping by one of these metrics; None: training never stops early.
        keep_best: called whenever an evaluation is the best so far; needs `stopping`.
    """

    evaluate: Callable[[], Mapping[str, float]]
    stopping: EarlyStopping | None = None
    keep_best: Callable[[], object] = lambda: None


@dataclass
class Outcome:
    """The outcome of a training loop.

    Attributes:
        status: "completed", "stopped_early" or "interrupted".
        steps: steps executed.
        best_step: step of the best evaluation; None without early stopping.
        train_loss: mean loss since the last log event.
        validation: metrics of the last evaluation, if that came after the last step.
        examples_per_second: over all steps, without the first call (which traces) and without evaluations.
        step_ms_median: median over the calls into the runtime, but the first, of milliseconds per step.
    """

    status: str = "completed"
    steps: int = 0
    best_step: int | None = None
    train_loss: float = math.nan
    validation: Mapping[str, float] | None = None
    examples_per_second: float | None = None
    step_ms_median: float | None = None
    _timings: list[tuple[int, float]] = field(default_factory=list, repr=False)

    def record_call(self, steps: int, seconds: float, batch_size: int) -> None:
        """Adds the timing of one call into the runtime."""
        self._timings.append((steps, seconds))
        self.examples_per_second = batch_size * sum(n for n, _ in self._timings) / sum(s for _, s in self._timings)
        self.step_ms_median = statistics.median(1e3 * s / n for n, s in self._timings)


def train(
    runtime: Runtime,
    iterator: Any,
    *,
    schedule: LoopSchedule,
    validation: Validation | None,
    listeners: Sequence[Listener],
    interrupted: Callable[[], bool],
    first_step_done: Callable[[], object],
) -> Outcome:
    """Trains until the schedule ends, early stopping or an interruption.

    Args:
        runtime: executes steps.
        iterator: yields the batches, starting with that of the first step.
        schedule: how many steps, and when to log and to evaluate.
        validation: how to evaluate; None without a validation split.
        listeners: receive every logged loss and every evaluation.
        interrupted: whether the user has requested the end; called several times a second.
        first_step_done: called once, after the first step.

    Returns:
        Why training ended, after how many steps, and the figures of the run.

    Raises:
        DivergedError: the loss is not finite.
    """
    outcome = Outcome()
    call_steps = 1  # the first call traces and does a single step
    logged_at, loss_sum = 0, 0.0
    interval_seconds = 0.0
    while outcome.steps < schedule.steps and not interrupted():
        outcome.validation = None
        steps = min(call_steps, schedule.next_stop(outcome.steps) - outcome.steps)
        start = time.perf_counter()
        loss_sum += runtime.train(iterator, steps)
        seconds = time.perf_counter() - start
        interval_seconds += seconds
        if outcome.steps == 0:
            first_step_done()
            interval_seconds = 0.0
        else:
            outcome.record_call(steps, seconds, schedule.batch_size)
            call_steps = max(1, min(2 * call_steps, round(_CALL_SECONDS * steps / max(seconds, 1e-9))))
        outcome.steps += steps
        for listener in listeners:
            listener.progressed(outcome.steps)
        if outcome.steps % schedule.log_every == 0 or outcome.steps == schedule.steps:
            outcome.train_loss = loss_sum / (outcome.steps - logged_at)
            _log(listeners, outcome, interval_seconds, logged_at, schedule.batch_size)
            logged_at, loss_sum, interval_seconds = outcome.steps, 0.0, 0.0
        evaluation_due = outcome.steps % schedule.evaluate_every == 0 or outcome.steps == schedule.steps
        if validation is not None and evaluation_due:
            metrics, stopping = validation.evaluate(), validation.stopping
            outcome.validation = metrics
            for listener in listeners:
                listener.evaluated(outcome.steps, "validation", metrics)
            # A metric may be undefined on a small split, as AUC is with one class: that counts as no evaluation.
            if stopping is not None and stopping.metric in metrics:
                if stopping.update(metrics[stopping.metric]):
                    outcome.best_step = outcome.steps
                    validation.keep_best()
                if stopping.stop:
                    outcome.status = "stopped_early"
                    return outcome
    if outcome.steps < schedule.steps:
        outcome.status = "interrupted"
        if outcome.steps > logged_at:
            outcome.train_loss = loss_sum / (outcome.steps - logged_at)
    return outcome


def _log(listeners: Sequence[Listener], outcome: Outcome, seconds: float, since: int, batch_size: int) -> None:
    if not math.isfinite(outcome.train_loss):
        raise DivergedError(
            f"the loss is {outcome.train_loss} at step {outcome.steps}: the training has diverged; a smaller"
            " optimizer.learning_rate or dense_optimizer.learning_rate is the usual remedy"
        )
    # The first step's time is spent on tracing, so it says nothing about throughput.
    steps = outcome.steps - max(since, 1)
    rate = batch_size * steps / seconds if seconds > 0 and steps > 0 else None
    for listener in listeners:
        listener.logged(outcome.steps, outcome.train_loss, rate)
