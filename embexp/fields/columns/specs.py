"""Models of tables of columns: categories, lists and numbers of an example together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Dim, Fraction, different
from embexp.specs.models import (
    Activation,
    DenseModel,
    Shapes,
    Widths,
    bias_faults,
    dense_faults,
    length_faults,
    listed,
    sequence_faults,
    unknown_features,
    unused_features,
    vector_faults,
)

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec


class DLRM(DenseModel):
    """Bottom MLP of the dense features, pairwise dot products of all vectors, top MLP (Naumov et al. 2019)."""

    kind: Literal["dlrm"] = "dlrm"
    implementation = "embexp.fields.columns.models:dlrm"
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
        yield from vector_faults("dlrm", shapes)
        if len(shapes) + bool(dense_width) < 2:
            rule = "it needs two vectors that interact: two features, or one feature and dense features"
            yield Fault("model", "dlrm with a single vector", rule, "add a feature, or choose model=mlp")

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """The bottom MLP without dense features."""
        if not spec.data.dense_columns:
            yield "model.bottom: there are no dense features"


class Factorization(DenseModel):
    """Base class of factorization machines, which multiply the vectors of all features, and those of dense features."""

    biases: Annotated[tuple[str, ...], different("a feature adds its first-order weight once")] = ()
    """Features of dim 1 that are first-order weights; without any, these are linear in the vectors."""

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Sequences, a single vector, which interacts with none, and biases of several numbers or for classes."""
        yield from unknown_features({"biases": self.biases}, shapes)
        yield from bias_faults("model.biases", self.biases, shapes)
        vectors = {name: shape for name, shape in shapes.items() if name not in self.biases}
        yield from sequence_faults(self.kind, vectors)
        if not vectors or len(vectors) + dense_width < 2:
            found = f"{self.kind} with a single vector" if vectors else f"{self.kind} without vectors"
            rule = "it needs two vectors that interact: two features, or one feature and dense features; not biases"
            yield Fault("model", found, rule, "add a feature, or choose model=mlp")
        if classes and self.biases:
            rule = "a bias is one number, but task classification needs one per class"
            remedy = "remove them: first-order weights are then linear in the vectors"
            yield Fault("model.biases", listed(dict.fromkeys(self.biases)), rule, remedy)


class FM(Factorization):
    """Factorization machine: a bias, first-order weights, and dot products of all pairs of vectors (Rendle 2010)."""

    kind: Literal["fm"] = "fm"
    implementation = "embexp.fields.columns.models:fm"


class DeepFM(Factorization):
    """A factorization machine and an MLP of the same vectors, summed (Guo et al. 2017)."""

    kind: Literal["deepfm"] = "deepfm"
    implementation = "embexp.fields.columns.models:deepfm"
    hidden: Widths = (64, 32)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Its hidden layers."""
        return {"model.hidden": self.hidden}


class DCNv2(DenseModel):
    """Deep & cross network: layers that multiply all inputs with each other, and an MLP (Wang et al. 2021)."""

    kind: Literal["dcn_v2"] = "dcn_v2"
    implementation = "embexp.fields.columns.models:dcn_v2"
    layers: Annotated[int, Field(ge=1, le=100, strict=True)] = 3
    """Cross layers: products of up to `layers` + 1 inputs."""
    rank: Dim | None = 64
    """Rank of a cross layer's matrix, where that makes it smaller; null: always a full one."""
    structure: Literal["parallel", "stacked"] = "parallel"
    """Hidden layers next to the cross layers, or behind them."""
    hidden: Widths = (64, 32)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Its hidden layers."""
        return {"model.hidden": self.hidden}

    def low_rank(self, width: int) -> int | None:
        """The rank of the matrices for so many inputs; None: full ones, which have no more weights."""
        return None if self.rank is None or 2 * self.rank >= width else self.rank

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Sequences of unknown length."""
        return length_faults(self.kind, shapes)

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """A rank that saves no weights, and the structure without hidden layers."""
        tables = {name: spec.tables[feature.table] for name, feature in spec.features.items()}
        known = [
            math.prod(spec.features[name].activation_shape(table.vector_dim(table.dim)))
            for name, table in tables.items()
            if table.dim is not None
        ]
        width = sum(known) + spec.data.dense_width
        if self.rank is not None and len(known) == len(tables) and self.low_rank(width) is None:
            yield f"model.rank: with {width:,} inputs, a full matrix has no more weights"
        if not self.hidden:
            yield "model.structure: there are no hidden layers"


class Dot(DenseModel):
    """Biased matrix factorisation: bias + sum of `biases` + <sum of `left`, sum of `right`> (Koren et al. 2009)."""

    kind: Literal["dot"] = "dot"
    implementation = "embexp.fields.columns.models:dot"
    left: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are summed on the left, all of the same dim."""
    right: Annotated[tuple[str, ...], Field(min_length=1)]
    """Features whose vectors are summed on the right, of the same dim."""
    biases: tuple[str, ...] = ()
    """Features of dim 1 that are added to the result."""

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Features that are not vectors of one dim, or that it does not name; dense features; and classes."""
        named = {"left": self.left, "right": self.right, "biases": self.biases}
        yield from unknown_features(named, shapes)
        yield from vector_faults("dot", {name: shapes[name] for name in (*self.left, *self.right) if name in shapes})
        yield from bias_faults("model.biases", self.biases, shapes)
        yield from unused_features("dot", named, shapes)
        yield from dense_faults("dot", dense_width, "remove them, or choose model=mlp or model=dlrm")
        if classes:
            rule = "a product of two vectors is one number, but task classification needs one per class"
            remedy = "choose model=mlp, model=bag_of_words or model=text_cnn, or another task"
            yield Fault("model", "dot", rule, remedy)
