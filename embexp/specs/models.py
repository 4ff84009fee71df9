"""The task of a run and its model: the dense part, from activations by feature name to the logits of each example.

A model has rules for its inputs, which are shared by the config's check, the run, and the model's function.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Choice, Dim, Fraction, NamedCode, NonNegative, Positive, different

if TYPE_CHECKING:
    from embexp.specs.base import Scope
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
DENSE = "dense.features"
"""Name of the input of dense features, float32 [B, n]. A feature's name has no dot, so none can clash with it."""
Shapes = Mapping[str, tuple[int | None, ...]]
"""Shape of each feature's activation without the batch: (dim,) when combined, (length, dim) when a sequence."""


class DenseModel(Choice):
    """Base class of models; the implementation takes symbolic activations and a `Head`, see `embexp.models.build`."""

    kind: str
    has_weights: ClassVar[bool] = True
    """Whether it has weights outside the tables."""

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Widths of hidden layers that follow each other, by config path; of a convolution, its feature maps."""
        return {}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """The reasons why it can't take these inputs, under `model.`, `features.` and `data.`.

        Args:
            classes: whether it must return a logit per class, as task classification requires.
        """
        return iter(())

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """Settings without effect, each as `config path: reason`."""
        return iter(())


class Dot(DenseModel):
    """Biased matrix factorisation: bias + sum of `biases` + <sum of `left`, sum of `right`> (Koren et al. 2009)."""

    kind: Literal["dot"] = "dot"
    implementation = "embexp.models.recommendation:dot"
    left: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are summed on the left, all of the same dim."""
    right: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are summed on the right, of the same dim."""
    biases: tuple[str, ...] = ()
    """Features of dim 1 that are added to the result."""

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Features that are not vectors of one dim, or that it does not name; dense features; and classes."""
        named = {"left": self.left, "right": self.right, "biases": self.biases}
        yield from _not_there(named, shapes)
        yield from _vector_faults("dot", {name: shapes[name] for name in (*self.left, *self.right) if name in shapes})
        yield from _bias_faults("model.biases", self.biases, shapes)
        yield from _not_named("dot", named, shapes)
        yield from _no_dense("dot", dense_width, "remove them, or take model=mlp or model=dlrm")
        if classes:
            rule = "a product of two vectors is one number, and task classification needs one for each class"
            remedy = "take model=mlp, model=bag_of_words or model=text_cnn, or another task"
            yield Fault("model", "dot", rule, remedy)


class MLP(DenseModel):
    """All activations and dense features, concatenated, through hidden layers to the logit."""

    kind: Literal["mlp"] = "mlp"
    implementation = "embexp.models.build:mlp"
    hidden: Widths = (64,)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Its hidden layers."""
        return {"model.hidden": self.hidden}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Sequences of unknown length."""
        return _static_faults(self.kind, shapes)


class DLRM(DenseModel):
    """Bottom MLP of the dense features, pairwise dot products of all vectors, top MLP (Naumov et al. 2019)."""

    kind: Literal["dlrm"] = "dlrm"
    implementation = "embexp.models.recommendation:dlrm"
    bottom: Widths = (64,)
    """Hidden widths of the bottom MLP; a last layer of the embeddings' dim is added. None without dense features."""
    top: Widths = (64, 32)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0
    concat: bool = False
    """Also give the top MLP the embeddings, in addition to their dot products."""

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Those of both MLPs."""
        return {"model.bottom": self.bottom, "model.top": self.top}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Features that are not vectors of one dim, and a single vector, which interacts with none."""
        yield from _vector_faults("dlrm", shapes)
        if len(shapes) + bool(dense_width) < 2:
            rule = "it needs two vectors that interact: two features, or one feature and dense features"
            yield Fault("model", "dlrm of a single vector", rule, "add a feature, or take model=mlp")

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """The bottom MLP without dense features."""
        if not spec.data.dense_columns:
            yield "model.bottom: there are no dense features"


class BagOfWords(DenseModel):
    """The mean of the vectors of each text, with dropout, through a linear layer to the logits."""

    kind: Literal["bag_of_words"] = "bag_of_words"
    implementation = "embexp.models.texts:bag_of_words"
    dropout: Fraction = 0.5
    """Dropout rate of the mean."""


