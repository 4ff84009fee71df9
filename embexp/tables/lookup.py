"""Rows to activations, and back: the distinct ids of a step, and the sums of their rows' gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.tables.inputs import Occurrences

_MANY = 16_384
"""Occurrences from which on it pays to sum gradients without adding to zeros, by more operations."""


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


def gradients_of_occurrences(read: Occurrences, gradient: Any, dim: int) -> Any:
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


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct ids of some inputs.

    Attributes:
        ids: [u], in order of first occurrence; int32 if every table is small enough, which is faster.
        all_positions: int32 [n], the position in `ids` of each occurrence.
        positions: `all_positions` by input, by its source.
        first: int32 [u], the first occurrence of each of `ids`. `first`, `later` and `later_positions` are None for
            fewer than `_MANY` occurrences.
        later: int32 [n - u], all other occurrences, rising.
        later_positions: int32 [n - u, 1], their positions in `ids`.
    """

    ids: Any
    all_positions: Any
    positions: dict[tuple[Any, ...], Any]
    first: Any
    later: Any
    later_positions: Any


@dataclass(frozen=True, eq=False)
class Touched:
    """The rows of a table that a step may move.

    Attributes:
        distinct: the distinct ids of the table's features.
        ids: the same, checked against its vocabulary.
        rows: float32 [u, dim], before the step; None where `native_rows` moves them, which reads them itself.
    """

    distinct: Distinct
    ids: Any
    rows: Any


def distinct_ids(
    ids: Mapping[tuple[Any, ...], Any], *, narrow: bool, unique: Callable[[Any], tuple[Any, Any]] = tf.unique
) -> Distinct:
    """The distinct ids of inputs.

    Args:
        ids: of each input, by its source, int32 or int64 [n].
        narrow: whether int32 is enough for them.
    """
    parts = list(ids.values())
    if len({part.dtype for part in parts}) > 1:
        parts = [tf.cast(part, tf.int64) for part in parts]
    occurrences = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
    distinct, positions = unique(tf.cast(occurrences, tf.int32) if narrow else occurrences)
    first = later = later_positions = None
    count = occurrences.shape.num_elements()
    if count is None or count >= _MANY:
        order = tf.range(tf.size(occurrences))
        first = tf.math.unsorted_segment_min(order, positions, tf.size(distinct))
        later = tf.cast(tf.where(tf.gather(first, positions) < order)[:, 0], tf.int32)
        later_positions = tf.gather(positions, later)[:, None]
    by_input = [positions] if len(parts) == 1 else tf.split(positions, [tf.size(part) for part in parts])
    return Distinct(
        ids=distinct,
        all_positions=positions,
        positions=dict(zip(ids, by_input, strict=True)),
        first=first,
        later=later,
        later_positions=later_positions,
    )


def summed_gradients(
    distinct: Distinct, read: Mapping[str, Occurrences], gradients: Mapping[str, Any], dim: int
) -> Any:
    """Gradient of each distinct row, float32 [u, dim]: the sum over its occurrences; None if all are zero.

    Args:
        gradients: of each feature's activations; None: zeros.
    """
    parts = occurrence_gradients(distinct, read, gradients, dim)
    if not parts:
        return None
    spread = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
    if distinct.first is None:
        return tf.math.unsorted_segment_sum(spread, distinct.all_positions, tf.size(distinct.ids))
    # The same sums as unsorted_segment_sum, in the same order. Most ids of a batch occur once, and copying their
    # gradients is far cheaper than adding them to zeros.
    summed = tf.gather(spread, distinct.first)
    return tf.tensor_scatter_nd_add(summed, distinct.later_positions, tf.gather(spread, distinct.later))


def occurrence_gradients(
    distinct: Distinct, read: Mapping[str, Occurrences], gradients: Mapping[str, Any], dim: int
) -> list[Any]:
    """Gradients of each occurrence, in parts [n_i, dim] float32 in the order of `all_positions`; none if all are zero.

    The arguments are those of `summed_gradients`.
    """
    if all(gradients[feature] is None for feature in read):
        return []
    by_source: dict[tuple[Any, ...], list[Any]] = {source: [] for source in distinct.positions}
    for feature, occurrences in read.items():
        if gradients[feature] is not None:
            spread = gradients_of_occurrences(occurrences, tf.convert_to_tensor(gradients[feature]), dim)
            by_source[occurrences.source].append(spread)
    return [
        tf.add_n(spreads) if spreads else tf.zeros([tf.size(distinct.positions[source]), dim])
        for source, spreads in by_source.items()
    ]
