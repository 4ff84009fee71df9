"""The task of recommendation: lists of items for users, from interactions (implicit feedback)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from embexp.errors import Fault
from embexp.specs.base import for_each
from embexp.specs.tasks import Compared, Direction, Metric, Task

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec

LOSSES = "loss=sampled_softmax, loss=softmax, loss=bpr or loss=cosine_contrastive"
"""Those of recommendation, for messages."""
_HIGHER, _OF_LISTS = Direction.HIGHER, "embexp.fields.recommendation.evaluation"
_LISTS = "mean over users, lists of {k}"


class Recommending(Task):
    """Items for a user."""

    of_interactions = True
    settings = "recommendation"
    loss_unit = "chosen loss (mean per interaction)"
    losses = LOSSES

    def cutoffs_of(self, spec: RunSpec) -> tuple[int, ...]:
        """`recommendation.cutoffs`."""
        cutoffs: tuple[int, ...] = spec.recommendation.cutoffs
        return cutoffs

    def recorded_cutoffs(self, settings: Mapping[str, Any]) -> tuple[int, ...]:
        """`recommendation.cutoffs`, if the record has any."""
        found = settings.get("recommendation.cutoffs")
        return tuple(found) if isinstance(found, list) and found else self.cutoffs

    def compared(self, spec: RunSpec) -> dict[str, Compared]:
        """The items of a batch, and drawn ones, or the whole catalogue."""
        from embexp.fields.recommendation.specs import DrawnNegatives, Recommender, SharedNegatives, Softmax

        loss, model = spec.loss, spec.model
        if not isinstance(model, Recommender):
            return {}
        found = Compared("loss", loss.kind)
        if isinstance(loss, Softmax):
            few = "choose loss=sampled_softmax loss.negatives=512"
            found = replace(found, every="items", remedy=few)
        if isinstance(loss, DrawnNegatives):
            found = replace(found, of_example=loss.negatives)
        if isinstance(loss, SharedNegatives):
            found = replace(found, of_batch=loss.negatives or 0, whole_batch=loss.of_batch)
        return dict.fromkeys(model.item_side, found)

    def faults(self, spec: RunSpec) -> Iterator[Fault]:
        """Users or items in hash buckets that several share."""
        return for_each(lambda: spec.tables, lambda name: _shared_rows(spec, name))


RECOMMENDATION = Recommending(
    "recommendation",
    described="Items for a user, from interactions: the chosen loss; Recall@k, NDCG@k, hit rate, MRR.",
    data="embexp.fields.recommendation.data:complete",
    additions="embexp.fields.recommendation.batches:additions",
    serving="embexp.fields.recommendation.serving:model",
    evaluator="embexp.fields.recommendation.evaluation:ListEvaluator",
    cutoffs=(10, 20),
    metrics=(
        Metric("ndcg_at_{k}", _HIGHER, f"{_OF_LISTS}:ndcg", cutoffs=None, unit=_LISTS),
        Metric("recall_at_{k}", _HIGHER, f"{_OF_LISTS}:recall", cutoffs=None, unit=_LISTS),
        Metric("hit_rate_at_{k}", _HIGHER, f"{_OF_LISTS}:hit_rate", cutoffs=None, unit=_LISTS),
        Metric("mrr", _HIGHER, f"{_OF_LISTS}:first_hit", unit="MRR over the full catalogue (1 is best)"),
        Metric("coverage_at_{k}", _HIGHER, None, cutoffs=None, unit=_LISTS),
        Metric("precision_at_{k}", _HIGHER, f"{_OF_LISTS}:precision", cutoffs=None, unit=_LISTS, listed=True),
        Metric("map_at_{k}", _HIGHER, f"{_OF_LISTS}:average_precision", cutoffs=None, unit=_LISTS, listed=True),
        Metric("novelty_at_{k}", _HIGHER, f"{_OF_LISTS}:novelty", cutoffs=None, unit=_LISTS, listed=True, most=None),
    ),
)


def _shared_rows(spec: RunSpec, name: str) -> Iterator[Fault]:
    if (buckets := spec.tables[name].vocabulary.hash_buckets) is None:
        return
    for each in (spec.recommendation.user, spec.recommendation.item):
        if each in spec.features and spec.features[each].table == name:
            rule = f"feature {each} needs a row for each of its values, but hash buckets are shared"
            path = f"tables.{name}.vocabulary.hash_buckets"
            yield Fault(path, str(buckets), rule, "set it to null, and set max_size or min_frequency instead")
