"""How runs are executed: length, evaluations, early stopping, runtime, checkpoints, output; sweeps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import (
    BatchSize,
    Count,
    JobCount,
    NonNegative,
    Positive,
    Spec,
    WholeNumber,
    broken,
    where_known,
)
from embexp.specs.models import ClassWeights

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

Key = Annotated[str, Field(min_length=1)]


class EarlyStopping(Spec):
    """Ends the training when a validation metric has not improved for `patience` evaluations; null: never.

    With a patience it also ends after two evaluations in a row whose metric can hardly improve.
    """

    patience: Count | None = None
    metric: str | None = None
    """Name of a validation metric; null: the task's first (rmse, log_loss, accuracy, mrr, ndcg_at_k)."""
    min_delta: NonNegative = 0.0
    """An improvement must be larger than this."""
    restore_best: bool = True
    """Restore the values of the best evaluation at the end."""

    @property
    def restores_best(self) -> bool:
        """Whether the final values are those of the best evaluation, where there was one."""
        return self.patience is not None and self.restore_best

    def final_step(self, steps: int, best: int | None) -> int:
        """The step of a run's final values.

        Args:
            best: the step of the best evaluation, if it is known.
        """
        return best if best is not None and self.restores_best else steps

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Early stopping without a validation split."""
        if self.patience is not None and not getattr(spec.data, "validates", True):
            rule = "early stopping needs a validation split, but data.split.validation is 0"
            remedy = "set data.split.validation above 0, or set patience to null"
            yield Fault(f"{scope.path}.patience", str(self.patience), rule, remedy)


class Train(Spec):
    """Length of the training, batches and evaluations. Whichever of steps and epochs comes first ends it."""

    steps: Count | None = None
    epochs: Positive | None = None
    """Passes over the training split; a fraction is allowed."""
    batch_size: BatchSize = 1024
    evaluation_batch_size: BatchSize = 8192
    evaluate_every: Count | None = None
    """Steps between evaluations on the validation split; null: once per epoch."""
    log_every: Count | None = None
    """Steps between logged losses; null: about 100 lines a run."""
    standardize_labels: bool = False
    """Task regression: predict labels around their mean, in units of their standard deviation in training."""
    class_weights: ClassWeights = None
    """Tasks binary and classification: how much the examples of each class count in the loss; null: all the same."""
    early_stopping: EarlyStopping = EarlyStopping.model_construct()

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Weights where there are no examples with labels to weigh."""
        return where_known(self._no_classes(spec, scope), _nothing_to_weigh(spec))

    def _no_classes(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if self.class_weights is not None and not spec.task.has_classes:
            rule = f"it weights classes, but task {spec.task} has none"
            yield Fault(f"{scope.path}.class_weights", str(self.class_weights), rule, "leave it null")

    @model_validator(mode="after")
    def _ends(self) -> Train:
        if self.steps is None and self.epochs is None:
            rule = "neither steps nor epochs is set, so training would never end"
            raise broken(rule, "steps", "epochs", such_as="epochs=10")
        return self


def _nothing_to_weigh(spec: RunSpec) -> Iterator[Fault]:
    weight = getattr(spec.data, "weight", None)
    if weight is not None and spec.task.labels is None:
        rule = f"it weights labelled examples, but task {spec.task} compares items"
        yield Fault("data.weight", repr(weight), rule, "leave it null")


class RuntimeKind(StrEnum):
    """How steps are executed."""

    AUTO = "auto"
    FUNCTION = "function"
    """A `tf.function`."""
    SESSION = "session"
    """A graph of TensorFlow 1 in a session."""
    ESTIMATOR = "estimator"
    """`tf.estimator`, by the package tensorflow-estimator."""


class Runtime(Spec):
    """How steps are executed; auto: the first runtime that all tables' init methods share."""

    kind: RuntimeKind = RuntimeKind.AUTO


class Existing(StrEnum):
    """What a run does whose directory is there already."""

    REFUSE = "refuse"
    """End with an error."""
    NUMBER = "number"
    """Take the next free name, `…_2`."""
    REPLACE = "replace"
    """Remove the complete run in it."""
    CONTINUE = "continue"
    """Resume the run in it, which must have the same spec."""


class VectorTests(Spec):
    """Files with tests of vectors, as `embexp vectors evaluate` reads them."""

    similarity: tuple[Key, ...] = ()
    """Pairs of words and a number, such as WordSim-353."""
    analogies: tuple[Key, ...] = ()
    """Lines of four words, such as Google's."""
    categories: tuple[Key, ...] = ()
    """Words and their categories."""

    @property
    def files(self) -> dict[str, tuple[str, ...]]:
        """The files by kind; empty: there are none."""
        found = {"similarity": self.similarity, "analogies": self.analogies, "categories": self.categories}
        return {kind: each for kind, each in found.items() if each}


class Output(Spec):
    """What a run writes; not part of its identity."""

    existing: Existing = Existing.REFUSE
    """If a directory that was named is there already."""
    data: bool = True
    """Record data that `embexp.run` got in memory in the run's directory; without it the run can't be repeated."""
    cache: str | None = None
    """Folder for scanned data; null: the user's cache folder."""
    tensorboard: bool = True
    projector_rows: WholeNumber = 10_000
    """Rows of each table that TensorBoard's projector shows, the most frequent ones; 0: none."""
    plots: bool = True
    digests: bool = True
    """Compute a digest of each final table and report changed rows, by hashes of all rows (7 s for 3 GB)."""
    baselines: bool = True
    """Fit a simple model, such as logistic regression, to compare with."""
    vectors: VectorTests = VectorTests.model_construct()
    """Tests that the vectors of each table take at the end, if it has their words."""
    compare: tuple[Annotated[str, Field(pattern=r"^\w+(\.\w+)*$")], ...] = ()
    """Keys of summary.json, dotted, whose values become columns of a sweep's table."""


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
    """What follows when a checkpoint or a line of metrics.jsonl can't be written, or a tracker can't be reached."""

    CONTINUE = "continue"
    """The run goes on, with a warning. Lines are written once there is room, at the end at the latest."""
    STOP = "stop"
    """The run fails."""


class Checkpointing(Spec):
    """The checkpoints of a run: tables, slots, model, optimizer, position in the data, random generators, metrics."""

    save: Save = Save.TRAINING
    every_steps: Count | None = None
    """Steps between checkpoints during training."""
    every_minutes: Positive | None = None
    """Minutes between checkpoints during training; null in both: as often as possible at under 2% of the run time."""
    keep: Count | None = 2
    """Checkpoints to keep during training, the newest; null: all, also after the end."""
    keep_best: bool = False
    """Keep that of the best evaluation, too."""
    kind: CheckpointKind = CheckpointKind.OBJECT
    incremental: Count | None = None
    """A whole checkpoint every so many; those between have the rows of tables that changed since. null: all whole."""
    since_parent: bool = True
    """In a run that goes on from a parent, only rows that moved since are saved, if they are less than half."""
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
        when = " at the end"
        if self.during_training:
            intervals = [f"{self.every_steps:,} steps" if self.every_steps is not None else ""]
            intervals.append(f"{self.every_minutes:g} minutes" if self.every_minutes is not None else "")
            given = " and ".join(filter(None, intervals))
            when = f" every {given}" if given else ", as often as possible at under 2% of the run time"
            when += f", keeping {'all' if self.keep is None else f'the newest {self.keep}'}, and at the end"
        best = ", and the checkpoint of the best evaluation" if self.keep_best else ""
        incremental = f", a whole one every {self.incremental}" if self.incremental is not None else ""
        return f"{self.kind.value}-based checkpoints{when}{best}{incremental}"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Intervals without effect, and a best checkpoint without a validation split."""
        return where_known(self._without_effect(scope), self._no_best(spec, scope), self._not_incremental(spec, scope))

    def _without_effect(self, scope: Scope) -> Iterator[Fault]:
        for name in ("every_steps", "every_minutes", "incremental"):
            value = getattr(self, name)
            if value is not None and not self.during_training:
                rule = f"it has no effect because checkpoint.save is {self.save.value}"
                yield Fault(f"{scope.path}.{name}", str(value), rule, "set it to null, or set checkpoint.save=training")
        if self.keep_best and self.save is Save.NEVER:
            rule = "there is no checkpoint to keep because checkpoint.save is never"
            yield Fault(f"{scope.path}.keep_best", "true", rule, "set it to false, or set checkpoint.save=training")

    def _not_incremental(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if self.incremental is None:
            return
        path = f"{scope.path}.incremental"
        if self.kind is CheckpointKind.NAME:
            rule = "programs that match variables by name can't read incremental checkpoints"
            yield Fault(path, str(self.incremental), rule, "set it to null, or set checkpoint.kind=object")
        runtime = spec.executing_runtime
        if runtime in (RuntimeKind.SESSION, RuntimeKind.ESTIMATOR):
            rule = f"runtime {runtime} writes only full checkpoints"
            yield Fault(path, str(self.incremental), rule, "set it to null, or set runtime=function")

    def _no_best(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if self.keep_best and not getattr(spec.data, "validates", True):
            rule = "the best evaluation is chosen on the validation split, but data.split.validation is 0"
            remedy = "set data.split.validation above 0, or set keep_best to false"
            yield Fault(f"{scope.path}.keep_best", "true", rule, remedy)


class Restoring(Spec):
    """Variables restored from a checkpoint, of whatever program, after tables and model have their initial values."""

    path: Key | None = None
    """The checkpoint; null: nothing is restored."""
    only: Annotated[tuple[Key, ...], Field(min_length=1)] | None = None
    """Paths or names of what to restore; null: everything."""
    rename: dict[Key, Key] = Field(default_factory=dict)
    """The path or name in this run, by that in the checkpoint."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings without a checkpoint, and a runtime that can't restore."""
        return where_known(self._without_effect(scope), self._not_in_estimators(spec, scope))

    def _without_effect(self, scope: Scope) -> Iterator[Fault]:
        if self.path is None:
            renamed = ", ".join(f"{key}: {name}" for key, name in self.rename.items())
            for name, value in (("only", f"[{', '.join(self.only or ())}]"), ("rename", f"{{{renamed}}}")):
                if getattr(self, name):
                    rule = "it has no effect because restore.path is null"
                    yield Fault(f"{scope.path}.{name}", value, rule, "set restore.path to a checkpoint")

    def _not_in_estimators(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if self.path is not None and spec.executing_runtime is RuntimeKind.ESTIMATOR:
            rule = "an Estimator restores only its own checkpoints"
            remedy = "choose runtime=session or runtime=function"
            yield CombinationFault(f"{scope.path}.path", repr(self.path), rule, remedy)


Value = bool | int | float | str | None
Metric = Annotated[str, Field(min_length=1)]


class Sweep(Spec):
    """What concerns a sweep as a whole; not part of the identity of its runs."""

    exclude: tuple[Annotated[dict[str, Value], Field(min_length=1)], ...] = ()
    """Settings that are left out: choices by group and values by key, such as `{init: constant, freeze: table}`."""
    objective: Metric | tuple[Metric, ...] | None = None
    """Metrics that a search optimizes, such as `validation auc`; null: the task's first on the validation split."""
    max_jobs: Count = 10_000
    """Most jobs, of all settings and seeds; a sweep with more is an error before any of them is checked."""


class Launching(Spec):
    """How the jobs of a sweep are run: `hydra.launcher`."""

    jobs: JobCount | Literal["auto"] = 1
    """Jobs at once; auto: as many as have a core of their own, or a GPU."""
    timeout_minutes: Positive | None = None
    """Time limit of a job; null: none."""
    retries: WholeNumber = 0
    """Further attempts at a job whose process crashed."""
    stop_after: Count | None = None
    """Jobs that failed with the same error before no further job is started; null: all are started."""


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)? ?(?:(\d+(?:\.\d+)?)h)? ?(?:(\d+(?:\.\d+)?)m)? ?(?:(\d+(?:\.\d+)?)s)?")
_SECONDS = (86400, 3600, 60, 1)


def seconds_of(duration: Any) -> float:
    """The seconds of a duration such as `2h`, `90m`, `1h 30m` or `45s`; 0 if it is none."""
    found = _DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        return 0.0
    return sum(float(part) * each for part, each in zip(found.groups("0"), _SECONDS, strict=True))


def _duration(value: Any) -> Any:
    if not 0 < seconds_of(value) < math.inf:
        raise PydanticCustomError("duration", "it must be a duration with its unit, such as 2h, 90m, 1h 30m or 45s")
    return value


Duration = Annotated[str, BeforeValidator(_duration)]
"""Text; see `seconds_of`."""


_Count = Annotated[int, Field(strict=True, ge=1)]


class SamplerKind(StrEnum):
    """How the settings of the next trials are chosen."""

    TPE = "tpe"
    RANDOM = "random"
    CMAES = "cmaes"


class PrunerKind(StrEnum):
    """How trials are ended whose evaluations are worse than those of others."""

    NONE = "none"
    MEDIAN = "median"
    HYPERBAND = "hyperband"


class SearchSettings(BaseModel):
    """The node `hydra.sweeper`; see `conf/hydra/sweeper/optuna.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n_trials: _Count | None = None
    budget: Duration | None = None
    n_jobs: _Count | None = None
    sampler: SamplerKind = SamplerKind.TPE
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    pruner: PrunerKind = PrunerKind.NONE
    study_name: Annotated[str, Field(min_length=1)] | None = None
    storage: Annotated[str, Field(min_length=1)] | None = None
    params: dict[str, Any] | None = None
