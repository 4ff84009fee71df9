"""Models of knowledge graphs: the score of each candidate for a query (source, relation, ?).

Each combines source and relation into one vector and compares it with the candidates' vectors. Head prediction is a
query with the inverse relation. If the inverse has no row in the table, the dense input is 1 for it, and the relation's
vector is inverted, so that a triple has the same score in both directions:

| model | score of (s, r, c) | inverse relation |
|---|---|---|
| transe | margin - |s + r - c| | -r |
| distmult | sum s r c | r |
| complex | Re(sum s r conj(c)) | conj(r) |
| rotate | margin - sum |s r/|r| - c| | conj(r) |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from embexp.models import layers, scoring
from embexp.models.scoring import Distances, Products
from embexp.models.shapes import DENSE
from embexp.specs.data import CANDIDATES, RELATION, SOURCE

_TINY = 1e-24
"""Least squared modulus of a relation's number before it is scaled to 1: the square root has no derivative at 0."""

Activations = Mapping[str, Any]
"""Symbolic tensors: source and relation [B, dim], candidates [1, C, dim] or [B, C, dim], and, if relations may be
inverse, under `DENSE` 1 for an inverse relation and 0 for others, [B, 1]."""

Combine = Callable[[Any, Any, Any], Any]
"""From source and relation, [B, dim], and -1 for inverse and 1 for other relations, [B, 1] or None, to [B, dim]."""


@dataclass(frozen=True)
class Regularization:
    """The regularizers of a knowledge graph model.

    Attributes:
        dropout: fraction of the combination of source and relation that is dropped in training.
        n3: weight of the sum of |x|^3 over source and relation in the model's own loss, the mean over the queries.
        l2: weight of the sum of x^2 in that loss.
    """

    dropout: float
    n3: float
    l2: float


def transe(activations: Activations, regularization: Regularization, *, norm: int, margin: float, seed: int) -> Any:
    """Bordes et al.: "Translating embeddings for modeling multi-relational data" (2013).

    Args:
        regularization: see there.
        norm: 1 for the sum of absolute differences, 2 for the Euclidean distance.
        margin: score of a distance of 0.
        seed: the run's seed.

    Returns:
        Scores [B, C].
    """
    query = _query(activations, _translated, regularization, seed=seed)
    distance = scoring.absolute if norm == 1 else scoring.euclidean
    return Distances(distance, margin, name="head.distances")([query, activations[CANDIDATES]])


def distmult(activations: Activations, regularization: Regularization, *, seed: int) -> Any:
    """Yang et al.: "Embedding entities and relations for learning and inference in knowledge bases" (2015).

    Arguments and result are those of `transe`.
    """
    query = _query(activations, _scaled, regularization, seed=seed)
    return Products(name="head.products")([query, activations[CANDIDATES]])


def complex_product(activations: Activations, regularization: Regularization, *, seed: int) -> Any:
    """Trouillon et al.: "Complex embeddings for simple link prediction" (2016).

    The first half of a row holds real parts, the second half imaginary parts; n3 applies to moduli. Otherwise,
    arguments and result are those of `transe`.
    """
    query = _query(activations, _rotated, regularization, complex_valued=True, seed=seed)
    # Re(a conj(c)) is the scalar product of a and c as real vectors.
    return Products(name="head.products")([query, activations[CANDIDATES]])


def rotate(activations: Activations, regularization: Regularization, *, margin: float, seed: int) -> Any:
    """Sun et al.: "RotatE: knowledge graph embedding by relational rotation in complex space" (2019).

    The first half of a row holds real parts, the second half imaginary parts. Each complex number of a relation is
    divided by its modulus, so it only rotates; n3 applies to moduli, those of relations before. Otherwise, arguments
    and result are those of `transe`.
    """
    query = _query(activations, _turned, regularization, complex_valued=True, seed=seed)
    return Distances(scoring.moduli, margin, name="head.distances")([query, activations[CANDIDATES]])


class Query(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """One vector from source and relation, and the loss that regularises both."""

    def __init__(self, combine: Combine, *, n3: float, l2: float, complex_valued: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._combine, self._n3, self._l2, self._complex_valued = combine, n3, l2, complex_valued

    def call(self, inputs: list[Any]) -> Any:
        """Takes source and relation, [B, dim], and optionally 1 for inverse relations, [B, 1]; returns [B, dim]."""
        source, relation, *inverse = inputs
        sign = 1 - 2 * inverse[0] if inverse else None
        if self._n3 or self._l2:
            # The mean over the batch, as Keras adds it to the loss unchanged.
            self.add_loss(keras.ops.mean(self._penalty(source) + self._penalty(relation)))
        return self._combine(source, relation, sign)

    def _penalty(self, x: Any) -> Any:
        squares = keras.ops.square(x)
        penalty = self._l2 * keras.ops.sum(squares, axis=-1)
        if self._n3:
            if self._complex_valued:
                real, imaginary = keras.ops.split(squares, 2, axis=-1)
                squares = real + imaginary
            penalty += self._n3 * keras.ops.sum(keras.ops.power(squares, 1.5), axis=-1)
        return penalty


def _query(
    activations: Activations,
    combine: Combine,
    regularization: Regularization,
    *,
    seed: int,
    complex_valued: bool = False,
) -> Any:
    inputs = [activations[SOURCE], activations[RELATION]]
    if DENSE in activations:
        inputs.append(activations[DENSE])
    n3, l2 = regularization.n3, regularization.l2
    query = Query(combine, n3=n3, l2=l2, complex_valued=complex_valued, name="head.query")(inputs)
    # The layer's name seeds its dropout, so it must not change: equal specs give equal bits.
    return layers.dropped(query, regularization.dropout, seed=seed, name="head.question.dropout")


def _translated(source: Any, relation: Any, sign: Any) -> Any:
    return source + (relation if sign is None else relation * sign)


def _scaled(source: Any, relation: Any, sign: Any) -> Any:
    return source * relation


def _rotated(source: Any, relation: Any, sign: Any) -> Any:
    """The product of complex numbers, with the conjugates of inverse relations."""
    a, b = keras.ops.split(source, 2, axis=-1)
    c, d = keras.ops.split(relation, 2, axis=-1)
    d = d if sign is None else d * sign
    return keras.ops.concatenate([a * c - b * d, a * d + b * c], axis=-1)


def _turned(source: Any, relation: Any, sign: Any) -> Any:
    """The product of complex numbers, those of relations divided by their moduli."""
    real, imaginary = keras.ops.split(keras.ops.square(relation), 2, axis=-1)
    moduli = keras.ops.sqrt(keras.ops.maximum(real + imaginary, _TINY))
    return _rotated(source, relation / keras.ops.concatenate([moduli, moduli], axis=-1), sign)
