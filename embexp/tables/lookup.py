"""Rows to activations, and gradients of activations to gradients of each occurrence of a row."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.tables.inputs import Occurrences


def activations(read: Occurrences, rows: Any, positions: Any) -> Any:
    """Combines the rows of a feature.

    Each row of the result is sum(w * e) over its occurrences, divided by its denominator: by sum(w) for mean,
    by sqrt(sum(w^2)) for sqrtn; 0 where that is 0.

    Args:
        read: the feature's occurrences.
        rows: float32 [m, dim].
        positions: int32 [n], the position in `rows` of each occurrence; None: occurrence i is row i.

    Returns:
        float32, `read.shape + [dim]`.
    """
    dim = rows.shape[-1]
    if read.segments is None:
        flat = rows if positions is None else tf.gather(rows, positions)
    else:
        flat = _summed(read, rows, positions)
        if read.denominator is not None:
            flat = tf.math.divide_no_nan(flat, read.denominator[:, None])
    return tf.ensure_shape(tf.reshape(flat, tf.concat([read.shape, [dim]], 0)), [*read.static_shape, dim])


def occurrence_gradients(read: Occurrences, gradient: Any, dim: int) -> Any:
    """The gradient of each occurrence, float32 [n, dim]: d loss / d activations, times w / denominator."""
    flat = tf.reshape(gradient, [-1, dim])
    if read.segments is None:
        return flat
    if read.denominator is not None:
        flat = tf.math.divide_no_nan(flat, read.denominator[:, None])
    spread = tf.gather(flat, read.segments)
    return spread if read.weights is None else spread * read.weights[:, None]


def _summed(read: Occurrences, rows: Any, positions: Any) -> Any:
    if read.weights is not None:
        rows = (rows if positions is None else tf.gather(rows, positions)) * read.weights[:, None]
        positions = None
    if positions is None:
        positions = tf.range(tf.size(read.segments))
    return tf.raw_ops.SparseSegmentSumWithNumSegments(
        data=rows, indices=positions, segment_ids=read.segments, num_segments=tf.reduce_prod(read.shape)
    )
