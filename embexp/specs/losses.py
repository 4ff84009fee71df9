"""The loss of a run, the user's own metrics, and what is recommended."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import (
    FUNCTION,
    Choice,
    Fraction,
    NamedCode,
    NonNegative,
    Positive,
    RowCount,
    Seed,
    Spec,
    different,
    is_null,
    where_known,
)
from embexp.specs.models import Recommender

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class LossOfTask(Choice):
    """The loss that follows from task and model."""

    kind: Literal["of_task"] = "of_task"
    implementation = "embexp.models.losses:of_task"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task from which no loss follows."""
        if not spec.task.loss:
            yield Fault(scope.path, self.kind, f"task {spec.task} has several losses", f"choose {spec.task.losses}")


class RecommendationLoss(Choice):
    """Base class of losses that compare items: those of the batch, and others that the loss adds."""

    kind: str
    whole_catalogue: ClassVar[bool] = False
    """Whether all items of the catalogue are compared, instead of those of the batch."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task."""
        if not spec.task.of_interactions:
            rule = f"it compares items for a user, and the loss of task {spec.task} follows from task and model"
            yield Fault(scope.path, self.kind, rule, "choose loss=of_task, or task=recommendation")


class DrawnNegatives(RecommendationLoss):
    """Base class of losses with negatives, which follow the items of the batch."""

    negatives: RowCount = 1
    """Number of negatives of each interaction, drawn uniformly."""
    exclude_seen: bool = True
    """Draw only items with which the user has no interaction in the training split."""


class BPR(DrawnNegatives):
    """-log sigmoid(score of the item - score of a negative), the mean over all negatives (Rendle et al. 2009)."""

    kind: Literal["bpr"] = "bpr"
    implementation = "embexp.models.losses:bpr"


class SharedNegatives(RecommendationLoss):
    """Base class of losses whose negatives are drawn once for all examples of a batch."""

    negatives: RowCount | None
    """Number of negatives of a step; null: the items of the batch, negatives of each other."""
    power: Annotated[float, Field(ge=0, le=1, exclude_if=lambda value: value == 0)] = 0.0
    """Negatives that are drawn are so with p ~ count^power: 0 is uniform."""

    @property
    def of_batch(self) -> bool:
        """Whether the items of a batch are compared with each other, and none is drawn."""
        return self.negatives is None


class SampledSoftmax(SharedNegatives):
    """-log p[item] with p = softmax over the items of the batch (Yi et al. 2019), or over the item and drawn ones.

    Items that occur more than once in the batch count once for each example.
    """

    kind: Literal["sampled_softmax"] = "sampled_softmax"
    implementation = "embexp.models.losses:sampled_softmax"
    negatives: Annotated[RowCount | None, Field(exclude_if=is_null)] = None
    log_q: bool = True
    """Subtract log q from each score, where q is the share with which the item is drawn, so that items that are
    negatives more often are not scored lower for it (Bengio & Senécal 2008)."""


class CosineContrastive(SharedNegatives):
    """1 - s[item] + negative_weight * the mean of max(0, s[negative] - margin), for cosines s (Mao et al. 2021)."""

    kind: Literal["cosine_contrastive"] = "cosine_contrastive"
    implementation = "embexp.models.losses:cosine_contrastive"
    negatives: RowCount | None = 512
    margin: Annotated[float, Field(ge=-1, lt=1)] = 0.8
    """Negatives with a lower cosine have no gradient."""
    negative_weight: Positive = 150.0
    """Weight of the mean over the negatives."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task, and scores that are no cosines."""
        yield from super().faults(spec, scope)
        if isinstance(spec.model, Recommender) and not (spec.model.normalize and spec.model.temperature == 1):
            rule = "it compares cosines, and model.normalize is false or model.temperature is not 1"
            yield Fault(scope.path, self.kind, rule, "set model.normalize=true model.temperature=1")


class Softmax(RecommendationLoss):
    """-log p[item] with p = softmax over all items of the catalogue."""

    kind: Literal["softmax"] = "softmax"
    implementation = "embexp.models.losses:softmax"
    whole_catalogue = True


class CustomLoss(NamedCode):
    """The user's own function: `function(labels, logits, **args)` returns the loss of each example."""

    kind: Literal["custom"] = "custom"
    implementation = "embexp.models.losses:custom"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task whose loss compares candidates."""
        if spec.task.labels is None:
            rule = f"it takes the labels and logits of examples, and task {spec.task} compares candidates"
            yield Fault(scope.path, self.kind, rule, f"choose {spec.task.losses}")


Loss = Annotated[
    LossOfTask | BPR | SampledSoftmax | CosineContrastive | Softmax | CustomLoss, Field(discriminator="kind")
]


class ChosenMetric(NamedCode):
    """A metric of embexp, by its name, or the user's own: `function(labels, predictions, **args)` returns a number."""

    function: Annotated[str, Field(pattern=FUNCTION)] | None = None  # type: ignore[assignment]
    """Dotted path `package.module:function` of the user's own; null: embexp's metric of that name."""
    higher_is_better: bool = True
    """Which way early stopping and searches take the user's own."""
    by: str | None = Field(default=None, exclude_if=is_null)
    """Of grouped_auc: the column whose values are the groups, which a feature reads."""