class TextCNN(DenseModel):
    """Convolutions over the words, the maximum of each over the text, a linear layer to the logits (Kim 2014)."""

    kind: Literal["text_cnn"] = "text_cnn"
    implementation = "embexp.models.texts:text_cnn"
    widths: Annotated[
        Widths,
        Field(min_length=1),
        different("the widths must all be different; set maps for more feature maps of each width"),
    ] = (3, 4, 5)
    """Widths of the convolutions in words; one layer for each, all different."""
    maps: Dim = 100
    """Feature maps of each width."""
    dropout: Fraction = 0.5
    """Dropout rate of the maxima."""
    max_norm: Positive | None = 3.0
    """The weights of each logit are scaled down to at most this L2 norm after a step; null: no bound."""

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """The feature maps of its convolutions."""
        return {"model.maps": [self.maps for _ in self.widths]}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """No sequence of words, and features of more dimensions."""
        if not any(len(shape) == 2 for shape in shapes.values()):
            rule = "it needs a sequence of words, and every feature here is one vector per example"
            remedy = "set max_sequence_length of a feature, or take model=bag_of_words"
            yield Fault("model", "text_cnn without a sequence", rule, remedy)
        for name, shape in shapes.items():
            if len(shape) > 2:
                rule = "text_cnn takes a sequence of vectors, or one vector, per feature"
                remedy = f"leave features.{name}.output_shape unset"
                yield Fault(f"features.{name}", f"activations of shape {_shape(shape)}", rule, remedy)


class RankingLoss(StrEnum):
    """The loss over the candidates of a query."""

    SOFTMAX = "softmax"
    """-log p[answer] with p = softmax(scores of the candidates)."""
    BINARY = "binary"
    """The log loss of each candidate's sigmoid, 1 for the answer and 0 for others; their mean."""


class KnowledgeGraph(DenseModel):
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
    has_weights = False
    by_distance: ClassVar[bool] = False
    """Whether scores are a margin minus distances, which take more time and memory than products."""
    complex_valued: ClassVar[bool] = False
    """Whether two of a row's numbers are a complex number."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than ranking."""
        if spec.task is not Task.RANKING:
            rule = f"it scores the candidates of queries, and task {spec.task} has none"
            yield Fault(scope.path, self.kind, rule, "choose another model, or experiment=knowledge_graph")

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Other features than source, relation and candidates, and vectors that are not of one dim."""
        from embexp.specs.data import CANDIDATES, RELATION, SOURCE

        required = (SOURCE, RELATION, CANDIDATES)
        if missing := [name for name in required if name not in shapes]:
            lacking = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            yield Fault(
                "features",
                _listed(shapes),
                f"{self.kind} takes the features {', '.join(required)}, but {lacking}",
                "take graph=knowledge_graph",
            )
            return
        for name in shapes:
            if name not in required:
                rule = f"every feature must be used, and {self.kind} uses only {', '.join(required)}"
                yield Fault(f"features.{name}", "unused", rule, "remove the feature")
        vectors = {name: shapes[name] for name in required if name in shapes}
        yield from _vector_faults(self.kind, vectors)
        odd = {name: shape[-1] for name, shape in vectors.items() if shape[-1] is None or shape[-1] % 2}
        if self.complex_valued and odd:
            found = ", ".join(f"{name} {dim}" for name, dim in odd.items())
            rule = f"a complex number is two of a row's numbers, so dims must be even, but there is {found}"
            yield Fault("model", self.kind, rule, "set an even dim for its table")

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """A margin of softmax."""
        if getattr(self, "margin", 0.0) and self.loss is RankingLoss.SOFTMAX:
            yield "model.margin: a softmax depends only on differences of scores"


class TransE(KnowledgeGraph):
    """margin - |source + relation - candidate| (Bordes et al. 2013)."""

    kind: Literal["transe"] = "transe"
    implementation = "embexp.models.knowledge_graph:transe"
    by_distance = True
    norm: Literal[1, 2] = 1
    """1: the sum of the absolute differences; 2: the Euclidean distance."""
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""


class DistMult(KnowledgeGraph):
    """sum source * relation * candidate (Yang et al. 2015)."""

    kind: Literal["distmult"] = "distmult"
    implementation = "embexp.models.knowledge_graph:distmult"


class ComplEx(KnowledgeGraph):
    """Re(sum source * relation * conj(candidate)) of complex vectors (Trouillon et al. 2016).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts.
    """

    kind: Literal["complex"] = "complex"
    implementation = "embexp.models.knowledge_graph:complex_product"
    complex_valued = True


class RotatE(KnowledgeGraph):
    """margin - sum |source * relation / |relation| - candidate| of complex numbers (Sun et al. 2019).

    A row holds dim / 2 complex numbers: all real parts, then all imaginary parts. Those of a relation only rotate.
    """

    kind: Literal["rotate"] = "rotate"
    implementation = "embexp.models.knowledge_graph:rotate"
    by_distance = complex_valued = True
    margin: NonNegative = 0.0
    """Score of a candidate at distance 0; has no effect on a softmax."""


class Recommender(DenseModel):
    """Base class of models that give users and items vectors, whose dot product is the score."""

    user_features: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features of the user."""
    item_features: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features of the item."""
    item_biases: tuple[str, ...] = ()
    """Features of the item, of dim 1, that are added to the score."""

    @property
    def item_side(self) -> tuple[str, ...]:
        """All features of the item."""
        return (*self.item_features, *self.item_biases)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task other than recommendation."""
        if spec.task is not Task.RECOMMENDATION:
            rule = f"it scores items for users, and task {spec.task} predicts something else"
            yield Fault(scope.path, self.kind, rule, "choose another model, or experiment=recommendation")

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Features of both sides or of none, biases of several numbers, vectors that don't fit, and dense features."""
        named = {
            "user_features": self.user_features,
            "item_features": self.item_features,
            "item_biases": self.item_biases,
        }
        yield from _not_there(named, shapes)
        yield from self.vector_faults(shapes)
        for name in self.user_features:
            if name in self.item_side:
                rule = "it is also a feature of the item"
                yield Fault("model.user_features", repr(name), rule, "leave it to one side")
        yield from _bias_faults("model.item_biases", self.item_biases, shapes)
        yield from _not_named(self.kind, named, shapes)
        yield from _no_dense(self.kind, dense_width, "remove them")

    def vector_faults(self, shapes: Shapes) -> Iterator[Fault]:
        """Sequences of unknown length."""
        return _static_faults(self.kind, shapes)


