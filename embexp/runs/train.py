"""The training of a run; its final values are those of the last step or of the best evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from embexp.records.folder import RunFolder
from embexp.runs import evaluations
from embexp.runs.execute import Started
from embexp.runs.prepare import Prepared
from embexp.runtimes.execution import Execution
from embexp.training import loop, metrics
from embexp.training.early_stopping import EarlyStopping
from embexp.training.interruption import graceful_interruption
from embexp.training.listeners import Listener
from embexp.training.metrics_file import MetricsFile
from embexp.training.tensorboard import TensorBoard


@dataclass(frozen=True)
class Trained:
    """A training that has ended.

    Attributes:
        outcome: status, steps and metrics.
        final_step: the step of the final values.
    """

    outcome: loop.Outcome
    final_step: int


def train(prepared: Prepared, started: Started, folder: RunFolder, listeners: Sequence[Listener]) -> Trained:
    """Trains, and leaves the variables with their final values.

    Args:
        prepared: the run.
        started: its variables.
        folder: where metrics, events and the best checkpoint are written.
        listeners: called during training, beside those that write into the folder.
    """
    spec, schedule, execution, watch = prepared.spec, prepared.schedule, started.execution, started.watch
    validation = _validation(prepared, execution, folder)
    lines, events = MetricsFile(folder.metrics), TensorBoard(folder.events)
    everyone: list[Listener] = [*listeners, lines, *([events] if spec.output.tensorboard else []), watch]
    watch.report_to(lines.drifted, *([events.drifted] if spec.output.tensorboard else []))
    status = "failed"
    for listener in everyone:
        listener.started(schedule.steps, prepared.data.training_examples)
    try:
        with graceful_interruption() as interrupted:
            outcome = loop.train(
                execution.runtime,
                iter(execution.dataset(started.batches)),
                schedule=schedule,
                validation=validation,
                listeners=everyone,
                interrupted=interrupted,
                first_step_done=started.memory.stop,
            )
        status = outcome.status
    finally:
        for listener in everyone:
            listener.ended(status)
    best = outcome.best_step if spec.train.early_stopping.restore_best else None
    if best is None or best == outcome.steps:
        return Trained(outcome, outcome.steps)
    watch.trained(outcome.steps)
    execution.restore(folder.best_checkpoint)
    outcome.validation = None
    return Trained(outcome, best)


def _validation(prepared: Prepared, execution: Execution, folder: RunFolder) -> loop.Validation | None:
    """How the run is evaluated during training, with early stopping where it is on; None without a validation split."""
    spec, settings = prepared.spec, prepared.spec.train.early_stopping
    evaluate = evaluations.split_evaluation(spec, prepared.data, "validation")
    if evaluate is None:
        return None
    validation = loop.Validation(partial(evaluate, execution.runtime))
    if settings.patience is None:
        return validation
    metric = metrics.watched(spec.task, settings.metric)
    stopping = EarlyStopping(
        metric=metric,
        lower_is_better=metrics.DIRECTIONS[metric] is metrics.Direction.LOWER,
        patience=settings.patience,
        min_delta=settings.min_delta,
    )
    validation = replace(validation, stopping=stopping)
    if not settings.restore_best:
        return validation
    return replace(validation, keep_best=partial(execution.save, folder.best_checkpoint))
