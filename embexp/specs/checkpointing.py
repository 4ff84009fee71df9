"""What a run saves of its state, and when."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from embexp.errors import Fault
from embexp.specs.base import Count, Positive, Spec
from embexp.specs.partial import where_known
from embexp.specs.running import RuntimeKind

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Save(StrEnum):
    """When a run saves checkpoints."""

    TRAINING = "training"
    """During training, and at its end."""
    END = "end"
    """At the end of the training only."""
    NEVER = "never"


class CheckpointKind(StrEnum):
    """How a checkpoint names variables."""

    OBJECT = "object"
    """By their place in the graph of objects, as `tf.train.Checkpoint` does."""
    NAME = "name"
    """By their global names, as `tf.compat.v1.train.Saver` does."""


class OnError(StrEnum):
    """What follows when a checkpoint can't be written during training."""

    CONTINUE = "continue"
    """The training goes on, with a warning."""
    STOP = "stop"
    """The run fails."""


class Checkpointing(Spec):
    """The checkpoints of a run: tables, slots, model, optimizer, position in the data, random generators, metrics."""

    save: Save = Save.TRAINING
    every_steps: Count | None = None
    """Steps between checkpoints during training."""
    every_minutes: Positive | None = None
    """Minutes between checkpoints during training; null in both: as often as costs less than 2% of the time."""
    keep: Count | None = 2
    """Checkpoints to keep during training, the newest; null: all, also after the end."""
    keep_best: bool = False
    """Keep that of the best evaluation, too."""
    kind: CheckpointKind = CheckpointKind.OBJECT
    incremental: Count | None = None
    """A whole checkpoint every so many; those between have the rows of tables that changed since. null: all whole."""
    on_error: OnError = OnError.CONTINUE

    @property
    def during_training(self) -> bool:
        """Whether checkpoints are saved during training."""
        return self.save is Save.TRAINING

    @property
    def described(self) -> str:
        """What is saved when, in words."""
        if self.save is Save.NEVER:
            return "no checkpoint"
        when = "at the end"
        if self.during_training:
            intervals = [f"{self.every_steps:,} steps" if self.every_steps is not None else ""]
            intervals.append(f"{self.every_minutes:g} minutes" if self.every_minutes is not None else "")
            given = " and ".join(filter(None, intervals))
            when = f"every {given}" if given else "as often as costs less than 2% of the time"
            when += f", keeping {'all' if self.keep is None else f'the newest {self.keep}'}, and at the end"
        best = ", and that of the best evaluation" if self.keep_best else ""
        incremental = f", a whole one every {self.incremental}" if self.incremental is not None else ""
        return f"checkpoints by {self.kind.value} {when}{best}{incremental}"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Intervals without effect, and a best checkpoint without a validation split."""
        return where_known(self._without_effect(scope), self._no_best(spec, scope), self._not_incremental(spec, scope))

    def _without_effect(self, scope: Scope) -> Iterator[Fault]:
        for name in ("every_steps", "every_minutes", "incremental"):
            value = getattr(self, name)
            if value is not None and not self.during_training:
                rule = f"it has no effect, as checkpoint.save is {self.save.value}"
                yield Fault(f"{scope.path}.{name}", str(value), rule, "set it to null, or checkpoint.save=training")
        if self.keep_best and self.save is Save.NEVER:
            rule = "there is no checkpoint to keep, as checkpoint.save is never"
            yield Fault(f"{scope.path}.keep_best", "true", rule, "set it to false, or checkpoint.save=training")

    def _not_incremental(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if self.incremental is None:
            return
        path = f"{scope.path}.incremental"
        if self.kind is CheckpointKind.NAME:
            rule = "programs that match by name know nothing of incremental checkpoints"
            yield Fault(path, str(self.incremental), rule, "set it to null, or checkpoint.kind=object")
        runtime = spec.executing_runtime
        if runtime in (RuntimeKind.SESSION, RuntimeKind.ESTIMATOR):
            rule = f"the runtime {runtime} saves by TensorFlow's own savers, which write whole tables"
            yield Fault(path, str(self.incremental), rule, "set it to null, or runtime=function")

    def _no_best(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        split = getattr(spec.data, "split", None)
        if self.keep_best and split is not None and not split.validates:
            rule = "the best evaluation is that of the validation split, and data.split.validation is 0"
            remedy = "set data.split.validation above 0, or keep_best to false"
            yield Fault(f"{scope.path}.keep_best", "true", rule, remedy)
