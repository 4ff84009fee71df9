"""Several runs that are made to be compared."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from embexp.specs.base import Count, Positive, Spec, WholeNumber
from embexp.specs.data import Trained


class NoStudy(Spec):
    """One run."""

    kind: Literal["none"] = "none"


class NewRowsTraining(Spec):
    """What is different where new rows alone are trained; null: nothing."""

    triples: Trained = Trained.NEW
    """new: training triples that hold something new. all: all of them."""
    epochs: Positive | None = None
    batch_size: Count | None = None
    learning_rate: Positive | None = None
    """Of `optimizer`."""
    patience: Count | None = None
    """Of `train.early_stopping`."""

    @field_validator("triples")
    @classmethod
    def _with_new_ones(cls, triples: Trained) -> Trained:
        if triples is Trained.KNOWN:
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


Study = Annotated[NoStudy | NewEntitiesStudy, Field(discriminator="kind")]
