"""Several runs that are made to be compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator

from embexp.errors import Fault
from embexp.specs.base import Count, Positive, Spec, WholeNumber
from embexp.specs.data import TrainedTriples, Triples
from embexp.specs.freezing import NoFreeze
from embexp.specs.partial import known_or, where_known
from embexp.specs.pretrained import NoPretrained

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class NoStudy(Spec):
    """One run."""

    kind: Literal["none"] = "none"


class NewRowsTraining(Spec):
    """What is different where new rows alone are trained; null: nothing."""

    triples: TrainedTriples = TrainedTriples.NEW
    """new: training triples that hold something new. all: all of them."""
    epochs: Positive | None = None
    batch_size: Count | None = None
    learning_rate: Positive | None = None
    """Of `optimizer`."""
    patience: Count | None = None
    """Of `train.early_stopping`."""

    @field_validator("triples")
    @classmethod
    def _with_new_ones(cls, triples: TrainedTriples) -> TrainedTriples:
        if triples is TrainedTriples.KNOWN:
            raise ValueError("triples without anything new can't train new rows: set new or all")
        return triples


class NewEntitiesStudy(Spec):
    """A knowledge graph to which entities come: what to train of it then, and what that costs.

    base: trained without the new entities. grown: base with rows for them, which alone are trained. full: all trained
    from the start.
    """

    kind: Literal["new_entities"] = "new_entities"
    share: Annotated[float, Field(gt=0, lt=1, strict=True)] = 0.1
    """Part of the entities that come later; at least one does."""
    seed: WholeNumber = 0
    """Seed of their drawing, apart from the runs'."""
    grown: NewRowsTraining = NewRowsTraining()

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Data without entities, and settings that the study makes itself."""
        if known_or(False, lambda: not isinstance(spec.data, Triples)):
            rule = f"its new entities are a knowledge graph's, and the data is of kind {spec.data.kind}"
            yield Fault(scope.path, self.kind, rule, "take data=triples, or study=none")
            return
        yield from where_known(_new_entities(spec), _values(spec), _policies(spec), _no_checkpoint(spec))


Study = Annotated[NoStudy | NewEntitiesStudy, Field(discriminator="kind")]


def _new_entities(spec: RunSpec) -> Iterator[Fault]:
    if isinstance(spec.data, Triples) and spec.data.new_entities is not None:
        rule = "the study says of each of its runs which entities are new to it"
        yield Fault("data.new_entities", "a mapping", rule, "leave it null, and set study.share and study.seed")


def _values(spec: RunSpec) -> Iterator[Fault]:
    for scope, pretrained in spec.settings_of("pretrained"):
        if not isinstance(pretrained, NoPretrained):
            rule = "the values of the grown run are those of the base run, and the others have none to start from"
            yield Fault(scope.path, pretrained.kind, rule, "leave it out, or set study=none")


def _policies(spec: RunSpec) -> Iterator[Fault]:
    for scope, freeze in spec.settings_of("freeze"):
        if not isinstance(freeze, NoFreeze):
            rule = "what the grown run freezes are the rows of the base run, and the others train all rows"
            yield Fault(scope.path, freeze.kind, rule, "leave it out, or set study=none")


def _no_checkpoint(spec: RunSpec) -> Iterator[Fault]:
    if not spec.output.checkpoint:
        rule = "the grown run begins with the checkpoint of the base run"
        yield Fault("output.checkpoint", "false", rule, "leave it true, or set study=none")
