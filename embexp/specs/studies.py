"""Several runs: studies, which compare them, and sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from embexp.errors import Fault
from embexp.specs.base import BatchSize, Count, JobCount, Positive, Seed, Spec, WholeNumber, known_or, where_known
from embexp.specs.data import NewEntities, TrainedTriples, Triples
from embexp.specs.freezing import FreezeOldRows, NoFreeze
from embexp.specs.pretrained import Checkpoint, NoPretrained
from embexp.specs.running import Save

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

BASE, GROWN, FULL = "base", "grown", "full"
DESCRIPTIONS: Mapping[str, str] = {
    BASE: "trained without the new entities",
    GROWN: "base with rows for them, only new rows are trained",
    FULL: "all trained from the start",
}
"""Descriptions of the runs of a study of new entities, by name, which is also their directory; in order."""
Value = bool | int | float | str | None
Metric = Annotated[str, Field(min_length=1)]


class NoStudy(Spec):
    """One run."""

    kind: Literal["none"] = "none"


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


class NewEntitiesStudy(Spec):
    """New entities are added to a knowledge graph: compares training only their rows with training everything.

    base: trained without the new entities. grown: base with rows for them, only new rows are trained. full: all trained
    from the start.
    """

    kind: Literal["new_entities"] = "new_entities"
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


Study = Annotated[NoStudy | NewEntitiesStudy, Field(discriminator="kind")]


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
        rule = "the grown run starts from the checkpoint of the base run"
        yield Fault("checkpoint.save", "never", rule, "set it to training or end, or set study=none")


def study_runs(spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
    """The specs of the runs of a study of new entities, by name, in order.

    Raises:
        TypeError: the spec is not a study of new entities.
    """
    study, data = spec.study, spec.data
    if not isinstance(study, NewEntitiesStudy) or not isinstance(data, Triples):
        raise TypeError(f"{spec.name} is not a study of new entities")

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
