"""The deep learning recommendation model: dense features and embeddings interact by pairwise dot products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.models import layers
from embexp.models.shapes import DENSE
from embexp.specs.models import Activation


def dlrm(
    activations: Mapping[str, Any],
    *,
    bottom: Sequence[int],
    top: Sequence[int],
    activation: Activation,
    dropout: float,
    concat: bool,
    seed: int,
) -> Any:
    """Naumov et al.: "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019), §2.

    The bottom MLP maps the dense features to the embeddings' dim d. The dot products of all pairs of vectors (bottom
    output and embeddings, each pair once, none with itself) and the bottom output are the input of the top MLP.

    Args:
        activations: symbolic tensors [B, d] by feature, and [B, n] under `DENSE` if there are dense features;
            without these there is no bottom MLP. Features are taken in the order of their names.
        bottom: hidden units of the bottom MLP; a last layer of d units is added.
        top: hidden units of the top MLP.
        activation: non-linearity of all hidden layers and of the bottom's last one.
        dropout: fraction of the top MLP's hidden units that is dropped in training.
        concat: the top MLP's input includes the embeddings, between the bottom output and the products.
        seed: the run's seed.

    Returns:
        Input of the linear layer that gives the logits, [B, n].
    """
    embeddings = [activations[name] for name in sorted(activations) if name != DENSE]
    processed = []
    if DENSE in activations:
        widths = (*bottom, embeddings[0].shape[-1])
        processed = [
            layers.hidden(activations[DENSE], widths, activation=activation, dropout=0.0, seed=seed, name="bottom")
        ]
    products = PairwiseDots(name="interactions.dots")([*processed, *embeddings])
    x = layers.concatenated([*processed, *(embeddings if concat else ()), products], name="interactions.all")
    return layers.hidden(x, top, activation=activation, dropout=dropout, seed=seed, name="top")


class PairwiseDots(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Dot products of F vectors, each pair once: F times [B, d] -> [B, F(F-1)/2].

    Pairs come in the order (0, 1), (0, 2), …, (1, 2), …
    """

    def call(self, vectors: list[Any]) -> Any:
        """Computes the upper triangle, without the diagonal, of the vectors' Gram matrix."""
        return _pair_products(tf.stack(vectors, axis=1))


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _pair_products(vectors: Any) -> Any:
    """Scalar products x_i x_j of vectors [B, F, d] for all i < j, [B, F(F-1)/2].

    The gradient by x_i is the sum over j of g_ij x_j with g_ji = g_ij: one more product with a symmetric matrix.
    TensorFlow's own gradient of a slice is as large as all products, F times; that of a gather is a sum by segments.
    Products are picked with the batch as the last axis, where each is one piece of memory.
    """
    count = vectors.shape[1]
    upper, place = _pairs(count)
    gram = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])

    def gradient(upstream: Any) -> Any:
        by_pair = tf.pad(tf.transpose(upstream), [[0, 1], [0, 0]])  # the last is that of x_i x_i: 0
        symmetric = tf.reshape(tf.transpose(tf.gather(by_pair, place)), [-1, count, count])
        return tf.matmul(symmetric, vectors)

    return tf.transpose(tf.gather(tf.transpose(gram), upper)), gradient


def _pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each pair of `count` vectors is in their Gram matrix, and where each element of it is among the pairs.

    Returns:
        int32 [P], for P pairs, and int32 [count²], which is P on the diagonal.
    """
    left, right = np.triu_indices(count, 1)
    place = np.full((count, count), len(left), np.int32)
    place[left, right] = place[right, left] = np.arange(len(left))
    return (left * count + right).astype(np.int32), place.reshape(-1)
