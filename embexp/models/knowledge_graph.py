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
from typing import Any

import keras

from embexp.models import layers, scoring
from embexp.models.layers import Head
from embexp.models.scoring import Distances, Products
from embexp.specs.data import CANDIDATES, RELATION, SOURCE
from embexp.specs.models import DENSE, ComplEx, DistMult, KnowledgeGraph, RotatE, TransE

_TINY = 1e-24
"""Least squared modulus of a relation's number before it is scaled to 1: the square root has no derivative at 0."""

Activations = Mapping[str, Any]
"""Symbolic tensors: source and relation [B, dim], candidates [1, C, dim] or [B, C, dim], and, if relations may be
inverse, under `DENSE` 1 for an inverse relation and 0 for others, [B, 1]."""

Combine = Callable[[Any, Any, Any], Any]
"""From source and relation, [B, dim], and -1 for inverse and 1 for other relations, [B, 1] or None, to [B, dim]."""


def transe(model: TransE, activations: Activations, head: Head) -> Any:
    """Bordes et al.: "Translating embeddings for modeling multi-relational data" (2013). Returns scores [B, C]."""
    query = _query(model, activations, _translated, head)
    distance = scoring.absolute if model.norm == 1 else scoring.euclidean
    return Distances(distance, model.margin, name="head.distances")([query, activations[CANDIDATES]])


def distmult(model: DistMult, activations: Activations, head: Head) -> Any:
    """Yang et al.: "Embedding entities and relations for learning and inference in knowledge bases" (2015)."""
    return Products(name="head.products")([_query(model, activations, _scaled, head), activations[CANDIDATES]])


def complex_product(model: ComplEx, activations: Activations, head: Head) -> Any:
    """Trouillon et al.: "Complex embeddings for simple link prediction" (2016).

    The first half of a row holds real parts, the second half imaginary parts; n3 applies to moduli.
    """
    # Re(a conj(c)) is the scalar product of a and c as real vectors.
    return Products(name="head.products")([_query(model, activations, _rotated, head), activations[CANDIDATES]])


def rotate(model: RotatE, activations: Activations, head: Head) -> Any:
    """Sun et al.: "RotatE: knowledge graph embedding by relational rotation in complex space" (2019).

    The first half of a row holds real parts, the second half imaginary parts. Each complex number of a relation is
    divided by its modulus, so it only rotates; n3 applies to moduli, those of relations before.
    """
    query = _query(model, activations, _turned, head)
    return Distances(scoring.moduli, model.margin, name="head.distances")([query, activations[CANDIDATES]])


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


def _query(model: KnowledgeGraph, activations: Activations, combine: Combine, head: Head) -> Any:
    inputs = [activations[SOURCE], activations[RELATION]]
    if DENSE in activations:
        inputs.append(activations[DENSE])
    query = Query(combine, n3=model.n3, l2=model.l2, complex_valued=model.complex_valued, name="head.query")(inputs)
    # The layer's name seeds its dropout, so it must not change: equal specs give equal bits.
    return layers.dropped(query, model.dropout, seed=head.seed, name="head.question.dropout")


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
