"""Studies: several runs that are compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator

from embexp.errors import Fault
from embexp.specs.base import Count, Positive, Spec
from embexp.specs.bounds import BatchSize, Seed
from embexp.specs.checkpointing import Save
from embexp.specs.freezing import NoFreeze
from embexp.specs.partial import known_or, where_known
from embexp.specs.pretrained import NoPretrained
from embexp.specs.triples import TrainedTriples, Triples

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


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
        yield from where_known(_new_entities(spec), _values(spec), _policies(spec), _no_checkpoint(spec))


Study = Annotated[NoStudy | NewEntitiesStudy, Field(discriminator="kind")]


def _new_entities(spec: RunSpec) -> Iterator[Fault]:
    if isinstance(spec.data, Triples) and spec.data.new_entities is not None:
        rule = "the study sets the new entities of each of its runs"
        yield Fault("data.new_entities", "a mapping", rule, "leave it null, and set study.share and study.seed")


def _values(spec: RunSpec) -> Iterator[Fault]:
    for scope, pretrained in spec.settings_of("pretrained"):
        if not isinstance(pretrained, NoPretrained):
            rule = "the grown run starts from the values of the base run, and the other runs from initial values"
            yield Fault(scope.path, pretrained.kind, rule, "remove it, or set study=none")


def _policies(spec: RunSpec) -> Iterator[Fault]:
    for scope, freeze in spec.settings_of("freeze"):
        if not isinstance(freeze, NoFreeze):
            rule = "the grown run freezes the rows of the base run, and the other runs train all rows"
            yield Fault(scope.path, freeze.kind, rule, "remove it, or set study=none")


def _no_checkpoint(spec: RunSpec) -> Iterator[Fault]:
    if spec.checkpoint.save is Save.NEVER:
        rule = "the grown run starts from the checkpoint of the base run"
        yield Fault("checkpoint.save", "never", rule, "set it to training or end, or set study=none")
