"""Numeric columns in TensorFlow's operations, as `embexp.data.numbers` has them.

The arithmetic is the same, in float64. Only the logarithms may differ in their last bit, and so, once in a hundred
million values, float32 by one unit in the last place.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.data.numbers import FittedColumn
from embexp.specs.sources import Transform


def applied(column: FittedColumn, values: Any) -> list[Any]:
    """float32 [n], NaN where a value is missing, to what the model gets: columns, float32 [n] each.

    A number that the data may not have is an InvalidArgumentError of the running graph.
    """
    missing = tf.math.is_nan(values)
    found = tf.cast(_checked(column, values, missing), tf.float64)
    if column.fill is not None:
        found = tf.where(missing, tf.constant(column.fill, tf.float64), found)
    for transform in column.transforms:
        found = _transformed(column, found, transform)
    return [tf.cast(found, tf.float32), *([tf.cast(missing, tf.float32)] if column.indicator else [])]


def _checked(column: FittedColumn, values: Any, missing: Any) -> Any:
    """The values, finite, or missing if the column's setting allows it."""
    allowed = tf.math.is_finite(values)
    expected = "finite numbers, as data.dense_features has missing: error"
    if column.fill is not None:
        allowed, expected = allowed | missing, "finite numbers, or NaN for missing ones"
    wrong = tf.boolean_mask(values, ~allowed)
    message = f"column {column.name}: expected {expected}, found"
    with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.equal(tf.size(wrong), 0), data=[message, wrong])]):
        return tf.identity(values)


def _transformed(column: FittedColumn, values: Any, transform: Transform) -> Any:
    match transform:
        case Transform.NONE:
            return values
        case Transform.LOG1P:
            return tf.sign(values) * tf.math.log1p(tf.abs(values))
        case Transform.STANDARDIZE:
            return (values - tf.constant(column.mean, tf.float64)) / tf.constant(column.scale, tf.float64)
        case Transform.QUANTILE:
            return _ranks(values, tf.constant(column.quantiles, tf.float64), len(column.quantiles) - 1)


def _ranks(values: Any, quantiles: Any, steps: int) -> Any:
    left = tf.searchsorted(quantiles, values, "left")
    right = tf.searchsorted(quantiles, values, "right")
    low = tf.clip_by_value(right - 1, 0, steps - 1)
    below, above = tf.gather(quantiles, low), tf.gather(quantiles, low + 1)
    between = (tf.cast(low, tf.float64) + (values - below) / (above - below)) / steps
    found = tf.where(right > left, tf.cast(left + right - 1, tf.float64) / 2 / steps, between)
    found = tf.where(values >= quantiles[-1], tf.ones_like(found), found)
    return tf.where(values <= quantiles[0], tf.zeros_like(found), found)
