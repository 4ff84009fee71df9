"""Recommendation in configs: models with vectors of users and items, losses over items, the study of new items."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import (
    Choice,
    Dim,
    Fraction,
    Positive,
    RowCount,
    Seed,
    Spec,
    different,
    is_null,
    known_or,
    where_known,
)
from embexp.specs.models import (
    Activation,
    DenseModel,
    Shapes,
    Widths,
    bias_faults,
    dense_faults,
    length_faults,
    unknown_features,
    unused_features,
    vector_faults,
)
from embexp.specs.running import Key
from embexp.specs.studies import BASE, StudyChoice, changed, no_checkpoint, part_of

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


Temperature = Positive | Literal["auto"] | None
"""By what dot products are divided; auto and null: see `Recommender.with_temperature`."""


class Recommender(DenseModel):
    """Base class of models that give users and items vectors, whose dot product is the score."""

    user_features: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features of the user."""
    item_features: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features of the item."""
    item_biases: tuple[str, ...] = ()
    """Features of the item, of dim 1, that are added to the score."""
    normalize: bool
    """Scale the vectors of users and items to length 1."""
    temperature: Temperature
    """Dot products are divided by it; auto and null: see `with_temperature`."""

    @property
    def item_side(self) -> tuple[str, ...]:
        """All features of the item."""
        return (*self.item_features, *self.item_biases)

    def settled(self, spec: RunSpec, *, rows: Mapping[str, int], examples: int) -> Self:
        """With a temperature, by the rows of the table that identifies the items."""
        return self.with_temperature(rows[spec.features[spec.recommendation.item].table])

    def with_temperature(self, items: int) -> Self:
        """The same model with a temperature as a number: 1 in the place of auto or null, unless scores are cosines.

        For cosines null is 1.5 / ln(items): a softmax of them, which are 2 apart at most, can tell one item from all
        others only if exp(2 / temperature) is more than their number. auto is that up to 2,000 items, and for more
        4/3 / items^(1/4), but at least 0.1. Both were chosen on validation splits, see docs/recommendation.md.

        Args:
            items: rows of the table that identifies the items.
        """
        if isinstance(self.temperature, float):
            return self
        large = self.temperature == "auto" and items > 2_000
        temperature = max(4 / 3 / items**0.25, 0.1) if large else 1.5 / math.log(max(items, 3))
        return self.model_copy(update={"temperature": temperature if self.normalize else 1.0})

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than recommendation."""
        if not spec.task.of_interactions:
            rule = f"it scores items for users, but task {spec.task} predicts something else"
            yield Fault(scope.path, self.kind, rule, "choose another model, or experiment=recommendation")

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Features of both sides or of none, biases of several numbers, vectors that don't fit, and dense features."""
        named = {
            "user_features": self.user_features,
            "item_features": self.item_features,
            "item_biases": self.item_biases,
        }
        yield from unknown_features(named, shapes)
        yield from self.vector_faults(shapes)
        for name in self.user_features:
            if name in self.item_side:
                rule = "it is also a feature of the item"
                yield Fault("model.user_features", repr(name), rule, "keep it on one side")
        yield from bias_faults("model.item_biases", self.item_biases, shapes)
        yield from unused_features(self.kind, named, shapes)
        yield from dense_faults(self.kind, dense_width, "remove them")

    def vector_faults(self, shapes: Shapes) -> Iterator[Fault]:
        """Sequences of unknown length."""
        return length_faults(self.kind, shapes)


class MatrixFactorization(Recommender):
    """<sum of `user_features`, sum of `item_features`> + sum of `item_biases` (Rendle et al. 2009)."""

    kind: Literal["matrix_factorization"] = "matrix_factorization"
    implementation = "embexp.fields.recommendation.models:matrix_factorization"
    has_weights = False
    normalize: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    temperature: Annotated[Temperature, Field(exclude_if=lambda value: value == 1)] = 1.0

    def vector_faults(self, shapes: Shapes) -> Iterator[Fault]:
        """Features that are not vectors of one dim."""
        names = (*self.user_features, *self.item_features)
        return vector_faults(self.kind, {name: shapes[name] for name in names if name in shapes})


class TwoTower(Recommender):
    """The dot product of two towers of hidden layers, one for users and one for items (Covington et al. 2016)."""

    kind: Literal["two_tower"] = "two_tower"
    implementation = "embexp.fields.recommendation.models:two_tower"
    hidden: Widths = (128,)
    """Hidden widths of each tower; a linear layer of `dim` follows."""
    dim: Dim = 64
    """Length of the vectors of users and items."""
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0
    normalize: bool = False
    temperature: Temperature = 1.0


