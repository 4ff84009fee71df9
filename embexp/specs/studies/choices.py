"""The studies: what each is made of, and the specs of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from embexp.errors import Fault
from embexp.specs.base import (
    BatchSize,
    Choice,
    Count,
    Fraction,
    Positive,
    Seed,
    Spec,
    known_or,
    where_known,
)
from embexp.specs.data.graphs import NewEntities, TrainedTriples, Triples
from embexp.specs.freezing import FreezeOldRows, NoFreeze
from embexp.specs.losses import Newcomers
from embexp.specs.pretrained import Checkpoint, NoPretrained
from embexp.specs.running import Key, Save

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

BASE, GROWN, FULL = "base", "grown", "full"
DESCRIPTIONS: Mapping[str, str] = {
    BASE: "trained without what is new",
    GROWN: "base with rows for them, only new rows are trained",
    FULL: "all trained from the start",
}
"""Descriptions of the runs of studies, by name, which is also their directory; in order."""


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
    implementation = "embexp.fields.graphs.new_entities:STUDY"
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
    implementation = "embexp.fields.recommendation.new_items:STUDY"
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
        if known_or(False, lambda: not spec.task.of_interactions):
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


def _part_of(spec: RunSpec, name: str, settings: Mapping[str, Any]) -> RunSpec:
    """The spec of a run of a study, with changed settings."""
    return spec.model_copy(update={"study": NoStudy(), "name": f"{spec.name}/{name}", **settings})


def study_runs(spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
    """The specs of the runs of a study, by name, in order.

    Raises:
        TypeError: the spec is not a study.
    """
    study, data = spec.study, spec.data
    if isinstance(study, NewItemsStudy):
        known = _with(spec.recommendation, new=study.drawn)
        return {BASE: _part_of(spec, BASE, {"recommendation": known})}
    if not isinstance(study, NewEntitiesStudy) or not isinstance(data, Triples):
        raise TypeError(f"{spec.name} is not a study")

    def run(name: str, trained: TrainedTriples, **settings: Any) -> RunSpec:
        new = NewEntities(share=study.share, seed=study.seed, train=trained)
        return _part_of(spec, name, {"data": _with(data, new_entities=new), **settings})

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