class MatrixFactorization(Recommender):
    """<sum of `user_features`, sum of `item_features`> + sum of `item_biases` (Rendle et al. 2009)."""

    kind: Literal["matrix_factorization"] = "matrix_factorization"
    implementation = "embexp.models.recommendation:matrix_factorization"
    has_weights = False

    def vector_faults(self, shapes: Shapes) -> Iterator[Fault]:
        """Features that are not vectors of one dim."""
        names = (*self.user_features, *self.item_features)
        return _vector_faults(self.kind, {name: shapes[name] for name in names if name in shapes})


class TwoTower(Recommender):
    """The dot product of two towers of hidden layers, one for users and one for items (Covington et al. 2016)."""

    kind: Literal["two_tower"] = "two_tower"
    implementation = "embexp.models.recommendation:two_tower"
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


class KerasModel(NamedCode, DenseModel):
    """The user's own function, which returns a `keras.Model`."""

    kind: Literal["keras"] = "keras"
    implementation = "embexp.models.build:own"


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


def _not_there(named: Mapping[str, Sequence[str]], shapes: Shapes) -> Iterator[Fault]:
    """Features that the settings of a model name and the run lacks."""
    for key, names in named.items():
        for name in names:
            if name not in shapes:
                near = difflib.get_close_matches(name, shapes, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"the features are {_listed(shapes)}"
                yield Fault(f"model.{key}", repr(name), "it must name features of this run", remedy)


def _not_named(kind: str, named: Mapping[str, Sequence[str]], shapes: Shapes) -> Iterator[Fault]:
    """Features of the run that no setting of a model names, but for those that a misspelt name means."""
    names = [name for names in named.values() for name in names]
    meant = [difflib.get_close_matches(name, shapes, n=1) for name in names if name not in shapes]
    used = {*names, *(near for found in meant for near in found)}
    *keys, last = (f"model.{key}" for key in named)
    for name in shapes:
        if name not in used:
            rule = f"every feature must be used, and {kind} uses only those that it names"
            remedy = f"add {name!r} to {', '.join(keys)} or {last}, or remove the feature"
            yield Fault(f"features.{name}", "unused", rule, remedy)


def _bias_faults(path: str, names: Sequence[str], shapes: Shapes) -> Iterator[Fault]:
    for name in names:
        if name in shapes and tuple(shapes[name]) != (1,):
            yield Fault(path, repr(name), f"a bias has dim 1, but {name!r} gives {_shape(shapes[name])}")


def _no_dense(kind: str, dense_width: int, remedy: str) -> Iterator[Fault]:
    if dense_width:
        yield Fault("data.dense_features", f"{dense_width} columns", f"{kind} takes no dense features", remedy)


def _vector_faults(kind: str, shapes: Shapes) -> Iterator[Fault]:
    """Faults unless there is one vector per feature, all of one dim."""
    for name, shape in shapes.items():
        if len(shape) != 1:
            rule = f"{kind} takes one vector per feature"
            remedy = f"set features.{name}.max_sequence_length to 0 and leave output_shape unset, or take model=mlp"
            yield Fault(f"features.{name}", f"a sequence of shape {_shape(shape)}", rule, remedy)
    dims = {name: shape[-1] for name, shape in shapes.items()}
    if len(set(dims.values())) > 1:
        found = ", ".join(f"{name} {dim}" for name, dim in dims.items())
        yield Fault("model", kind, f"the vectors it multiplies must have one dim, but have {found}")


def _static_faults(kind: str, shapes: Shapes) -> Iterator[Fault]:
    for name, shape in shapes.items():
        if None in shape:
            rule = f"{kind} concatenates all activations, so their length must be known"
            remedy = f"set features.{name}.max_sequence_length"
            yield Fault(f"features.{name}", f"activations of shape {_shape(shape)}", rule, remedy)


def _shape(shape: tuple[int | None, ...]) -> str:
    return "[B, " + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
