"""The task of a run, its model and its loss, and what is recommended.

A model is the dense part, from activations by feature name to the logits of each example.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import Dim, Fraction, NamedCode, NonNegative, Positive, RowCount, Spec, where_known

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.data import Columnar
    from embexp.specs.run import RunSpec


class Task(StrEnum):
    """The task of the model: what it predicts, its loss and its metrics."""

    REGRESSION = "regression"
    """A number: squared error; RMSE, MAE."""
    BINARY = "binary"
    """Whether something happens, label 0 or 1: log loss; log loss, AUC."""
    CLASSIFICATION = "classification"
    """One of several classes, label 0, 1, 2, …: log loss of a softmax; accuracy, log loss, macro F1."""
    RANKING = "ranking"
    """One of many candidates, for the queries of a knowledge graph: the model's loss; MRR, Hits@k."""
    RECOMMENDATION = "recommendation"
    """Items for a user, from interactions (implicit feedback): the chosen loss; Recall@k, NDCG@k, hit rate, MRR."""

    @classmethod
    def _missing_(cls, value: object) -> Task | None:
        return RENAMED_TASKS.get(str(value))


RENAMED_TASKS = {"rating": Task.REGRESSION, "click": Task.BINARY}
"""Tasks by their names before 0.2.0, which are still read."""


class Activation(StrEnum):
    """Non-linearity of hidden layers."""

    RELU = "relu"
    GELU = "gelu"
    SILU = "silu"
    TANH = "tanh"


Widths = tuple[Dim, ...]


class Dot(Spec):
    """Biased matrix factorisation: bias + sum of `biases` + <sum of `left`, sum of `right`> (Koren et al. 2009)."""

    kind: Literal["dot"] = "dot"
    left: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are summed on the left, all of the same dim."""
    right: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are summed on the right, of the same dim."""
    biases: tuple[str, ...] = ()
    """Features of dim 1 that are added to the result."""


class MLP(Spec):
    """All activations and dense features, concatenated, through hidden layers to the logit."""

    kind: Literal["mlp"] = "mlp"
    hidden: Widths = (64,)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0


class DLRM(Spec):
    """Bottom MLP of the dense features, pairwise dot products of all vectors, top MLP (Naumov et al. 2019)."""

    kind: Literal["dlrm"] = "dlrm"
    bottom: Widths = (64,)
    """Hidden widths of the bottom MLP; a last layer of the embeddings' dim is added. None without dense features."""
    top: Widths = (64, 32)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0
    concat: bool = False
    """Also give the top MLP the embeddings, in addition to their dot products."""


class BagOfWords(Spec):
    """The mean of the vectors of each text, with dropout, through a linear layer to the logits."""

    kind: Literal["bag_of_words"] = "bag_of_words"
    dropout: Fraction = 0.5
    """Dropout rate of the mean."""


class TextCNN(Spec):
    """Convolutions over the words, the maximum of each over the text, a linear layer to the logits (Kim 2014)."""

    kind: Literal["text_cnn"] = "text_cnn"
    widths: Annotated[Widths, Field(min_length=1)] = (3, 4, 5)
    """Widths of the convolutions in words; one layer for each, all different."""
    maps: Dim = 100
    """Feature maps of each width."""
    dropout: Fraction = 0.5
    """Dropout rate of the maxima."""
    max_norm: Positive | None = 3.0
    """The weights of each logit are scaled down to at most this L2 norm after a step; null: no bound."""

    @field_validator("widths")
    @classmethod
    def _different(cls, widths: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(widths)) < len(widths):
            raise ValueError("the widths must all be different; set maps for more feature maps of each width")
        return widths


class RankingLoss(StrEnum):
    """The loss over the candidates of a query."""

    SOFTMAX = "softmax"
    """-log p[answer] with p = softmax(scores of the candidates)."""
    BINARY = "binary"
    """The log loss of each candidate's sigmoid, 1 for the answer and 0 for others; their mean."""


