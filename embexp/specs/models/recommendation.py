"""Models of ratings and of recommendation: products of vectors of users and items."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Dim, Fraction, Positive
from embexp.specs.models.dense_model import (
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

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


Temperature = Positive | Literal["auto"] | None
"""By what dot products are divided; auto and null: see `Recommender.with_temperature`."""


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
        yield from unknown_features(named, shapes)
        yield from vector_faults("dot", {name: shapes[name] for name in (*self.left, *self.right) if name in shapes})
        yield from bias_faults("model.biases", self.biases, shapes)
        yield from unused_features("dot", named, shapes)
        yield from dense_faults("dot", dense_width, "remove them, or take model=mlp or model=dlrm")
        if classes:
            rule = "a product of two vectors is one number, and task classification needs one for each class"
            remedy = "take model=mlp, model=bag_of_words or model=text_cnn, or another task"
            yield Fault("model", "dot", rule, remedy)


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
            rule = f"it scores items for users, and task {spec.task} predicts something else"
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
                yield Fault("model.user_features", repr(name), rule, "leave it to one side")
        yield from bias_faults("model.item_biases", self.item_biases, shapes)
        yield from unused_features(self.kind, named, shapes)
        yield from dense_faults(self.kind, dense_width, "remove them")

    def vector_faults(self, shapes: Shapes) -> Iterator[Fault]:
        """Sequences of unknown length."""
        return length_faults(self.kind, shapes)


class MatrixFactorization(Recommender):
    """<sum of `user_features`, sum of `item_features`> + sum of `item_biases` (Rendle et al. 2009)."""

    kind: Literal["matrix_factorization"] = "matrix_factorization"
    implementation = "embexp.models.recommendation:matrix_factorization"
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
    implementation = "embexp.models.recommendation:two_tower"
    hidden: Widths = (128,)
    """Hidden widths of each tower; a linear layer of `dim` follows."""
    dim: Dim = 64
    """Length of the vectors of users and items."""
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0
    normalize: bool = False
    temperature: Temperature = 1.0
