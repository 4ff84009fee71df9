"""The training of a run; its final values are those of the last step or of the best evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from embexp.checkpoints.series import SavedStep
from embexp.records.folder import RunFolder
from embexp.runs import evaluations, saving
from embexp.runs.execute import Started
from embexp.runs.prepare import Prepared
from embexp.runs.runtimes.execution import Execution
from embexp.runs.saving import Running
from embexp.specs.run import RunSpec
from embexp.system import interruption
from embexp.training import loop, metric_names
from embexp.training.listeners import Listener, MetricsFile
from embexp.training.loop import EarlyStopping, Replay


@dataclass(frozen=True)
class Trained:
    """A training that has ended."""

    outcome: loop.Outcome
    final_step: int
    saver: saving.RunSaver


def train(
    prepared: Prepared,
    started: Started,
    folder: RunFolder,
    listeners: Sequence[Listener],
    saved: SavedStep | None = None,
    replay: Replay | None = None,
) -> Trained:
    """Trains, and leaves the variables with their final values.

    Args:
        listeners: called during training, beside those that write into the folder.
        saved: the checkpoint to continue from; None: the training begins.
        replay: how it follows an earlier run, if it does.

    Raises:
        CheckpointError: `saved` does not fit the run, or a checkpoint can't be written.
    """
    spec, schedule, execution, watch = prepared.spec, prepared.schedule, started.execution, started.watch
    stopping = _stopping(spec)
    outcome = loop.Outcome() if saved is None else saving.restore_state(saved, started, stopping)
    resumed_at = () if saved is None else (*saved.state["resumed_at"], saved.step)
    everyone: list[Listener] = [*listeners, MetricsFile(folder.metrics), watch]

    def warn(sentence: str) -> None:
        execution.notes.append(sentence)
        for listener in everyone:
            listener.warned(sentence)

    saver = saving.RunSaver(Running(prepared, started, folder, stopping, resumed_at), warn)
    watch.report_to(*(listener.drifted for listener in everyone))
    validation = _validation(prepared, execution, stopping, partial(saver.keep_best, outcome))
    if saved is not None and validation is not None and outcome.best_step == outcome.steps:
        validation.keep_best()  # the process may have been killed between this checkpoint and its copy as the best
    training = loop.Loop(
        execution.runtime,
        schedule,
        validation,
        everyone,
        saver.saving(saved, replay),
    )
    status = "failed"
    for listener in everyone:
        listener.started(schedule.steps, prepared.data.training_examples)
        if saved is not None:
            listener.resumed(saved.step)
    try:
        with interruption.training() as interrupted:
            training.train(
                iter(execution.dataset(started.batches)),
                outcome,
                interrupted=lambda: interrupted() or _replayed(outcome, replay),
                first_step_done=started.memory.stop,
            )
        status = outcome.status
    finally:
        for listener in everyone:
            listener.ended(status)
    kept = kept_step(spec, outcome.steps, outcome.best_step)
    if kept != outcome.steps:
        watch.trained(outcome.steps)
        execution.restore(folder.best_checkpoint)
        outcome.validation = None
    return Trained(outcome, kept, saver)


def _replayed(outcome: loop.Outcome, replay: Replay | None) -> bool:
    """Whether the training has come to the step at which the one that it follows was interrupted."""
    return replay is not None and replay.stop_after is not None and outcome.steps >= replay.stop_after


def kept_step(spec: RunSpec, steps: int, best: int | None) -> int:
    """The step of a run's final values.

    Args:
        steps: that were trained.
        best: the step of the best evaluation, if it is known.
    """
    return best if best is not None and _restores_best(spec) else steps


def _restores_best(spec: RunSpec) -> bool:
    return spec.train.early_stopping.patience is not None and spec.train.early_stopping.restore_best


def _stopping(spec: RunSpec) -> EarlyStopping | None:
    """What follows the validation metric, to stop early or to know the best evaluation; None: nothing does."""
    settings = spec.train.early_stopping
    if settings.patience is None and not spec.checkpoint.keep_best:
        return None
    metric = metric_names.watched(spec.task, settings.metric, spec.recommendation.cutoffs, spec.metrics)
    return EarlyStopping(
        metric=metric,
        lower_is_better=metric_names.direction(metric, spec.own_metrics) is metric_names.Direction.LOWER,
        patience=settings.patience,
        min_delta=settings.min_delta,
    )


def _validation(
    prepared: Prepared, execution: Execution, stopping: EarlyStopping | None, keep_best: Callable[[], object]
) -> loop.Validation | None:
    """How the run is evaluated during training, with early stopping where it is on; None without a validation split."""
    spec = prepared.spec
    evaluate = evaluations.split_evaluation(spec, prepared.data, "validation")
    if evaluate is None:
        return None
    validation = loop.Validation(partial(evaluate, execution.runtime), stopping)
    if spec.checkpoint.keep_best or _restores_best(spec):
        return replace(validation, keep_best=keep_best)
    return validation