class _KnowledgeGraph(Spec):
    """Base class of knowledge graph models, with the features source, relation and candidates of the same dim."""

    loss: RankingLoss = RankingLoss.SOFTMAX
    label_smoothing: Fraction = 0.0
    """e: the answer counts 1 - e, and each of the C candidates, the answer too, e / C on top."""
    n3: NonNegative = 0.0
    """Weight of the N3 regularizer: the mean over the queries of sum |x|^3 over source and relation, where |x| of a
    complex number is its modulus (Lacroix et al. 2018). The answer is the source of the triple's other query."""
    l2: NonNegative = 0.0
    """Weight of the L2 regularizer: the mean over the queries of sum x^2 over source and relation."""
    dropout: Fraction = 0.0
    """Dropout rate of the combination of source and relation."""
    kind: str

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking."""
        if spec.task is not Task.RANKING:
            rule = f"it scores the candidates of queries, and task {spec.task} has none"
            yield Fault(scope.path, self.kind, rule, "choose another model, or experiment=knowledge_graph")


class TransE(_KnowledgeGraph):
    """margin - |source + relation - candidate| (Bordes et al. 2013)."""

    kind: Literal["transe"] = "transe"
    norm: Literal[1, 2] = 1
    """1: the sum of the absolute differences; 2: the Euclidean distance."""
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""


class DistMult(_KnowledgeGraph):
    """sum source * relation * candidate (Yang et al. 2015)."""

    kind: Literal["distmult"] = "distmult"


class ComplEx(_KnowledgeGraph):
    """Re(sum source * relation * conj(candidate)) of complex vectors (Trouillon et al. 2016).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts.
    """

    kind: Literal["complex"] = "complex"


class RotatE(_KnowledgeGraph):
    """margin - sum |source * relation / |relation| - candidate| of complex numbers (Sun et al. 2019).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts. Those of a relation only rotate.
    """

    kind: Literal["rotate"] = "rotate"
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""


KnowledgeGraph = TransE | DistMult | ComplEx | RotatE


class _Recommender(Spec):
    """Base class of models that give users and items vectors, whose dot product is the score."""

    user_features: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features of the user."""
    item_features: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features of the item."""
    item_biases: tuple[str, ...] = ()
    """Features of the item, of dim 1, that are added to the score."""
    kind: str

    @property
    def item_side(self) -> tuple[str, ...]:
        """All features of the item."""
        return (*self.item_features, *self.item_biases)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than recommendation."""
        if spec.task is not Task.RECOMMENDATION:
            rule = f"it scores items for users, and task {spec.task} predicts something else"
            yield Fault(scope.path, self.kind, rule, "choose another model, or experiment=recommendation")


class MatrixFactorization(_Recommender):
    """<sum of `user_features`, sum of `item_features`> + sum of `item_biases` (Rendle et al. 2009)."""

    kind: Literal["matrix_factorization"] = "matrix_factorization"


class TwoTower(_Recommender):
    """The dot product of two towers of hidden layers, one for users and one for items (Covington et al. 2016)."""

    kind: Literal["two_tower"] = "two_tower"
    hidden: Widths = (128,)
    """Hidden widths of each tower; a linear layer of `dim` follows."""
    dim: Dim = 64
    """Length of the vectors of users and items."""
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0
    normalize: bool = False
    """Scale the vectors of users and items to length 1."""
    temperature: Positive = 1.0
    """Dot products are divided by it."""


Recommender = MatrixFactorization | TwoTower


class KerasModel(NamedCode):
    """The user's own function, which returns a `keras.Model`."""

    kind: Literal["keras"] = "keras"


Model = Annotated[
    Dot
    | MLP
    | DLRM
    | BagOfWords
    | TextCNN
    | TransE
    | DistMult
    | ComplEx
    | RotatE
    | MatrixFactorization
    | TwoTower
    | KerasModel,
    Field(discriminator="kind"),
]


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


class CustomLoss(NamedCode):
    """The user's own function: `function(labels, logits, **args)` returns the loss of each example."""

    kind: Literal["custom"] = "custom"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task whose loss compares candidates."""
        if spec.task in (Task.RANKING, Task.RECOMMENDATION):
            rule = f"it takes the labels and logits of examples, and task {spec.task} compares candidates"
            remedy = "loss=of_task" if spec.task is Task.RANKING else "loss=bpr, loss=sampled_softmax or loss=softmax"
            yield Fault(scope.path, self.kind, rule, f"choose {remedy}")


RecommendationLoss = BPR | SampledSoftmax | Softmax
Loss = Annotated[LossOfTask | BPR | SampledSoftmax | Softmax | CustomLoss, Field(discriminator="kind")]


class CustomMetric(NamedCode):
    """The user's own metric: `function(labels, predictions, **args)` returns a number."""

    higher_is_better: bool = True
    """Which way early stopping and searches take it."""