def chosen_metrics(value: object) -> object:
    """A metric or a list, by name or with settings, as a mapping by name; null as an empty one, and null settings too.

    Raises:
        ValueError: an entry of the list is neither, or a name stands there twice.
    """
    found: dict[object, object] = {}
    entries: list[object] = (
        list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    )  # a name alone, too
    for each in entries:
        named = {each: None} if isinstance(each, str) else each
        if not isinstance(named, Mapping):
            raise ValueError(f"{each!r} is no metric: list names, such as pr_auc, or names with settings")
        if twice := [name for name in named if name in found]:
            raise ValueError(f"{twice[0]} is listed twice")
        found.update({name: {} if settings is None else settings for name, settings in named.items()})
    return found


def _class_weights(value: object) -> object:
    """With the names of classes as text: a number or a truth value may be one."""
    if not isinstance(value, Mapping):
        return value
    return {str(key).lower() if isinstance(key, bool) else str(key): weight for key, weight in value.items()}


ClassWeights = Annotated[
    Literal["balanced"] | Annotated[dict[str, NonNegative], Field(min_length=1)] | None,
    BeforeValidator(_class_weights),
    Field(exclude_if=is_null),
]
"""How much the examples of each class count in the loss, by its name; balanced: all classes the same in total."""


class Newcomers(Spec):
    """Users and items whose interactions are not trained, drawn by name: what is new is recommended by its content."""

    users: Fraction = 0.0
    """Share of the users."""
    items: Fraction = 0.0
    """Share of the items."""
    seed: Seed = 0
    """Seed of the draw, independent of the run's seed."""


class Recommendation(Spec):
    """Items are recommended to users; each is identified by a feature. For other tasks it has no effect."""

    user: str = "user"
    """Feature that identifies the user."""
    item: str = "item"
    """Feature that identifies the item."""
    cutoffs: Annotated[tuple[RowCount, ...], Field(min_length=1), different("the cutoffs must all be different")] = (
        10,
        20,
    )
    """Lengths k of the lists of which Recall@k, NDCG@k, hit rate@k and coverage@k are measured; early stopping watches
    NDCG at the first."""
    new: Annotated[Newcomers | None, Field(exclude_if=is_null)] = None
    """Users and items that are left out of all splits; null: none."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Data, a model, features or a strategy that task recommendation does not take."""
        if not spec.task.of_interactions:
            return iter(())
        return where_known(
            _no_interactions(spec),
            _no_recommender(spec),
            _identified(spec, f"{scope.path}.user", self.user, item=False),
            _identified(spec, f"{scope.path}.item", self.item, item=True),
            _own_rows(spec, self.user),
            _own_rows(spec, self.item),
            _shared_columns(spec),
            _several_replicas(spec),
            _no_estimator(spec),
        )


def _no_interactions(spec: RunSpec) -> Iterator[Fault]:
    if spec.data.kind not in ("csv", "parquet", "jsonl", "recbole", "adjacency"):
        rule = "task recommendation reads interactions of users and items, one per row of a file"
        yield Fault("data", spec.data.kind, rule, "choose data=interactions, parquet, jsonl, recbole or adjacency")


def _no_recommender(spec: RunSpec) -> Iterator[Fault]:
    if not isinstance(spec.model, Recommender):
        rule = "task recommendation needs a model that gives users and items vectors"
        yield Fault("model", spec.model.kind, rule, "choose model=matrix_factorization or model=two_tower")


def _identified(spec: RunSpec, path: str, name: str, *, item: bool) -> Iterator[Fault]:
    if not isinstance(spec.model, Recommender):
        return
    key = "item_features" if item else "user_features"
    side = spec.model.item_features if item else spec.model.user_features
    if name not in side:
        near = difflib.get_close_matches(name, side, n=1)
        rule = f"it must be one of model.{key}, which are {', '.join(side)}"
        yield Fault(path, repr(name), rule, f"did you mean {near[0]!r}?" if near else f"add it to model.{key}")


def _own_rows(spec: RunSpec, name: str) -> Iterator[Fault]:
    if name not in spec.features:
        return
    feature = spec.features[name]
    rule = "it identifies users or items, so each value needs a row of its own"
    if feature.buckets.given:
        yield Fault(f"features.{name}.buckets", "set", rule, "remove them")
    if feature.table in spec.tables and (buckets := spec.tables[feature.table].vocabulary.hash_buckets) is not None:
        yield Fault(f"tables.{feature.table}.vocabulary.hash_buckets", str(buckets), rule, "set it to null")


def _shared_columns(spec: RunSpec) -> Iterator[Fault]:
    """A column of features of both sides: the items of a batch are not those of its users."""
    if not isinstance(spec.model, Recommender):
        return
    items = {spec.ids_of(name) for name in spec.model.item_side if name in spec.features}
    for name in spec.model.user_features:
        if name in spec.features and spec.ids_of(name) in items:
            rule = "it is a feature of the user, and a feature of the item reads the same column"
            yield Fault(f"features.{name}", spec.column_of(name), rule, "leave it to one side")


def _several_replicas(spec: RunSpec) -> Iterator[CombinationFault]:
    if spec.strategy.kind not in ("cpu", "gpu", "multi_worker"):
        rule = "task recommendation compares the items of a batch, which this strategy divides among replicas"
        remedy = "choose strategy=cpu, gpu or multi_worker"
        yield CombinationFault("strategy", spec.strategy.kind, rule, remedy)


def _no_estimator(spec: RunSpec) -> Iterator[CombinationFault]:
    if spec.executing_runtime == "estimator":
        rule = "task recommendation has no estimator"
        yield CombinationFault("runtime", "estimator", rule, "set runtime=session or runtime=function")
