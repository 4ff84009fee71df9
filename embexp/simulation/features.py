"""What `EnqueueTPUEmbeddingArbitraryTensorBatch` is given for a feature, brought into one form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.tables.inputs import Occurrences


@dataclass(frozen=True)
class Layout:
    """Which tensors a feature's ids are carried in, from the host to the cores.

    Attributes:
        summed: several ids may name one vector, so there are segments; False: id i is vector i.
        weighted: there are weights.
        divided: there is a denominator for each vector.
    """

    summed: bool = False
    weighted: bool = False
    divided: bool = False

    def dtypes(self) -> list[Any]:
        """Types of the tensors, in the order of `Carried.tensors`."""
        optional = ((self.summed, tf.int32), (self.weighted, tf.float32), (self.divided, tf.float32))
        return [tf.int64, *(dtype for there, dtype in optional if there)]


@dataclass(frozen=True)
class Described:
    """What a `TPUEmbeddingConfiguration` says of a feature.

    Attributes:
        name: of the feature, or its number if it has none.
        table: name of its table.
        dim: width of a row.
        combiner: "sum", "mean" or "sqrtn".
        shape: of its activations for one replica, without dim.
    """

    name: str
    table: str
    dim: int
    combiner: str
    shape: tuple[int, ...]


def read(feature: Described, places: Any, ids: Any, weights: Any) -> tuple[Layout, list[Any]]:
    """Reads what one replica is given for a feature.

    Sparse ids combine over their last dimension. Those at or behind the end of any other dimension but the first are
    cut off, which is how `TPUEmbedding` has sequences cut. Ragged ids with a row for each vector combine; with k
    vectors for each row they are a sequence, cut or padded with zeros to k.

    Args:
        feature: what the configuration says of it.
        places: int32; nothing for dense ids, [n, rank] indices for sparse, row splits for ragged.
        ids: integers [n].
        weights: float32 [n], or nothing for all 1.

    Returns:
        The layout, and the tensors it asks for: ids, segments, weights, denominators.

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


def carried(feature: Described, layout: Layout, tensors: list[Any], source: tuple[Any, ...]) -> Occurrences:
    """What `read` gave, as the row engine takes it; `source` says whose ids these are."""
    rest = list(tensors)
    ids = rest.pop(0)
    ids.set_shape([None] if layout.summed else [math.prod(feature.shape)])
    segments, weights, denominators = (
        rest.pop(0) if there else None for there in (layout.summed, layout.weighted, layout.divided)
    )
    shape = tf.constant(feature.shape, tf.int32)
    return Occurrences(source, ids, segments, weights, denominators, shape, tf.TensorShape(feature.shape))


def _dense(feature: Described, ids: Any) -> Any:
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


def _sparse(feature: Described, indices: Any) -> tuple[Any, Any]:
    rank = indices.shape[1]
    if rank is None or rank - 1 != len(feature.shape):
        raise ValueError(
            f"feature {feature.name!r}: sparse ids of rank {rank}, but its shape {feature.shape} asks for rank "
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


def _ragged(feature: Described, splits: Any, count: Any) -> tuple[Any, Any]:
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


def _denominators(feature: Described, segments: Any, weights: Any) -> Any:
    """What each vector's weighted sum is divided by: sum(w) for mean, sqrt(sum(w^2)) for sqrtn, None for sum."""
    if feature.combiner == "sum":
        return None
    vectors = math.prod(feature.shape)
    weights = tf.ones_like(segments, tf.float32) if weights is None else weights
    if feature.combiner == "mean":
        return tf.math.unsorted_segment_sum(weights, segments, vectors)
    return tf.sqrt(tf.math.unsorted_segment_sum(weights * weights, segments, vectors))


def _as_many(feature: Described, ids: Any, weights: Any) -> Any:
    message = f"feature {feature.name!r}: there are not as many weights as ids"
    return _equal(tf.size(ids), tf.size(weights), message)


def _equal(found: Any, wanted: Any, message: str) -> Any:
    return tf.raw_ops.Assert(condition=tf.equal(found, wanted), data=[message, found, wanted])


def _true(condition: Any, message: str) -> Any:
    return tf.raw_ops.Assert(condition=condition, data=[message])
