"""Models of knowledge graphs: how well each candidate answers a question (source, relation, ?).

All make one vector of source and relation and hold it against the candidates' own. A question for a head is one of the
inverse relation. Where that has a row of its own, nothing more is to be done; where not, the dense input says 1, and
the relation's vector is turned round, so that the score of a triple is the same whichever way it is asked:

| model | score of (s, r, c) | turned round |
|---|---|---|
| transe | margin - |s + r - c| | -r |
| distmult | sum s r c | r |
| complex | Re(sum s r conj(c)) | conj(r) |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras

from embexp.models import layers
from embexp.models.shapes import DENSE
from embexp.specs.data import CANDIDATES, RELATION, SOURCE

_TINY = 1e-24
"""Least squared distance: the root has no derivative at 0."""

Activations = Mapping[str, Any]
"""Symbolic tensors: source and relation [B, dim], candidates [1, C, dim] or [B, C, dim], and, if relations are to be
turned round, 1 or 0 under `DENSE`, [B, 1]."""


def transe(
    activations: Activations, *, norm: int, margin: float, dropout: float, n3: float, l2: float, seed: int
) -> Any:
    """Bordes et al.: "Translating embeddings for modeling multi-relational data" (2013).

    Args:
        activations: see `Activations`.
        norm: 1 for the sum of absolute differences, 2 for the Euclidean distance.
        margin: score of a distance of 0.
        dropout: part of source + relation that is dropped while training.
        n3: weight of the sum of |x|^3 over source and relation in the model's own loss, the mean over the questions.
        l2: likewise of x^2.
        seed: of the run.

    Returns:
        Scores [B, C].
    """
    asked = _asked(activations, _translated, dropout=dropout, n3=n3, l2=l2, pairs=False, seed=seed)
    return Distances(norm, margin, name="head.distances")([asked, activations[CANDIDATES]])


def distmult(activations: Activations, *, dropout: float, n3: float, l2: float, seed: int) -> Any:
    """Yang et al.: "Embedding entities and relations for learning and inference in knowledge bases" (2015).

    Takes and gives what `transe` does.
    """
    asked = _asked(activations, _scaled, dropout=dropout, n3=n3, l2=l2, pairs=False, seed=seed)
    return Products(name="head.products")([asked, activations[CANDIDATES]])


def complex_product(activations: Activations, *, dropout: float, n3: float, l2: float, seed: int) -> Any:
    """Trouillon et al.: "Complex embeddings for simple link prediction" (2016).

    The first half of a row holds real parts, the second imaginary ones; n3 is of moduli. Otherwise takes and gives
    what `transe` does.
    """
    asked = _asked(activations, _turned, dropout=dropout, n3=n3, l2=l2, pairs=True, seed=seed)
    # Re(a conj(c)) is the product of a and c as real vectors.
    return Products(name="head.products")([asked, activations[CANDIDATES]])


class Question(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """One vector of source and relation, and the loss that keeps both small."""

    def __init__(
        self, made: Callable[[Any, Any, Any], Any], *, n3: float, l2: float, pairs: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._made, self._n3, self._l2, self._pairs = made, n3, l2, pairs

    def call(self, inputs: list[Any]) -> Any:
        """Takes source and relation, [B, dim], and maybe 1 where that is turned round, [B, 1]; gives [B, dim]."""
        source, relation, *turned = inputs
        sign = 1 - 2 * turned[0] if turned else None
        if self._n3 or self._l2:
            # Of the batch's mean: Keras adds what it is given to the loss as it is.
            self.add_loss(keras.ops.mean(self._size(source) + self._size(relation)))
        return self._made(source, relation, sign)

    def _size(self, x: Any) -> Any:
        squares = keras.ops.square(x)
        size = self._l2 * keras.ops.sum(squares, axis=-1)
        if self._n3:
            if self._pairs:
                real, imaginary = keras.ops.split(squares, 2, axis=-1)
                squares = real + imaginary
            size += self._n3 * keras.ops.sum(keras.ops.power(squares, 1.5), axis=-1)
        return size


class Products(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Scalar products of vectors [B, dim] with candidates [1, C, dim] or [B, C, dim]: [B, C]."""

    def call(self, inputs: list[Any]) -> Any:
        """Takes the vectors and the candidates."""
        asked, candidates = inputs
        if candidates.shape[0] == 1:  # one multiplication of matrices for all questions
            return keras.ops.matmul(asked, keras.ops.transpose(candidates[0]))
        return keras.ops.squeeze(keras.ops.matmul(candidates, asked[:, :, None]), axis=-1)


class Distances(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Margin less the distances of vectors [B, dim] from candidates [1, C, dim] or [B, C, dim]: [B, C].

    Takes memory for all B x C x dim differences: differences of products would lose the digits of small distances.
    """

    def __init__(self, norm: int, margin: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._norm, self._margin = norm, margin

    def call(self, inputs: list[Any]) -> Any:
        """Takes the vectors and the candidates."""
        asked, candidates = inputs
        apart = asked[:, None, :] - candidates
        if self._norm == 1:
            return self._margin - keras.ops.sum(keras.ops.abs(apart), axis=-1)
        squared = keras.ops.sum(keras.ops.square(apart), axis=-1)
        return self._margin - keras.ops.sqrt(keras.ops.maximum(squared, _TINY))


def _asked(
    activations: Activations,
    made: Callable[[Any, Any, Any], Any],
    *,
    dropout: float,
    n3: float,
    l2: float,
    pairs: bool,
    seed: int,
) -> Any:
    parts = [activations[SOURCE], activations[RELATION]]
    if DENSE in activations:
        parts.append(activations[DENSE])
    question = Question(made, n3=n3, l2=l2, pairs=pairs, name="head.question")
    return layers.dropped(question(parts), dropout, seed=seed, name="head.question.dropout")


def _translated(source: Any, relation: Any, sign: Any) -> Any:
    return source + (relation if sign is None else relation * sign)


def _scaled(source: Any, relation: Any, sign: Any) -> Any:
    return source * relation


def _turned(source: Any, relation: Any, sign: Any) -> Any:
    a, b = keras.ops.split(source, 2, axis=-1)
    c, d = keras.ops.split(relation, 2, axis=-1)
    d = d if sign is None else d * sign
    return keras.ops.concatenate([a * c - b * d, a * d + b * c], axis=-1)