class Recommendation(Spec):
    """Items are recommended to users; each is identified by a feature. For other tasks it has no effect."""

    user: str = "user"
    """Feature that identifies the user."""
    item: str = "item"
    """Feature that identifies the item."""
    cutoffs: Annotated[tuple[RowCount, ...], Field(min_length=1)] = (10, 20)
    """Lengths k of the lists of which Recall@k, NDCG@k, hit rate@k and coverage@k are measured; early stopping watches
    NDCG at the first."""

    @field_validator("cutoffs")
    @classmethod
    def _different(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(cutoffs)) < len(cutoffs):
            raise ValueError("the cutoffs must all be different")
        return cutoffs

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Data, a model, features or a strategy that task recommendation does not take."""
        if spec.task is not Task.RECOMMENDATION:
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


def label_faults(data: Columnar, spec: RunSpec) -> Iterator[Fault]:
    """Tasks that need labels without any, and labels of interactions that no threshold turns into 0 and 1."""
    recommends = spec.task is Task.RECOMMENDATION
    if data.label is None and not recommends:
        rule = f"task {spec.task} needs labels"
        yield Fault("data.label", "null", rule, "name their column, or choose experiment=recommendation")
    if data.label is None and data.label_threshold is not None:
        rule = "there are no labels that it could divide"
        yield Fault("data.label_threshold", f"{data.label_threshold:g}", rule, "set data.label, or this to null")
    if data.label is not None and recommends and data.label_threshold is None:
        yield Fault(
            "data.label_threshold",
            "null",
            "an interaction is a row whose label is at least the threshold",
            "set it (to 1 for labels of 0 and 1), or data.label=null if every row is an interaction",
        )


def _no_interactions(spec: RunSpec) -> Iterator[Fault]:
    """Data that holds no interactions of users and items."""
    if spec.data.kind not in ("csv", "parquet", "recbole"):
        rule = "task recommendation reads interactions of users and items, one per row of a file"
        yield Fault("data", spec.data.kind, rule, "choose data=interactions, data=parquet or data=recbole")


def _no_recommender(spec: RunSpec) -> Iterator[Fault]:
    """A model that gives no vectors of users and items."""
    if not isinstance(spec.model, Recommender):
        rule = "task recommendation needs a model that gives users and items vectors"
        yield Fault("model", spec.model.kind, rule, "choose model=matrix_factorization or model=two_tower")


def _identified(spec: RunSpec, path: str, name: str, *, item: bool) -> Iterator[Fault]:
    """A user or an item that no feature of its side identifies."""
    if not isinstance(spec.model, Recommender):
        return
    key = "item_features" if item else "user_features"
    side = spec.model.item_features if item else spec.model.user_features
    if name not in side:
        near = difflib.get_close_matches(name, side, n=1)
        rule = f"it must be one of model.{key}, which are {', '.join(side)}"
        yield Fault(path, repr(name), rule, f"did you mean {near[0]!r}?" if near else f"add it to model.{key}")


def _own_rows(spec: RunSpec, name: str) -> Iterator[Fault]:
    """A user or an item that shares its row with others."""
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
    items = {spec.column_of(name) for name in spec.model.item_side if name in spec.features}
    for name in spec.model.user_features:
        if name in spec.features and spec.column_of(name) in items:
            rule = "it is a feature of the user, and a feature of the item reads the same column"
            yield Fault(f"features.{name}", spec.column_of(name), rule, "leave it to one side")


def _several_replicas(spec: RunSpec) -> Iterator[CombinationFault]:
    """Strategies that divide a batch."""
    if spec.strategy.kind not in ("cpu", "gpu"):
        rule = "task recommendation compares the items of a batch, which this strategy divides among replicas"
        yield CombinationFault("strategy", spec.strategy.kind, rule, "choose strategy=cpu or strategy=gpu")


def _no_estimator(spec: RunSpec) -> Iterator[CombinationFault]:
    """The runtime estimator."""
    if spec.executing_runtime == "estimator":
        rule = "task recommendation has no estimator"
        yield CombinationFault("runtime", "estimator", rule, "set runtime=session or runtime=function")
