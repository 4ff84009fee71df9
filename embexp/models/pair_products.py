"""Dot products of all pairs of some vectors, and their gradient."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.models import fused
from embexp.system import native

_TRIED = 64
"""Examples on which the bits of both ways are compared."""


def pair_products(vectors: list[Any], *, lead: int = 0, training: bool) -> Any:
    """Scalar products x_i x_j of F vectors [B, d] for all i < j, behind the first vectors themselves.

    Args:
        vectors: float32.
        lead: how many of them come first.
        training: whether a gradient is wanted; what is exported has TensorFlow's own operations only.

    Returns:
        [B, lead·d + F(F-1)/2]: x_0, x_1, …, then the products (0, 1), (0, 2), …, (1, 2), ….
    """
    if training and fused.usable("pairs") and _same_bits(len(vectors), int(vectors[0].shape[-1])):
        return _by_library(lead)(*vectors)
    return _plain(lead, *vectors)


def _plain(lead: int, *vectors: Any) -> Any:
    products = by_matrices(tf.stack(vectors, axis=1))
    return tf.concat([*vectors[:lead], products], 1) if lead else products


@tf.custom_gradient  # type: ignore[untyped-decorator]
def by_matrices(vectors: Any) -> Any:
    """The same of vectors [B, F, d], by matrix products.

    Products are picked with the batch as the last axis, where each is one piece of memory.
    """
    count = vectors.shape[1]
    upper, _ = _pairs(count)
    gram = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    products = tf.transpose(tf.gather(tf.transpose(gram), upper))
    return products, functools.partial(_gradient_by_matrices, vectors)


def _gradient_by_matrices(vectors: Any, upstream: Any) -> Any:
    """The gradient by x_i: the sum over j of g_ij x_j with g_ji = g_ij, one more product with a symmetric matrix.

    TensorFlow's own gradient of a slice is as large as all products, F times; that of a gather is a sum by segments.
    """
    count = vectors.shape[1]
    _, place = _pairs(count)
    by_pair = tf.pad(tf.transpose(upstream), [[0, 1], [0, 0]])  # the last is that of x_i x_i: 0
    symmetric = tf.reshape(tf.transpose(tf.gather(by_pair, place)), [-1, count, count])
    return tf.matmul(symmetric, vectors)


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
    return fused.same_bits(_by_library(1), functools.partial(_plain, 1), vectors, upstream)


def _pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each pair of `count` vectors is in their Gram matrix, and where each element of it is among the pairs.

    Returns:
        int32 [P], for P pairs, and int32 [count²], which is P on the diagonal.
    """
    left, right = np.triu_indices(count, 1)
    place = np.full((count, count), len(left), np.int32)
    place[left, right] = place[right, left] = np.arange(len(left))
    return (left * count + right).astype(np.int32), place.reshape(-1)
