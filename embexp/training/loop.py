"""The training loop: steps, logging, evaluation, early stopping, tidy interruption. Knows no TensorFlow."""

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
class Rhythm:
    """When things happen, all in steps.

    Attributes:
        steps: length of the training.
        log_every: steps between two logged losses.
        evaluate_every: steps between two evaluations.
    """

    steps: int
    log_every: int
    evaluate_every: int

    def next_stop(self, done: int) -> int:
        """The first step after `done` at which something is due."""
        return min(
            self.steps,
            (done // self.log_every + 1) * self.log_every,
            (done // self.evaluate_every + 1) * self.evaluate_every,
        )


def rhythm(
    *,
    examples: int,
    batch_size: int,
    steps: int | None,
    epochs: float | None,
    log_every: int | None,
    evaluate_every: int | None,
) -> Rhythm:
    """The rhythm of a training over `examples` examples; whichever of `steps` and `epochs` comes first ends it."""
    per_epoch = examples / batch_size
    limits = [steps] if steps is not None else []
    if epochs is not None:
        limits.append(max(1, math.ceil(epochs * per_epoch)))
    total = min(limits)
    return Rhythm(
        steps=total,
        log_every=log_every or max(1, total // 100),
        evaluate_every=evaluate_every or math.ceil(per_epoch),
    )


@dataclass
class Outcome:
    """What a training came to.

    Attributes:
        status: "completed", "stopped_early" or "interrupted".
        steps: steps done.
        best_step: step of the best evaluation, if early stopping watched one.
        train_loss: mean loss since the last log line before the end.
        validation: metrics of the last evaluation, if it came after the last step.
        examples_per_second: over the whole training, without tracing (the first call) and without evaluations.
        step_ms_median: median over the calls into the runtime of milliseconds per step, the first left out.
    """

    status: str = "completed"
    steps: int = 0
    best_step: int | None = None
    train_loss: float = math.nan
    validation: Mapping[str, float] | None = None
    examples_per_second: float | None = None
    step_ms_median: float | None = None
    _timings: list[tuple[int, float]] = field(default_factory=list, repr=False)

    def timed(self, steps: int, seconds: float, batch_size: int) -> None:
        """Takes in one call's timing."""
        self._timings.append((steps, seconds))
        self.examples_per_second = batch_size * sum(n for n, _ in self._timings) / sum(s for _, s in self._timings)
        self.step_ms_median = statistics.median(1e3 * s / n for n, s in self._timings)


def train(
    runtime: Runtime,
    iterator: Any,
    *,
    plan: Rhythm,
    batch_size: int,
    evaluate: Callable[[], Mapping[str, float]] | None,
    listeners: Sequence[Listener],
    interrupted: Callable[[], bool],
    first_step_done: Callable[[], object],
    stopping: EarlyStopping | None = None,
    keep_best: Callable[[], object] | None = None,
) -> Outcome:
    """Trains to the end of the plan, an early stop or an interruption, and says which.

    Args:
        runtime: executes steps.
        iterator: gives the batches, from the first step on.
        plan: how many steps, and when to log and evaluate.
        batch_size: examples of a step, for the throughput.
        evaluate: metrics of the validation part; None if there is none.
        listeners: are told of every logged loss and every evaluation.
        interrupted: whether the user asked to stop; asked several times a second.
        first_step_done: called once, after the first step.
        stopping: decides on early stopping; its metric is among those `evaluate` gives.
        keep_best: called when an evaluation is the best so far.

    Raises:
        DivergedError: the loss is not finite.
    """
    outcome = Outcome()
    call_steps = 1  # the first call traces and does a single step
    logged_at, loss_sum = 0, 0.0
    interval_seconds = 0.0
    while outcome.steps < plan.steps and not interrupted():
        outcome.validation = None
        steps = min(call_steps, plan.next_stop(outcome.steps) - outcome.steps)
        began = time.perf_counter()
        loss_sum += runtime.train(iterator, steps)
        seconds = time.perf_counter() - began
        interval_seconds += seconds
        if outcome.steps == 0:
            first_step_done()
            interval_seconds = 0.0
        else:
            outcome.timed(steps, seconds, batch_size)
            call_steps = max(1, min(2 * call_steps, round(_CALL_SECONDS * steps / max(seconds, 1e-9))))
        outcome.steps += steps
        for listener in listeners:
            listener.progressed(outcome.steps)
        if outcome.steps % plan.log_every == 0 or outcome.steps == plan.steps:
            outcome.train_loss = loss_sum / (outcome.steps - logged_at)
            _log(listeners, outcome, interval_seconds, logged_at, batch_size)
            logged_at, loss_sum, interval_seconds = outcome.steps, 0.0, 0.0
        if evaluate is not None and (outcome.steps % plan.evaluate_every == 0 or outcome.steps == plan.steps):
            metrics = evaluate()
            outcome.validation = metrics
            for listener in listeners:
                listener.evaluated(outcome.steps, "validation", metrics)
            # A metric may be undefined on a small part, such as AUC with one class: that decides nothing.
            if stopping is not None and stopping.metric in metrics:
                if stopping.update(metrics[stopping.metric]):
                    outcome.best_step = outcome.steps
                    if keep_best is not None:
                        keep_best()
                if stopping.stop:
                    outcome.status = "stopped_early"
                    return outcome
    if outcome.steps < plan.steps:
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
    # The first step's time is tracing, not throughput.
    steps = outcome.steps - max(since, 1)
    rate = batch_size * steps / seconds if seconds > 0 and steps > 0 else None
    for listener in listeners:
        listener.logged(outcome.steps, outcome.train_loss, rate)
