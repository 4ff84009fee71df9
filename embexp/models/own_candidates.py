"""Scores of the candidates that each query has of its own, such as negatives drawn for it."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.models import distances, fused
from embexp.system import native

_TRIED = 16
"""Queries on which the bits of both ways are compared."""


def products(query: Any, candidates: Any, *, training: bool) -> Any:
    """Scalar products, [B, C], of queries [B, d] with candidates [B, C, d].

    Args:
        query: float32.
        candidates: float32.
        training: whether a gradient is wanted; what is exported has TensorFlow's own operations only.
    """
    return _scores("products", query, candidates, training)


def absolute(query: Any, candidates: Any, *, training: bool) -> Any:
    """The same of sums of absolute differences."""
    return _scores("absolute", query, candidates, training)


def _scores(kind: str, query: Any, candidates: Any, training: bool) -> Any:
    count, dim = candidates.shape[1:]
    if training and count and fused.usable("candidates") and _same_bits(kind, count, dim):
        return _by_library(kind)(query, candidates)
    return _PLAIN[kind](query, candidates)


def _plain_products(query: Any, candidates: Any) -> Any:
    return keras.ops.squeeze(keras.ops.matmul(candidates, query[:, :, None]), axis=-1)


def _plain_absolute(query: Any, candidates: Any) -> Any:
    return distances.absolute(query[:, None, :] - candidates)


_PLAIN = {"products": _plain_products, "absolute": _plain_absolute}


@functools.cache
def _by_library(kind: str) -> Any:
    """The same by `native_code/candidates.cc`, which passes over the candidates once, and once for their gradients."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scores(query: Any, candidates: Any) -> Any:
        library = native.library("candidates")
        gradient = functools.partial(library.embexp_own_scores_grad, query, candidates, kind=kind)
        return library.embexp_own_scores(query, candidates, kind=kind), lambda upstream: tuple(gradient(upstream))

    return scores


@functools.cache
def _same_bits(kind: str, count: int, dim: int) -> bool:
    """They are where TensorFlow's products are chains of fused multiply-adds in rising order, and its sums Eigen's."""
    random = np.random.default_rng(0)
    query, candidates, upstream = (
        random.standard_normal((_TRIED, *shape)).astype(np.float32) for shape in ((dim,), (count, dim), (count,))
    )
    return fused.same_bits(_by_library(kind), _PLAIN[kind], (query, candidates), upstream)
