"""The loss of task recommendation; other tasks and models have their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Spec
from embexp.specs.bounds import RowCount
from embexp.specs.models import Task

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class LossOfTask(Spec):
    """The loss that follows from task and model."""

    kind: Literal["of_task"] = "of_task"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Task recommendation, from which no loss follows."""
        if spec.task is Task.RECOMMENDATION:
            rule = "task recommendation has several losses"
            yield Fault(scope.path, self.kind, rule, "choose loss=bpr, loss=sampled_softmax or loss=softmax")


class _RecommendationLoss(Spec):
    """Base class of losses over the items of a catalogue."""

    kind: str

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task."""
        if spec.task is not Task.RECOMMENDATION:
            rule = f"it compares items for a user, and the loss of task {spec.task} follows from task and model"
            yield Fault(scope.path, self.kind, rule, "choose loss=of_task, or task=recommendation")


class BPR(_RecommendationLoss):
    """-log sigmoid(score of the item - score of a negative), the mean over all negatives (Rendle et al. 2009)."""

    kind: Literal["bpr"] = "bpr"
    negatives: RowCount = 1
    """Number of negatives of each interaction, drawn uniformly."""
    exclude_seen: bool = True
    """Draw only items with which the user has no interaction in the training split."""


class SampledSoftmax(_RecommendationLoss):
    """-log p[item] with p = softmax over the items of the batch (Yi et al. 2019).

    Items that occur more than once in the batch count once for each example.
    """

    kind: Literal["sampled_softmax"] = "sampled_softmax"
    log_q: bool = True
    """Subtract log q from each score, where q is the item's share of the training split, so that frequent items, which
    are negatives more often, are not scored lower for it (Bengio & Senécal 2008)."""


class Softmax(_RecommendationLoss):
    """-log p[item] with p = softmax over all items of the catalogue."""

    kind: Literal["softmax"] = "softmax"


RecommendationLoss = BPR | SampledSoftmax | Softmax
Loss = Annotated[LossOfTask | BPR | SampledSoftmax | Softmax, Field(discriminator="kind")]
