"""The dense part of a model, from activations by feature name to the logits of each example."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from embexp.errors import Fault
from embexp.specs.base import Fraction, NonNegative, Positive, Spec
from embexp.specs.bounds import Dim

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Task(StrEnum):
    """The task of the model: what it predicts, its loss and its metrics."""

    RATING = "rating"
    """A number: squared error; RMSE, MAE."""
    CLICK = "click"
    """Whether something happens, label 0 or 1: log loss; log loss, AUC."""
    CLASSIFICATION = "classification"
    """One of several classes, label 0, 1, 2, …: log loss of a softmax; accuracy, log loss, macro F1."""
    RANKING = "ranking"
    """One of many candidates, for the queries of a knowledge graph: the model's loss; MRR, Hits@k."""
    RECOMMENDATION = "recommendation"
    """Items for a user, from interactions (implicit feedback): the chosen loss; Recall@k, NDCG@k, hit rate, MRR."""


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


class KerasModel(Spec):
    """The user's own function, which returns a `keras.Model`."""

    kind: Literal["keras"] = "keras"
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    """Dotted path `package.module:function`, importable from the working directory or the environment."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Passed on as keyword arguments."""


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
