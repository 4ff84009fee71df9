"""How runs are executed: length, evaluations, early stopping, runtime, checkpoints, output; studies and sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import (
    BatchSize,
    Choice,
    Count,
    Fraction,
    JobCount,
    NonNegative,
    Positive,
    Seed,
    Spec,
    WholeNumber,
    known_or,
    where_known,
)
from embexp.specs.data import NewEntities, TrainedTriples, Triples
from embexp.specs.freezing import FreezeOldRows, NoFreeze
from embexp.specs.losses import ClassWeights, Newcomers
from embexp.specs.models import Task
from embexp.specs.pretrained import Checkpoint, NoPretrained

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

Key = Annotated[str, Field(min_length=1)]


class EarlyStopping(Spec):
    """Ends the training when a validation metric has not improved for `patience` evaluations; null: never."""

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
            rule = "early stopping watches the validation split, and data.split.validation is 0"
            remedy = "set data.split.validation above 0, or patience to null"
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
        if self.class_weights is not None and spec.task not in (Task.BINARY, Task.CLASSIFICATION):
            rule = f"it weighs classes, and task {spec.task} has none"
            yield Fault(f"{scope.path}.class_weights", str(self.class_weights), rule, "leave it null")

    @model_validator(mode="after")
    def _ends(self) -> Train:
        if self.steps is None and self.epochs is None:
            raise ValueError("neither steps nor epochs is set, so the training would never end")
        return self


def _nothing_to_weigh(spec: RunSpec) -> Iterator[Fault]:
    weight = getattr(spec.data, "weight", None)
    if weight is not None and spec.task in (Task.RANKING, Task.RECOMMENDATION):
        rule = f"it weighs examples with labels, and task {spec.task} compares items"
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
        if self.keep_best and not getattr(spec.data, "validates", True):
            rule = "the best evaluation is that of the validation split, and data.split.validation is 0"
            remedy = "set data.split.validation above 0, or keep_best to false"
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
                    rule = "it has no effect, as restore.path is null"
                    yield Fault(f"{scope.path}.{name}", value, rule, "set restore.path to a checkpoint")

    def _not_in_estimators(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if self.path is not None and spec.executing_runtime is RuntimeKind.ESTIMATOR:
            rule = "an Estimator restores only its own checkpoints"
            remedy = "choose runtime=session, or runtime=function"
            yield CombinationFault(f"{scope.path}.path", repr(self.path), rule, remedy)


BASE, GROWN, FULL = "base", "grown", "full"
DESCRIPTIONS: Mapping[str, str] = {
    BASE: "trained without what is new",
    GROWN: "base with rows for them, only new rows are trained",
    FULL: "all trained from the start",
}
"""Descriptions of the runs of studies, by name, which is also their directory; in order."""
Value = bool | int | float | str | None
Metric = Annotated[str, Field(min_length=1)]


class NoStudy(Choice):
    """One run."""

    kind: Literal["none"] = "none"
    implementation = "embexp.runs.experiment:SINGLE"


class NewRowsTraining(Spec):
    """Settings of the run that trains only new rows; null: unchanged."""

    triples: TrainedTriples = TrainedTriples.NEW
    """new: training triples with new entities or relations. all: all training triples."""
    epochs: Positive | None = None
    batch_size: BatchSize | None = None
    learning_rate: Positive | None = None
    """Of `optimizer`."""
    patience: Count | None = None
    """Of `train.early_stopping`."""

    @field_validator("triples")
    @classmethod
    def _with_new_ones(cls, triples: TrainedTriples) -> TrainedTriples:
        if triples is TrainedTriples.KNOWN:
            raise ValueError("triples without new entities can't train new rows: set new or all")
        return triples


class NewEntitiesStudy(Choice):
    """New entities are added to a knowledge graph: compares training only their rows with training everything.

    base: trained without the new entities. grown: base with rows for them, only new rows are trained. full: all trained
    from the start.
    """

    kind: Literal["new_entities"] = "new_entities"
    implementation = "embexp.runs.new_entities:STUDY"
    share: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1
    """Fraction of the entities that are new; at least one is."""
    seed: Seed = 0
    """Seed of the draw of new entities, independent of the run's seed."""
    grown: NewRowsTraining = NewRowsTraining.model_construct()

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Data without entities, and settings that the study sets."""
        if known_or(False, lambda: not isinstance(spec.data, Triples)):
            rule = f"it needs the entities of a knowledge graph, and the data is of kind {spec.data.kind}"
            yield Fault(scope.path, self.kind, rule, "choose data=triples, or study=none")
            return
        values = "the grown run starts from the values of the base run, and the other runs from initial values"
        policies = "the grown run freezes the rows of the base run, and the other runs train all rows"
        yield from where_known(
            _new_entities(spec),
            _set_by_study(spec, "pretrained", NoPretrained, values),
            _set_by_study(spec, "freeze", NoFreeze, policies),
            _no_checkpoint(spec),
        )


class NewItemsStudy(Choice):
    """Cold starts in recommendation: a run without some items and users, who are then served without any training.

    Items are ranked by vectors of their content, users get vectors by their few items.
    """

    kind: Literal["new_items"] = "new_items"
    implementation = "embexp.runs.new_items:STUDY"
    content: Key | None = None
    """File of vectors of the items' content, with their ids as tokens; null: only new users are studied."""
    items: Fraction = 0.1
    """Fraction of the items that are new."""
    users: Fraction = 0.1
    """Fraction of the users who are new."""
    seed: Seed = 0
    """Seed of the draw of both, independent of the run's seed."""

    @property
    def drawn(self) -> Newcomers:
        """What its run leaves out."""
        return Newcomers(users=self.users, items=0.0 if self.content is None else self.items, seed=self.seed)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task, nothing new, and settings that the study sets."""
        if known_or(False, lambda: spec.task is not Task.RECOMMENDATION):
            rule = f"it needs users and items, and the task is {spec.task}"
            yield Fault(scope.path, self.kind, rule, "choose experiment=recommendation, or study=none")
            return
        yield from where_known(self._nothing_new(scope), _drawn_by_study(spec), _no_checkpoint(spec))

    def _nothing_new(self, scope: Scope) -> Iterator[Fault]:
        if not self.drawn.users and not self.drawn.items:
            rule = "neither users nor items are new"
            remedy = "set study.users above 0, or study.content to vectors of the items' content"
            yield Fault(f"{scope.path}.users", "0", rule, remedy)


Study = Annotated[NoStudy | NewEntitiesStudy | NewItemsStudy, Field(discriminator="kind")]
STUDIES: dict[str, type[Choice]] = {
    each.model_fields["kind"].default: each for each in (NoStudy, NewEntitiesStudy, NewItemsStudy)
}


def _drawn_by_study(spec: RunSpec) -> Iterator[Fault]:
    if spec.recommendation.new is not None:
        rule = "the study draws what is new"
        yield Fault("recommendation.new", "a mapping", rule, "leave it null, and set study.users and study.items")


def _new_entities(spec: RunSpec) -> Iterator[Fault]:
    if isinstance(spec.data, Triples) and spec.data.new_entities is not None:
        rule = "the study sets the new entities of each of its runs"
        yield Fault("data.new_entities", "a mapping", rule, "leave it null, and set study.share and study.seed")


def _set_by_study(spec: RunSpec, name: str, without: type[Spec], rule: str) -> Iterator[Fault]:
    for scope, choice in spec.settings_of(name):
        if not isinstance(choice, without):
            yield Fault(scope.path, choice.kind, rule, "remove it, or set study=none")


def _no_checkpoint(spec: RunSpec) -> Iterator[Fault]:
    if spec.checkpoint.save is Save.NEVER:
        rule = "the study goes on from the checkpoint of its first run"
        yield Fault("checkpoint.save", "never", rule, "set it to training or end, or set study=none")


def study_runs(spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
    """The specs of the runs of a study, by name, in order.

    Raises:
        TypeError: the spec is not a study.
    """
    study, data = spec.study, spec.data
    if isinstance(study, NewItemsStudy):
        known = _with(spec.recommendation, new=study.drawn)
        return {BASE: _with(spec, study=NoStudy(), name=f"{spec.name}/{BASE}", recommendation=known)}
    if not isinstance(study, NewEntitiesStudy) or not isinstance(data, Triples):
        raise TypeError(f"{spec.name} is not a study")

    def run(name: str, trained: TrainedTriples, **settings: Any) -> RunSpec:
        new = NewEntities(share=study.share, seed=study.seed, train=trained)
        changed = {"study": NoStudy(), "name": f"{spec.name}/{name}", "data": _with(data, new_entities=new)}
        run_spec: RunSpec = _with(spec, **changed, **settings)
        return run_spec

    grown = study.grown
    return {
        BASE: run(BASE, TrainedTriples.KNOWN),
        GROWN: run(
            GROWN,
            grown.triples,
            pretrained=Checkpoint(path=str(directory / BASE)),
            freeze=FreezeOldRows(),
            optimizer=_with(spec.optimizer, learning_rate=grown.learning_rate),
            train=_with(
                spec.train,
                epochs=grown.epochs,
                batch_size=grown.batch_size,
                early_stopping=_with(spec.train.early_stopping, patience=grown.patience),
            ),
        ),
        FULL: run(FULL, TrainedTriples.ALL),
    }


def _with(model: Any, **settings: Any) -> Any:
    """A copy with changed settings; None: unchanged."""
    return model.model_copy(update={key: value for key, value in settings.items() if value is not None})


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
