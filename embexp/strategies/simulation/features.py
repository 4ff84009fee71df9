"""Reads the inputs of `EnqueueTPUEmbeddingArbitraryTensorBatch` into one form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.tables.inputs import Occurrences


@dataclass(frozen=True)
class Layout:
    """Which tensors the host sends to the cores for a feature.

    Attributes:
        summed: several ids may add to one vector, so there are segments; False: id i is vector i.
        divided: there is a denominator for each vector.
    """

    summed: bool = False
    weighted: bool = False
    divided: bool = False

    def dtypes(self) -> list[Any]:
        """Types of the tensors, in the order in which `read_input` returns them."""
        optional = ((self.summed, tf.int32), (self.weighted, tf.float32), (self.divided, tf.float32))
        return [tf.int64, *(dtype for there, dtype in optional if there)]


@dataclass(frozen=True)
class FeatureDescription:
    """A feature in a `TPUEmbeddingConfiguration`.

    Attributes:
        name: of the feature; its number if it has no name.
        dim: width of a row.
        combiner: "sum", "mean" or "sqrtn".
        shape: of its activations for one replica, without dim.
    """

    name: str
    table: str
    dim: int
    combiner: str
    shape: tuple[int, ...]


def read_input(feature: FeatureDescription, places: Any, ids: Any, weights: Any) -> tuple[Layout, list[Any]]:
    """Reads one replica's input of a feature.

    Sparse ids combine over their last dimension. Ids beyond the end of another dimension, except the first, are cut
    off: so `TPUEmbedding` cuts sequences. Ragged ids with one row per vector combine; with k vectors per row they are a
    sequence, cut or padded with zeros to k.

    Args:
        places: int32; empty for dense ids, indices [n, rank] for sparse, row splits for ragged.
        ids: integers [n].
        weights: float32 [n], or empty for all 1.

    Returns:
        The layout, and its tensors: ids, segments, weights, denominators.

    Raises:
        ValueError: the input does not fit the feature's shape.
    """
    ids = tf.cast(ids, tf.int64)
    weights = None if weights.shape.num_elements() == 0 else weights
    if places.shape.rank == 2:
        kept, segments = _sparse(feature, places)
    elif places.shape.num_elements() == 0:
        return Layout(), [_dense(feature, ids)]
    else:
        kept, segments = _ragged(feature, places, tf.size(ids))
    if weights is not None:
        with tf.control_dependencies([_as_many(feature, ids, weights)]):
            weights = tf.identity(weights)
    if kept is not None:
        ids, segments = tf.boolean_mask(ids, kept), tf.boolean_mask(segments, kept)
        weights = None if weights is None else tf.boolean_mask(weights, kept)
    denominators = _denominators(feature, segments, weights)
    optional = [tensor for tensor in (segments, weights, denominators) if tensor is not None]
    return Layout(True, weights is not None, denominators is not None), [ids, *optional]


def to_occurrences(
    feature: FeatureDescription, layout: Layout, tensors: list[Any], source: tuple[Any, ...]
) -> Occurrences:
    """The tensors of `read_input` for the row engine; `source` identifies the ids."""
    rest = list(tensors)
    ids = rest.pop(0)
    ids.set_shape([None] if layout.summed else [math.prod(feature.shape)])
    segments, weights, denominators = (
        rest.pop(0) if there else None for there in (layout.summed, layout.weighted, layout.divided)
    )
    shape = tf.constant(feature.shape, tf.int32)
    return Occurrences(source, ids, segments, weights, denominators, shape, tf.TensorShape(feature.shape))


def _dense(feature: FeatureDescription, ids: Any) -> Any:
    count = math.prod(feature.shape)
    if ids.shape.num_elements() not in (None, count):
        raise ValueError(
            f"feature {feature.name!r}: {ids.shape.num_elements()} dense ids, but its shape {feature.shape} "
            f"holds {count}"
        )
    if ids.shape.is_fully_defined():
        return ids
    message = f"feature {feature.name!r}: its shape {feature.shape} holds another number of dense ids"
    with tf.control_dependencies([_equal(tf.size(ids), count, message)]):
        return tf.identity(ids)


def _sparse(feature: FeatureDescription, indices: Any) -> tuple[Any, Any]:
    rank = indices.shape[1]
    if rank is None or rank - 1 != len(feature.shape):
        raise ValueError(
            f"feature {feature.name!r}: sparse ids of rank {rank}, but its shape {feature.shape} needs rank "
            f"{len(feature.shape) + 1}"
        )
    message = f"feature {feature.name!r}: sparse ids of more than {feature.shape[0]} examples"
    with tf.control_dependencies([_true(tf.reduce_all(indices[:, 0] < feature.shape[0]), message)]):
        segments = indices[:, 0] + 0
    for axis, length in enumerate(feature.shape[1:], start=1):
        segments = segments * length + indices[:, axis]
    if rank == 2:
        return None, segments
    return tf.reduce_all(indices[:, 1:-1] < tf.constant(feature.shape[1:], tf.int32), axis=1), segments


def _ragged(feature: FeatureDescription, splits: Any, count: Any) -> tuple[Any, Any]:
    vectors, rows = math.prod(feature.shape), splits.shape[0]
    if rows is None:
        raise ValueError(
            f"feature {feature.name!r}: the number of rows of its ragged ids must be known while tracing: "
            "batch with drop_remainder=True"
        )
    length, rest = divmod(vectors, rows - 1) if rows > 1 else (0, vectors)
    if rest or length < 1:
        raise ValueError(
            f"feature {feature.name!r}: its shape {feature.shape} holds {vectors} vectors, which is no multiple of the "
            f"{rows - 1} rows of its ragged ids"
        )
    inner = splits[1:-1]
    starting = tf.math.unsorted_segment_sum(tf.ones_like(inner), inner, count + 1)
    row = tf.cumsum(starting)[:count]
    if length == 1:
        return None, row
    place = tf.range(count) - tf.gather(splits, row)
    return place < length, row * length + place


def _denominators(feature: FeatureDescription, segments: Any, weights: Any) -> Any:
    """Divisor of each vector's weighted sum: for mean sum(w), for sqrtn sqrt(sum(w^2)), for sum None."""
    if feature.combiner == "sum":
        return None
    vectors = math.prod(feature.shape)
    weights = tf.ones_like(segments, tf.float32) if weights is None else weights
    if feature.combiner == "mean":
        return tf.math.unsorted_segment_sum(weights, segments, vectors)
    return tf.sqrt(tf.math.unsorted_segment_sum(weights * weights, segments, vectors))


def _as_many(feature: FeatureDescription, ids: Any, weights: Any) -> Any:
    message = f"feature {feature.name!r}: there are not as many weights as ids"
    return _equal(tf.size(ids), tf.size(weights), message)


def _equal(actual: Any, expected: Any, message: str) -> Any:
    return tf.raw_ops.Assert(condition=tf.equal(actual, expected), data=[message, actual, expected])


def _true(condition: Any, message: str) -> Any:
    return tf.raw_ops.Assert(condition=condition, data=[message])
