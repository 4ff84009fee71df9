"""Variables of embedding rows: created without a copy, read and written by rows."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.system import arrays

_LARGE = 16 * 1024 * 1024
"""Bytes from which on it pays to write in two threads."""


class WritableRows(Protocol):
    """Rows that can be assigned by ranges: all that an init method needs of a table."""

    @property
    def name(self) -> str:
        """Name of the table or slot."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def dim(self) -> int:
        """Width of a row."""
        ...

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`."""
        ...


@dataclass(frozen=True, eq=False)
class TableVariable:
    """A variable with rows of a table or slot, to be filled; `WritableRows`.

    Attributes:
        variable: float32 [rows, dim].
        read_whole: whether the variable is also read whole, which must not copy it.
    """

    name: str
    variable: Any
    read_whole: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.variable.shape[0])

    @property
    def dim(self) -> int:
        """Width of a row."""
        return int(self.variable.shape[1])

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`; see `write_rows`."""
        write_rows(self.variable, self.name, start, values)
        if self.read_whole:  # once rows were assigned, TensorFlow would copy the variable at each reading
            tf.raw_ops.DisableCopyOnRead(resource=self.variable.handle)


def is_writable(variable: Any) -> bool:
    """Whether `gather_rows` and `scatter_rows` take it: a `tf.Variable`, or a reference variable of TensorFlow 1."""
    return hasattr(variable, "handle") or isinstance(variable, tf.compat.v1.Variable)


def gather_rows(variable: Any, ids: Any) -> Any:
    """Rows of a float32 variable: reading it whole first would copy it."""
    if not hasattr(variable, "handle"):
        return tf.gather(variable, ids)  # a reference variable's memory is read in place
    rows = tf.raw_ops.ResourceGather(resource=variable.handle, indices=ids, dtype=tf.float32)
    if not tf.executing_eagerly():
        rows.set_shape([*ids.shape.as_list(), *variable.shape.as_list()[1:]])
    return rows


def read_without_copy(variable: Any) -> Any:
    """All rows of a variable, float32 [rows, dim], without a copy.

    After rows were read or written by their numbers, TensorFlow copies a variable at each reading, unless told not to.
    A later update copies it instead if somebody still holds what was read.
    """
    with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=variable.handle)]):
        return variable.read_value()


def scatter_rows(variable: Any, ids: Any, rows: Any) -> Any:
    """Assigns rows of a variable, each at most once; in a graph of TensorFlow 1 the operation that does."""
    if not hasattr(variable, "handle"):
        # Its tensor is the whole variable, so only the operation is run.
        return tf.compat.v1.scatter_update(variable, ids, rows).op
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=ids, updates=rows)


def write_rows(variable: Any, name: str, start: int, values: np.ndarray) -> None:
    """Assigns `values` [n, dim] float32 to the rows of an eager variable from `start`.

    Values that `arrays.can_be_taken_over` are copied once, into the variable; others once more on the way.

    Args:
        variable: float32 [rows, dim].
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
    # Two threads, as touching memory for the first time takes most of the time. Both halves are aligned.
    half = len(values) // 2 // arrays.ALIGNMENT * arrays.ALIGNMENT if values.nbytes >= _LARGE else 0
    parts = [(low, values[low:high]) for low, high in ((0, half), (half, len(values))) if high > low]

    def assign(part: tuple[int, np.ndarray]) -> None:
        _assign(variable, start + part[0], tf.experimental.dlpack.from_dlpack(part[1].__dlpack__()))

    with ThreadPoolExecutor(len(parts)) as threads:
        list(threads.map(assign, parts))


def _assign(variable: Any, start: int, values: Any) -> None:
    # Takes a third of the time of assigning to a slice.
    narrow = tf.int32 if variable.shape[0] <= tf.int32.max else tf.int64
    stop = start + int(values.shape[0])
    scatter_rows(variable, tf.range(tf.constant(start, narrow), tf.constant(stop, narrow)), values)


def variable_over(name: str, values: np.ndarray) -> Any:
    """A variable that uses an array's memory: eagerly at once, in a graph of TensorFlow 1 once a session is fed it.

    In a graph of TensorFlow 1 it is a local variable. Don't write to it, and read it by `read_value`: a gather from the
    variable itself would first copy its memory.

    Args:
        values: an array that `arrays.can_be_taken_over`.
    """
    shape = list(values.shape)
    if tf.executing_eagerly():
        return variable(name, tf.experimental.dlpack.from_dlpack(values.__dlpack__()), shape)
    # No page of this memory is touched before the array replaces it.
    empty = functools.partial(tf.raw_ops.Empty, shape=shape, dtype=tf.as_dtype(values.dtype))
    return variable(name, empty, shape, local=True)


def variable(name: str, value: Any, shape: list[int], *, local: bool = False) -> Any:
    """Creates a variable that no gradient tape watches, in the current graph.

    Args:
        value: its initial value, or a callable that returns it.
        local: in a graph of TensorFlow 1, make it a local variable instead of a global one.
    """
    if not local or tf.executing_eagerly():
        return tf.Variable(value, trainable=False, shape=shape, name=name)
    collections = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    return tf.compat.v1.Variable(
        value, trainable=False, shape=shape, name=name, use_resource=True, collections=collections
    )
