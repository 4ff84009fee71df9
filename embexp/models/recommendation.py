"""Models of recommendation: biased matrix factorisation of ratings, vectors of users and items for rankings, and DLRM.

An item's bias is one more number of its vector, where that of the user is 1. So whatever the model, scores of all items
are one product of matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.models import layers
from embexp.models.layers import Head
from embexp.specs.models import DENSE, DLRM, Dot, MatrixFactorization, TwoTower
from embexp.system import native

Activations = Mapping[str, Any]
"""Symbolic tensors by feature: of the user [B, dim], of the item [N, dim] for N items, which are not those of the B
users one by one unless N is B."""


def matrix_factorization(model: MatrixFactorization, activations: Activations, head: Head) -> list[Any]:
    """Sums of the vectors of each side, as in Rendle et al.: "BPR: Bayesian personalized ranking" (2009).

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer. The users' are divided by
        the temperature.
    """
    user = reduce(keras.ops.add, [activations[name] for name in model.user_features])
    item = reduce(keras.ops.add, [activations[name] for name in model.item_features])
    return _scored(model, user, item, activations)


def two_tower(model: TwoTower, activations: Activations, head: Head) -> list[Any]:
    """Two towers of hidden layers, as in Covington et al. (2016) and Yi et al. (2019).

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer. The users' are divided by
        the temperature.
    """
    user = _tower(activations, model.user_features, model, seed=head.seed, name="user")
    item = _tower(activations, model.item_features, model, seed=head.seed, name="item")
    return _scored(model, user, item, activations)


def _tower(activations: Activations, features: Sequence[str], model: TwoTower, *, seed: int, name: str) -> Any:
    x = layers.concatenated([activations[feature] for feature in features], name=f"{name}.features")
    x = layers.hidden(
        x, model.hidden, activation=model.activation, dropout=model.dropout, seed=seed, name=f"{name}.tower"
    )
    return layers.linear(x, model.dim, seed=seed, name=f"{name}.vector")


def _scored(model: MatrixFactorization | TwoTower, user: Any, item: Any, activations: Activations) -> list[Any]:
    """Vectors whose products are the scores: of length 1, by temperature, and with biases, as the model says."""
    if model.normalize:
        user = keras.layers.UnitNormalization(axis=-1, name="user.unit")(user)
        item = keras.layers.UnitNormalization(axis=-1, name="item.unit")(item)
    if model.temperature != 1:  # settled, see `Recommender.settled`
        user = user / model.temperature
    biases = [activations[name] for name in model.item_biases]
    if not biases:
        # Layers with names of their own, so that a model may return an input as it is.
        return [user, item]
    bias = reduce(keras.ops.add, biases)
    return [
        keras.ops.concatenate([user, keras.ops.ones_like(user[:, :1])], axis=-1),
        keras.ops.concatenate([item, bias], axis=-1),
    ]


def dot(model: Dot, activations: Mapping[str, Any], head: Head) -> Any:
    """A global bias + sum of `biases` + <sum of `left`, sum of `right`>.

    Koren, Bell, Volinsky: "Matrix factorization techniques for recommender systems" (2009), eq. 4, with more than one
    vector on a side as in its SVD++. The global bias is trained and starts at the head's.

    Returns:
        Logits [B, 1].
    """
    named = {"left": model.left, "right": model.right, "biases": model.biases}
    inputs = {side: [activations[name] for name in names] for side, names in named.items()}
    return BiasedDot(head.bias, name="head.dot")(inputs)


class BiasedDot(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The formula of `dot` as one layer; its only weight is `bias`, float32 [1]."""

    def __init__(self, bias: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bias = self.add_weight(shape=(1,), initializer=keras.initializers.Constant(bias), name="bias")

    def call(self, inputs: Mapping[str, list[Any]]) -> Any:
        """Takes lists of [B, d] under left and right and of [B, 1] under biases; returns [B, 1]."""
        left = reduce(keras.ops.add, inputs["left"])
        right = reduce(keras.ops.add, inputs["right"])
        product = keras.ops.sum(left * right, axis=-1, keepdims=True)
        return reduce(keras.ops.add, inputs["biases"], product + self.bias)


_TRIED = 64
"""Examples on which the bits of both ways are compared."""
_FEWEST_ZEROS, _MULTIPLE = 5, 16
"""Of the vectors of zeros that follow those whose products are wanted, and of the number of both."""


def dlrm(model: DLRM, activations: Mapping[str, Any], head: Head) -> Any:
    """Naumov et al.: "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019), §2.

    The bottom MLP maps the dense features to the embeddings' dim d. The dot products of all pairs of vectors (bottom
    output and embeddings, each pair once, none with itself) and the bottom output are the input of the top MLP.

    Args:
        activations: symbolic tensors [B, d] by feature, and [B, n] under `DENSE` if there are dense features;
            without these there is no bottom MLP. Features are taken in the order of their names.

    Returns:
        Logits [B, outputs].
    """
    activation, seed = model.activation, head.seed
    embeddings = [activations[name] for name in sorted(activations) if name != DENSE]
    processed = []
    if DENSE in activations:
        widths = (*model.bottom, embeddings[0].shape[-1])
        processed = [
            layers.hidden(activations[DENSE], widths, activation=activation, dropout=0.0, seed=seed, name="bottom")
        ]
    vectors = [*processed, *embeddings]
    x = PairwiseDots(len(vectors if model.concat else processed), name="interactions.dots")(vectors)
    x = layers.hidden(x, model.top, activation=activation, dropout=model.dropout, seed=seed, name="top")
    return layers.logits(x, head)


class PairwiseDots(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The first of F vectors, and the dot products of each pair once: F times [B, d] -> [B, lead·d + F(F-1)/2].

    Pairs come in the order (0, 1), (0, 2), …, (1, 2), …
    """

    def __init__(self, lead: int = 0, **kwargs: Any) -> None:
        """Takes the number of vectors that come first, themselves."""
        super().__init__(**kwargs)
        self._lead = lead

    def get_config(self) -> dict[str, Any]:
        """What makes the layer again."""
        return {**super().get_config(), "lead": self._lead}

    def call(self, vectors: list[Any], training: bool | None = None) -> Any:
        """Computes the upper triangle, without the diagonal, of the vectors' Gram matrix."""
        return pair_products(vectors, lead=self._lead, training=bool(training))


def pair_products(vectors: list[Any], *, lead: int = 0, training: bool) -> Any:
    """Scalar products x_i x_j of F vectors [B, d] for all i < j, behind the first vectors themselves.

    Args:
        vectors: float32.
        lead: how many of them come first.
        training: whether a gradient is wanted; what is exported has TensorFlow's own operations only.

    Returns:
        [B, lead·d + F(F-1)/2]: x_0, x_1, …, then the products (0, 1), (0, 2), …, (1, 2), ….
    """
    if training and layers.usable("pairs") and _same_bits(len(vectors), int(vectors[0].shape[-1])):
        return _by_library(lead)(*vectors)
    return _plain(lead, *vectors)


def _plain(lead: int, *vectors: Any) -> Any:
    products = by_matrices(tf.stack(vectors, axis=1))
    return tf.concat([*vectors[:lead], products], 1) if lead else products


@tf.custom_gradient  # type: ignore[untyped-decorator]
def by_matrices(vectors: Any) -> Any:
    """The same of vectors [B, F, d], by matrix products.

    Products are picked with the batch as the last axis, where each is one piece of memory. Zeros follow the vectors:
    oneDNN's kernel for AVX2 sums products of the last few in another order than the others, so the last are zeros.
    """
    count = vectors.shape[1]
    size = -(-(count + _FEWEST_ZEROS) // _MULTIPLE) * _MULTIPLE
    upper, _ = _pairs(count, size)
    padded = tf.pad(vectors, [[0, 0], [0, size - count], [0, 0]])
    gram = tf.reshape(tf.matmul(padded, padded, transpose_b=True), [-1, size * size])
    products = tf.transpose(tf.gather(tf.transpose(gram), upper))
    return products, functools.partial(_gradient_by_matrices, padded, count)


def _gradient_by_matrices(padded: Any, count: int, upstream: Any) -> Any:
    """The gradient by x_i: the sum over j of g_ij x_j with g_ji = g_ij, one more product with a symmetric matrix.

    TensorFlow's own gradient of a slice is as large as all products, F times; that of a gather is a sum by segments.
    """
    size = padded.shape[1]
    _, place = _pairs(count, size)
    by_pair = tf.pad(tf.transpose(upstream), [[0, 1], [0, 0]])  # the last is that of x_i x_i, and of zeros: 0
    symmetric = tf.reshape(tf.transpose(tf.gather(by_pair, place)), [-1, size, size])
    return tf.matmul(symmetric, padded)[:, :count]


@functools.cache
def _by_library(lead: int) -> Any:
    """The same as `_plain` by `native_code/pairs.cc`, which keeps the products of an example in the nearest cache."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def products(*vectors: Any) -> Any:
        library = native.library("pairs")

        def gradient(upstream: Any) -> Any:
            return library.embexp_pairs_grad(vectors=vectors, upstream=upstream, lead=lead)

        return library.embexp_pairs(vectors=vectors, lead=lead), gradient

    return products


@functools.cache
def _same_bits(count: int, dim: int) -> bool:
    """They are where TensorFlow's matrix products are chains of fused multiply-adds in rising order.

    oneDNN's are, for these sizes.
    """
    random = np.random.default_rng(0)
    vectors = [random.standard_normal((_TRIED, dim)).astype(np.float32) for _ in range(count)]
    upstream = random.standard_normal((_TRIED, dim + count * (count - 1) // 2)).astype(np.float32)
    return layers.same_bits(_by_library(1), functools.partial(_plain, 1), vectors, upstream)


def _pairs(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each pair of `count` vectors is in the Gram matrix, and where its elements are among the pairs.

    Returns:
        int32 [P], for P pairs, and int32 [size²], which is P where the element is of no pair.
    """
    left, right = np.triu_indices(count, 1)
    place = np.full((size, size), len(left), np.int32)
    place[left, right] = place[right, left] = np.arange(len(left))
    return (left * size + right).astype(np.int32), place.reshape(-1)
