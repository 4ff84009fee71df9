"""The training loop: steps, logging, evaluation, early stopping, saving, interruption. Imports no TensorFlow."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from embexp.errors import DivergedError
from embexp.training.listeners import Listener, Pacing

_CALL_SECONDS = 0.2
"""Desired duration of one call into the runtime: short enough for a progress bar and for Ctrl-C."""
_SHARE = 0.02
"""Share of the time that checkpoints may take if the config sets no interval."""
_SHORTEST_SECONDS = 60.0
"""Shortest interval if the config sets none, because a shorter training is simply repeated."""


@dataclass(frozen=True)
class LoopSchedule:
    """How long to train, and when to log and to evaluate.

    Attributes:
        steps: total number of steps.
        log_every: steps between two logged losses.
        evaluate_every: steps between two evaluations.
        batch_size: examples per step.
        epoch: examples between two resets of rows; None: none is reset.
    """

    steps: int
    log_every: int
    evaluate_every: int
    batch_size: int
    epoch: int | None = None

    def next_stop(self, done: int) -> int:
        """The first step after `done` at which to log, to evaluate, to reset rows or to end."""
        return min(
            self.steps,
            (done // self.log_every + 1) * self.log_every,
            (done // self.evaluate_every + 1) * self.evaluate_every,
            self.steps if self.epoch is None else -(-(self._epochs(done) + 1) * self.epoch // self.batch_size),
        )

    def resets_at(self, step: int) -> bool:
        """Whether rows are reset after this step, before the next: the first step with which an epoch is over."""
        return 0 < step < self.steps and self._epochs(step) > self._epochs(step - 1)

    def resets(self, done: int) -> int:
        """How many resets there were in `done` steps, without one that would follow the last of them."""
        return len(self._reset_steps(done))

    def _reset_steps(self, done: int) -> set[int]:
        """The steps before `done` after which rows are reset."""
        return {-(-each * (self.epoch or 0) // self.batch_size) for each in range(1, self._epochs(done - 1) + 1)}

    def _epochs(self, step: int) -> int:
        """Number of epochs that are over after so many steps; 0 if no row is ever reset."""
        return 0 if self.epoch is None else max(step, 0) * self.batch_size // self.epoch

    def logs_at(self, step: int) -> bool:
        """Whether the loss is logged after this step."""
        return step % self.log_every == 0 or step == self.steps

    def evaluates_at(self, step: int) -> bool:
        """Whether the validation split is evaluated after this step."""
        return step % self.evaluate_every == 0 or step == self.steps or self.resets_at(step)

    def evaluations(self, done: int = 0) -> int:
        """How many evaluations come after `done` steps."""
        last = self.steps % self.evaluate_every != 0 and done < self.steps
        before_resets = sum(step > done and step % self.evaluate_every != 0 for step in self._reset_steps(self.steps))
        return self.steps // self.evaluate_every - done // self.evaluate_every + last + before_resets


def loop_schedule(
    *,
    examples: int,
    batch_size: int,
    steps: int | None,
    epochs: float | None,
    log_every: int | None,
    evaluate_every: int | None,
    resets: bool = False,
) -> LoopSchedule:
    """The schedule of a training run on `examples` examples; `steps` or `epochs`, whichever comes first, ends it.

    Unless set, `log_every` gives about a hundred log lines, and `evaluate_every` an evaluation per epoch.

    Args:
        resets: whether rows are reset with each epoch, and so evaluated right before.
    """
    per_epoch = examples / batch_size
    limits = [steps] if steps is not None else []
    if epochs is not None:
        limits.append(max(1, math.ceil(epochs * per_epoch)))
    total = min(limits)
    return LoopSchedule(
        steps=total,
        log_every=log_every or max(1, total // 100),
        evaluate_every=evaluate_every or (total if resets else math.ceil(per_epoch)),
        batch_size=batch_size,
        epoch=examples if resets else None,
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


@dataclass(frozen=True)
class Saving:
    """How the state of the training is saved.

    Attributes:
        save: saves the state after the steps of an outcome.
    """

    times: SaveTimes
    save: Callable[[Outcome], object]

    def save_now(self, outcome: Outcome) -> None:
        """Saves the state, unless that after this step is saved already."""
        if outcome.steps and outcome.steps != self.times.last_step:
            began = time.perf_counter()
            self.save(outcome)
            self.times.saved(outcome.steps, time.perf_counter() - began)


@dataclass
class Outcome:
    """The outcome of a training loop so far.

    Attributes:
        status: "completed", "stopped_early", "interrupted", or that with which a listener ended the training.
        stopped_by: why it stopped early; None: it did not.
        best_step: step of the best evaluation; None without one.
        train_loss: mean loss since the last log event.
        validation: metrics of the last evaluation, if that came after the last step.
        logged_at: step of the last log event.
        examples_per_second: over all steps, without the first call (which traces) and without evaluations.
        step_ms_median: median over the calls into the runtime, but the first, of milliseconds per step.
    """

    status: str = "completed"
    stopped_by: StoppedBy | None = None
    steps: int = 0
    best_step: int | None = None
    train_loss: float = math.nan
    validation: Mapping[str, float] | None = None
    logged_at: int = 0
    loss_sum: float = 0.0
    examples_per_second: float | None = None
    step_ms_median: float | None = None
    _timings: list[tuple[int, float]] = field(default_factory=list, repr=False)

    def record_call(self, steps: int, seconds: float, batch_size: int) -> None:
        """Adds the timing of one call into the runtime."""
        self._timings.append((steps, seconds))
        self.examples_per_second = batch_size * sum(n for n, _ in self._timings) / sum(s for _, s in self._timings)
        self.step_ms_median = statistics.median(1e3 * s / n for n, s in self._timings)

    def as_json(self) -> dict[str, Any]:
        """What a training needs to continue from here; floats keep their bits."""
        return {
            "steps": self.steps,
            "best_step": self.best_step,
            "train_loss": self.train_loss,
            "validation": None if self.validation is None else dict(self.validation),
            "logged_at": self.logged_at,
            "loss_sum": self.loss_sum,
        }


@dataclass(frozen=True)
class Loop:
    """The training loop of a run.

    Attributes:
        schedule: how many steps, and when to log and to evaluate.
        validation: how to evaluate; None without a validation split.
        listeners: receive every logged loss and every evaluation.
        saving: how the state is saved during training; None: it is not.
        reset: gives rows their initial values again, and returns how many of each table.
    """

    runtime: Runtime
    schedule: LoopSchedule
    validation: Validation | None = None
    listeners: Sequence[Listener] = ()
    saving: Saving | None = None
    reset: Callable[[], Mapping[str, int]] = dict

    def train(
        self,
        iterator: Any,
        outcome: Outcome,
        *,
        interrupted: Callable[[], bool],
        first_step_done: Callable[[], object],
    ) -> Outcome:
        """Trains until the schedule ends, early stopping or an interruption.

        Args:
            iterator: yields the batches, starting with that of the step after `outcome.steps`.
            outcome: of the training before this call: a new one, or that of a checkpoint.
            interrupted: whether the user has requested the end; called several times a second.
            first_step_done: called once, after the first step.

        Returns:
            `outcome`: why training ended, after how many steps, and the figures of the run.

        Raises:
            DivergedError: the loss is not finite.
        """
        schedule, saving = self.schedule, self.saving
        call_steps = 0  # the first call traces and does a single step
        interval_seconds, timed_from = 0.0, outcome.steps
        pacing = Pacing()
        if saving is not None:
            saving.times.started()
        if self._stopped(outcome):  # by the evaluation before the restored checkpoint
            return outcome
        while outcome.steps < schedule.steps and not interrupted():
            outcome.validation = None
            if schedule.resets_at(outcome.steps):  # also where a checkpoint is continued, which was written before
                rows = self.reset()
                for listener in self.listeners:
                    listener.reset(outcome.steps, rows)
            if not call_steps:
                for listener in self.listeners:
                    listener.working("tracing the training step", None)
            steps = min(max(1, call_steps), self._next_stop(outcome.steps) - outcome.steps)
            start = time.perf_counter()
            outcome.loss_sum += self.runtime.train(iterator, steps)
            seconds = time.perf_counter() - start
            outcome.steps += steps
            if not call_steps:
                first_step_done()
                call_steps, timed_from = 1, outcome.steps
            else:
                interval_seconds += seconds
                pacing.timed(steps, seconds)
                outcome.record_call(steps, seconds, schedule.batch_size)
                call_steps = max(1, min(2 * call_steps, round(_CALL_SECONDS * steps / max(seconds, 1e-9))))
            self._show_progress(outcome, pacing)
            if schedule.logs_at(outcome.steps):
                self._log(outcome, interval_seconds, outcome.steps - timed_from)
                interval_seconds, timed_from = 0.0, outcome.steps
            if self.validation is not None and schedule.evaluates_at(outcome.steps):
                start = time.perf_counter()
                ended_as = self._evaluate(self.validation, outcome)
                pacing.evaluation_seconds = time.perf_counter() - start
                if self._stopped(outcome):
                    return outcome
                if ended_as is not None:
                    outcome.status = ended_as
                    return outcome
            if saving is not None and saving.times.due(outcome.steps):
                saving.save_now(outcome)
        if outcome.steps < schedule.steps:
            if saving is not None:
                saving.save_now(outcome)
            outcome.status = "interrupted"
            if outcome.steps > outcome.logged_at:
                outcome.train_loss = outcome.loss_sum / (outcome.steps - outcome.logged_at)
        return outcome

    def _show_progress(self, outcome: Outcome, pacing: Pacing) -> None:
        schedule, since = self.schedule, outcome.steps - outcome.logged_at
        pace = pacing.pace(
            outcome.steps,
            loss=outcome.loss_sum / since if since else None,
            steps_left=schedule.steps - outcome.steps,
            # The reset after this very step is still to come.
            evaluations_left=0 if self.validation is None else schedule.evaluations(outcome.steps - 1),
        )
        for listener in self.listeners:
            listener.progressed(outcome.steps)
            listener.paced(pace)

    def _next_stop(self, done: int) -> int:
        """The first step after `done` at which the loop has something to do."""
        stop = self.schedule.next_stop(done)
        save = None if self.saving is None else self.saving.times.next_step(done)
        return stop if save is None else min(stop, save)

    def _log(self, outcome: Outcome, seconds: float, steps: int) -> None:
        """Reports the mean loss since the last log event.

        Args:
            outcome: the outcome after the step.
            seconds: duration of the timed steps since then.
        """
        outcome.train_loss = outcome.loss_sum / (outcome.steps - outcome.logged_at)
        outcome.logged_at, outcome.loss_sum = outcome.steps, 0.0
        if not math.isfinite(outcome.train_loss):
            raise DivergedError(
                f"the loss is {outcome.train_loss} at step {outcome.steps}: training has diverged; a smaller"
                " optimizer.learning_rate or dense_optimizer.learning_rate is the usual remedy"
            )
        rate = self.schedule.batch_size * steps / seconds if seconds > 0 and steps > 0 else None
        for listener in self.listeners:
            listener.logged(outcome.steps, outcome.train_loss, rate)

    def _stopped(self, outcome: Outcome) -> bool:
        """Whether the evaluations so far end the training early. At the last step, they never do."""
        stopping = None if self.validation is None else self.validation.stopping
        if stopping is None or stopping.stopped_by is None or outcome.steps >= self.schedule.steps:
            return False
        outcome.status, outcome.stopped_by = "stopped_early", stopping.stopped_by
        return True

    def _evaluate(self, validation: Validation, outcome: Outcome) -> str | None:
        """Evaluates the validation split. If a listener ends the training, returns its status."""
        metrics, stopping = validation.evaluate(), validation.stopping
        outcome.validation = metrics
        for listener in self.listeners:
            listener.evaluated(outcome.steps, "validation", metrics)
        # A metric may be undefined on a small split, such as AUC with one class. This does not count as an evaluation.
        if stopping is not None and stopping.metric in metrics and stopping.update(metrics[stopping.metric]):
            outcome.best_step = outcome.steps
            if self.saving is not None:
                self.saving.save_now(outcome)
            validation.keep_best()
        return next((each.stop_status for each in self.listeners if each.stop_status is not None), None)


class StoppedBy(StrEnum):
    """Why a training stopped early."""

    PATIENCE = "patience"
    """The metric has not improved for some evaluations."""
    PERFECT = "perfect"
    """The metric is as good as it can be."""


PERFECT_TIMES = 2
"""Evaluations in a row whose metric is as good as it can be, after which a training stops: one may be chance."""


@dataclass
class EarlyStopping:
    """Follows the values of one metric, remembers the best and decides when to stop.

    Attributes:
        patience: consecutive evaluations without improvement after which to stop; None: never.
        min_delta: a value must be better than the best by more than this to count as an improvement.
        limit: a value as good as this can't get better in a way that matters; None: there is no such value.
        best: the best value so far; None before the first. NaN is never the best.
        perfect: consecutive evaluations that reached the limit, up to the last one.
    """

    metric: str
    lower_is_better: bool
    patience: int | None
    min_delta: float = 0.0
    best: float | None = None
    waited: int = 0
    limit: float | None = None
    perfect: int = 0

    def update(self, value: float) -> bool:
        """Takes the next value and returns whether it is the best so far."""
        gain = 0.0 if self.best is None else self.best - value if self.lower_is_better else value - self.best
        improved = not math.isnan(value) if self.best is None else gain > self.min_delta
        if improved:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        reached = self.limit is not None and (value <= self.limit if self.lower_is_better else value >= self.limit)
        self.perfect = self.perfect + 1 if reached else 0
        return improved

    @property
    def stopped_by(self) -> StoppedBy | None:
        """Why to stop now; None: there is no reason, or the training never stops early."""
        if self.patience is None:
            return None
        if self.perfect >= PERFECT_TIMES:
            return StoppedBy.PERFECT
        return StoppedBy.PATIENCE if self.waited >= self.patience else None


@dataclass(frozen=True)
class Replay:
    """How a training follows an earlier one, to be compared with it.

    Attributes:
        save_at: the steps after which its state is saved, and only these.
        stop_after: the step after which it ends as if interrupted, as the earlier one was; None: at its own end.
    """

    save_at: Sequence[int] = ()
    stop_after: int | None = None

    @property
    def stops(self) -> tuple[int, ...]:
        """All steps after which something is to be done, in order."""
        return tuple(sorted({*self.save_at, *([] if self.stop_after is None else [self.stop_after])}))


@dataclass
class SaveTimes:
    """Decides after which steps a training saves its state.

    Attributes:
        every_steps: steps between two saves; None: time decides.
        every_seconds: seconds between two saves; None: the cost of the last one decides.
        last_step: step of the last save.
        only_at: the steps after which it is saved, in order, whatever else is set; None: the others decide.
    """

    every_steps: int | None = None
    every_seconds: float | None = None
    last_step: int = 0
    only_at: Sequence[int] | None = None
    clock: Callable[[], float] = time.monotonic
    _cost: float = 0.0
    _since: float = field(default=0.0, repr=False)

    def started(self) -> None:
        """The training begins now."""
        self._since = self.clock()

    def next_step(self, done: int) -> int | None:
        """The first step after `done` at which a save is due by the number of steps; None: never."""
        if self.only_at is not None:
            return next((step for step in self.only_at if step > done), None)
        return None if self.every_steps is None else (done // self.every_steps + 1) * self.every_steps

    def due(self, step: int) -> bool:
        """Whether the state after `step` steps is to be saved."""
        if step == self.last_step:
            return False
        if self.only_at is not None:
            return step in self.only_at
        if self.every_steps is not None and step % self.every_steps == 0:
            return True
        if self.every_seconds is not None:
            return self.clock() - self._since >= self.every_seconds
        return self.every_steps is None and self.clock() - self._since >= max(_SHORTEST_SECONDS, self._cost / _SHARE)

    def saved(self, step: int, seconds: float) -> None:
        """The state after `step` steps was saved, which took `seconds`."""
        self.last_step, self._cost, self._since = step, seconds, self.clock()


class Predictor(Protocol):
    """Executes forward passes."""

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch its labels, float32 [B], and logits, float32 [B] or [B, C], after the last step."""


class Runtime(Predictor, Protocol):
    """Executes steps and forward passes."""

    @property
    def graph_def_bytes(self) -> int | None:
        """Size of the GraphDef that holds the training step, in bytes; None before the first step."""

    @property
    def fused_operations(self) -> list[str] | None:
        """The libraries of fused operations that the training step calls; None before the first step."""

    def train(self, iterator: Any, steps: int) -> float:
        """Does `steps` steps and returns the sum of their losses.

        Raises:
            VocabularyError: an id is outside its table.
            RunError: another fault of the inputs.
        """
