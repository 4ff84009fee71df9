"""Variables of rows: made without a copy, read and written by rows."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.system import arrays

_LARGE = 16 * 1024 * 1024
"""Bytes from which on it pays to write in two threads."""


def gather_rows(variable: Any, ids: Any) -> Any:
    """Rows of a float32 variable: reading it whole first would copy it."""
    rows = tf.raw_ops.ResourceGather(resource=variable.handle, indices=ids, dtype=tf.float32)
    if not tf.executing_eagerly():
        rows.set_shape([*ids.shape.as_list(), *variable.shape.as_list()[1:]])
    return rows


def scatter_rows(variable: Any, ids: Any, rows: Any) -> Any:
    """Assigns rows of a variable, each at most once; in a graph of TensorFlow 1 the operation that does."""
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=ids, updates=rows)


def write_rows(variable: Any, name: str, start: int, values: np.ndarray) -> None:
    """Assigns `values` [n, dim] float32 to the rows of an eager variable from `start`.

    Values that `arrays.can_be_taken_over` are copied once, into the variable; others once more on the way.

    Args:
        variable: float32 [rows, dim].
        name: of its table, for errors.
        start: the first row.
        values: inside the variable's rows.

    Raises:
        ValueError: the values' dtype or shape does not fit.
    """
    dim = variable.shape[1]
    if values.dtype != np.float32 or values.ndim != 2 or values.shape[1] != dim:
        raise ValueError(f"table {name!r} takes float32 rows of {dim}, got {values.dtype} of shape {values.shape}")
    if not len(values):
        return
    if not arrays.can_be_taken_over(values):
        _assign(variable, start, tf.constant(values))
        return
    # Two threads, as what takes time is memory that is touched for the first time. Each part is aligned too.
    half = len(values) // 2 // arrays.ALIGNMENT * arrays.ALIGNMENT if values.nbytes >= _LARGE else 0
    parts = [(low, values[low:high]) for low, high in ((0, half), (half, len(values))) if high > low]

    def assign(part: tuple[int, np.ndarray]) -> None:
        _assign(variable, start + part[0], tf.experimental.dlpack.from_dlpack(part[1].__dlpack__()))

    with ThreadPoolExecutor(len(parts)) as threads:
        list(threads.map(assign, parts))


def _assign(variable: Any, start: int, values: Any) -> None:
    # In a third of the time of assigning to a slice.
    narrow = tf.int32 if variable.shape[0] <= tf.int32.max else tf.int64
    stop = start + int(values.shape[0])
    scatter_rows(variable, tf.range(tf.constant(start, narrow), tf.constant(stop, narrow)), values)


def variable_over(name: str, values: np.ndarray) -> Any:
    """A variable that is to hold an array for good: at once where that can be, or else when a session is fed it.

    In a graph of TensorFlow 1 it is a local variable. It must not be written to, and has to be read by `read_value`: a
    gather that reads the variable itself makes its memory its own, by a copy.

    Args:
        name: of the variable.
        values: any array that `arrays.can_be_taken_over`.
    """
    shape = list(values.shape)
    if tf.executing_eagerly():
        return variable(name, tf.experimental.dlpack.from_dlpack(values.__dlpack__()), shape)
    # Memory that nothing touches until the array takes its place.
    empty = functools.partial(tf.raw_ops.Empty, shape=shape, dtype=tf.as_dtype(values.dtype))
    return variable(name, empty, shape, local=True)


def variable(name: str, value: Any, shape: list[int], *, local: bool = False) -> Any:
    """A variable that no gradient tape watches, in the graph that is current.

    Args:
        name: of the variable.
        value: its first value, or a callable that gives it.
        shape: of the variable.
        local: in a graph of TensorFlow 1, make it a local variable instead of a global one.
    """
    if not local or tf.executing_eagerly():
        return tf.Variable(value, trainable=False, shape=shape, name=name)
    collections = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    return tf.compat.v1.Variable(
        value, trainable=False, shape=shape, name=name, use_resource=True, collections=collections
    )