class RecommendationLoss(Choice):
    """Base class of losses that compare items: those of the batch, and others that the loss adds."""

    kind: str
    whole_catalogue: ClassVar[bool] = False
    """Whether all items of the catalogue are compared, instead of those of the batch."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task."""
        if not spec.task.of_interactions:
            rule = f"it compares items for a user, but the loss of task {spec.task} follows from task and model"
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
    implementation = "embexp.fields.recommendation.models:bpr"


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
    implementation = "embexp.fields.recommendation.models:sampled_softmax"
    negatives: Annotated[RowCount | None, Field(exclude_if=is_null)] = None
    log_q: bool = True
    """Subtract log q from each score, where q is the share with which the item is drawn, so that items that are
    negatives more often are not scored lower for it (Bengio & Senécal 2008)."""


class CosineContrastive(SharedNegatives):
    """1 - s[item] + negative_weight * the mean of max(0, s[negative] - margin), for cosines s (Mao et al. 2021)."""

    kind: Literal["cosine_contrastive"] = "cosine_contrastive"
    implementation = "embexp.fields.recommendation.models:cosine_contrastive"
    negatives: RowCount | None = 512
    margin: Annotated[float, Field(ge=-1, lt=1)] = 0.8
    """Negatives with a lower cosine have no gradient."""
    negative_weight: Positive = 150.0
    """Weight of the mean over the negatives."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task, and scores that are no cosines."""
        yield from super().faults(spec, scope)
        if isinstance(spec.model, Recommender) and not (spec.model.normalize and spec.model.temperature == 1):
            rule = "it compares cosines, but model.normalize is false or model.temperature is not 1"
            yield Fault(scope.path, self.kind, rule, "set model.normalize=true model.temperature=1")


class Softmax(RecommendationLoss):
    """-log p[item] with p = softmax over all items of the catalogue."""

    kind: Literal["softmax"] = "softmax"
    implementation = "embexp.fields.recommendation.models:softmax"
    whole_catalogue = True


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
    rule = "it identifies users or items, so each value needs its own row"
    if feature.buckets.given:
        yield Fault(f"features.{name}.buckets", "set", rule, "remove them")
    if feature.table in spec.tables and (buckets := spec.tables[feature.table].vocabulary.hash_buckets) is not None:
        yield Fault(f"tables.{feature.table}.vocabulary.hash_buckets", str(buckets), rule, "set it to null")


def _shared_columns(spec: RunSpec) -> Iterator[Fault]:
    """Errors for a column with features of both sides, because a batch compares users with the items of others."""
    if not isinstance(spec.model, Recommender):
        return
    items = {spec.ids_of(name) for name in spec.model.item_side if name in spec.features}
    for name in spec.model.user_features:
        if name in spec.features and spec.ids_of(name) in items:
            rule = "it is a feature of the user, but a feature of the item reads the same column"
            yield Fault(f"features.{name}", spec.column_of(name), rule, "keep it on one side")


def _several_replicas(spec: RunSpec) -> Iterator[CombinationFault]:
    if spec.strategy.kind == "mirrored":
        rule = "task recommendation compares the items of a batch, but this strategy divides a batch among replicas"
        remedy = "choose strategy=cpu, gpu, tpu or multi_worker"
        yield CombinationFault("strategy", spec.strategy.kind, rule, remedy)


def _no_estimator(spec: RunSpec) -> Iterator[CombinationFault]:
    if spec.executing_runtime == "estimator":
        rule = "task recommendation does not support the Estimator"
        yield CombinationFault("runtime", "estimator", rule, "set runtime=session or runtime=function")


class NewItemsStudy(StudyChoice):
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
    descriptions: ClassVar[Mapping[str, str]] = {BASE: "trained without what is new"}

    @property
    def drawn(self) -> Newcomers:
        """What its run leaves out."""
        return Newcomers(users=self.users, items=0.0 if self.content is None else self.items, seed=self.seed)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task, nothing new, and settings that the study sets."""
        if known_or(False, lambda: not spec.task.of_interactions):
            rule = f"it needs users and items, but the task is {spec.task}"
            yield Fault(scope.path, self.kind, rule, "choose experiment=recommendation, or study=none")
            return
        yield from where_known(self._nothing_new(scope), _drawn_by_study(spec), no_checkpoint(spec))

    def _nothing_new(self, scope: Scope) -> Iterator[Fault]:
        if not self.drawn.users and not self.drawn.items:
            rule = "neither users nor items are new"
            remedy = "set study.users above 0, or study.content to vectors of the items' content"
            yield Fault(f"{scope.path}.users", "0", rule, remedy)

    def runs(self, spec: RunSpec, directory: Path) -> dict[str, RunSpec]:
        """The run without what is new."""
        known = changed(spec.recommendation, new=self.drawn)
        return {BASE: part_of(spec, BASE, {"recommendation": known})}


def _drawn_by_study(spec: RunSpec) -> Iterator[Fault]:
    if spec.recommendation.new is not None:
        rule = "the study draws what is new"
        yield Fault("recommendation.new", "a mapping", rule, "leave it null, and set study.users and study.items")
