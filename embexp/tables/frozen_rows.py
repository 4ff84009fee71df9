"""The rows of a variable that a program freezes: by their numbers, as a range, or by a mask.

Neither the time of a step nor the size of a graph depends on how many rows are frozen. Ids are compared with the bounds
of a range or of a few runs of rows. For other rows there is a mask outside the graph: a `tf.function` captures it by
reference, and a graph of TensorFlow 1 asks this process for its values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.tables.variables import gather_rows, in_keras, is_writable

_FEW = 16
"""Most runs of neighbouring rows that ids are compared with; of more, a mask is looked up."""


class FrozenRows:
    """Rows of a variable, checked and prepared once; everything that takes `frozen` takes it.

    Attributes:
        rows: how many rows the variable has.
    """

    def __init__(self, frozen: Any, variable: Any) -> None:
        """Reads the rows; later changes of an array have no effect.

        Args:
            frozen: the rows: a range, a slice, integers [k], or a mask of all rows, booleans [rows].
            variable: the variable [rows, dim], or the number of its rows.

        Raises:
            ValueError: a row is not in the variable, or a mask has another length.
        """
        self.rows = variable if isinstance(variable, int) else int(in_keras(variable).shape[0])
        self._range: range | None = None
        self._mask: np.ndarray | None = None
        if isinstance(frozen, range | slice):
            self._range = _checked_range(frozen, self.rows)
            return
        values = _checked(frozen, self.rows)
        self._mask = np.zeros(self.rows, np.bool_)
        self._mask[values] = True
        runs = np.flatnonzero(np.diff(self._mask, prepend=False, append=False)).reshape(-1, 2)
        self._runs = runs if len(runs) <= _FEW else None

    @cached_property
    def mask(self) -> np.ndarray:
        """Bool [rows]."""
        if self._range is None:
            assert self._mask is not None
            return self._mask
        mask = np.zeros(self.rows, np.bool_)
        mask[self._range.start : self._range.stop : self._range.step] = True
        return mask

    @property
    def count(self) -> int:
        """How many rows are frozen."""
        return len(self._range) if self._range is not None else int(np.count_nonzero(self.mask))

    def among(self, ids: Any) -> Any:
        """Which ids are frozen rows: bool, in the shape of `ids`, integers inside the variable."""
        if self._range is not None:
            first, step = (tf.constant(value, ids.dtype) for value in (self._range.start, self._range.step))
            inside = (ids >= first) & (ids < tf.constant(self._range.stop, ids.dtype))
            return inside & tf.equal((ids - first) % step, 0) if self._range.step > 1 else inside
        if self._runs is not None:
            starts, stops = (tf.constant(self._runs[:, side], ids.dtype) for side in (0, 1))
            return tf.reduce_any((ids[..., None] >= starts) & (ids[..., None] < stops), -1)
        mask = self._outside_the_graph(self.mask)
        return _asked(lambda numbers: self.mask[numbers], ids, tf.bool) if mask is None else tf.gather(mask, ids)

    def numbers(self) -> Any:
        """The frozen rows, rising: int32 or int64 [count]."""
        dtype = tf.int32 if self.rows <= tf.int32.max else tf.int64
        if self._range is not None:
            return tf.range(self._range.start, self._range.stop, self._range.step, dtype)
        if self._runs is not None:
            runs = [tf.range(int(start), int(stop), dtype=dtype) for start, stop in self._runs]
            return tf.concat([tf.zeros([0], dtype), *runs], 0)
        rows = np.flatnonzero(self.mask).astype(dtype.as_numpy_dtype)
        numbers = self._outside_the_graph(rows)
        if numbers is None:
            numbers = _asked(lambda _: rows, tf.constant(0), dtype)
            numbers.set_shape(rows.shape)
        return numbers

    def _outside_the_graph(self, array: np.ndarray) -> Any:
        """The array as an eager tensor, which functions capture by reference; None where a session runs the graph."""
        with tf.init_scope():
            if not tf.executing_eagerly():
                return None
            key = "_eager_mask" if array is self._mask else "_eager_numbers"
            if key not in self.__dict__:
                self.__dict__[key] = tf.constant(array)
            return self.__dict__[key]


def among(frozen: Any, ids: Any, rows: int | None) -> Any:
    """Which ids are frozen rows: bool [u].

    Args:
        frozen: as `FrozenRows` takes it, a `FrozenRows`, or a tensor or variable that holds such rows.
        ids: int32 or int64 [u].
        rows: how many rows the variable has; None: not known here.

    Raises:
        ValueError: a row is not in the variable, or a mask has another length.
    """
    if isinstance(frozen, FrozenRows):
        if rows not in (None, frozen.rows):
            raise ValueError(
                f"frozen was prepared for a variable of {frozen.rows:,} rows, but this one has {rows:,}: prepare"
                " another embexp.rows.FrozenRows for it"
            )
        return frozen.among(ids)
    if rows is None:
        raise ValueError(
            "the gradient does not say how many rows its variable has (no dense_shape), so frozen rows can't be"
            " checked: pass frozen=embexp.rows.FrozenRows(frozen, variable)"
        )
    frozen = in_keras(frozen)
    if is_writable(frozen) and tf.executing_eagerly() and frozen.dtype != tf.bool:
        frozen = frozen.numpy()
    if is_writable(frozen) or (tf.is_tensor(frozen) and not hasattr(frozen, "numpy")):
        return _among_later(frozen, ids, rows)
    if isinstance(frozen, range | slice) or not tf.executing_eagerly():
        return FrozenRows(frozen, rows).among(ids)
    values = _checked(frozen, rows)  # for this step only, so nothing is prepared
    numbers = ids.numpy()
    return tf.constant(values[numbers] if values.dtype == np.bool_ else np.isin(numbers, values), tf.bool)


def _among_later(frozen: Any, ids: Any, rows: int) -> Any:
    """`among` of a tensor or variable whose values are known only when a step is done."""
    if frozen.dtype.base_dtype == tf.bool:
        if not frozen.shape.is_compatible_with([rows]):
            raise ValueError(_OTHER_LENGTH.format(found=f"shape {frozen.shape}", rows=rows))
        if is_writable(frozen):
            return tf.cast(gather_rows(frozen, ids), tf.bool)
        right = tf.debugging.assert_equal(tf.size(frozen), rows, "frozen: a mask must have a boolean for each row")
        with tf.control_dependencies([right] if right is not None else []):
            return tf.gather(frozen, ids)
    numbers = tf.convert_to_tensor(frozen)
    if not numbers.dtype.is_integer:
        raise ValueError(_NOT_ROWS.format(found=numbers.dtype.name))
    numbers = tf.reshape(tf.cast(numbers, tf.int64), [-1])
    # TensorFlow names the value and the bounds; a float comparison of an empty list would be no fault.
    right = tf.debugging.assert_less(
        tf.where(numbers < 0, tf.int64.max, numbers), tf.constant(rows, tf.int64), "frozen: rows outside the variable"
    )
    with tf.control_dependencies([right] if right is not None else []):
        # -1 is not a row; it makes the list non-empty, so that searching it needs no special case.
        ordered = tf.concat([[-1], tf.sort(numbers)], 0)
    ids = tf.cast(ids, tf.int64)
    # Not `==`, which compares identities in a graph of TensorFlow 1.
    return tf.equal(tf.gather(ordered, tf.searchsorted(ordered, ids, side="right") - 1), ids)


_OTHER_LENGTH = "frozen: found a mask of {found}, expected a boolean for each of the {rows:,} rows; or give row numbers"
_NOT_ROWS = "frozen: found {found}, expected row numbers (integers), a mask (booleans), a range or a slice"


def _checked(frozen: Any, rows: int) -> np.ndarray:
    """Integers [k] or booleans [rows]."""
    values = np.asarray(frozen)
    if values.size == 0:
        return np.zeros(0, np.int64)
    if values.dtype == np.bool_:
        if values.shape != (rows,):
            found = f"{len(values):,} booleans" if values.ndim == 1 else f"shape {values.shape}"
            raise ValueError(_OTHER_LENGTH.format(found=found, rows=rows))
        return values
    if values.dtype.kind not in "iu":
        raise ValueError(_NOT_ROWS.format(found=values.dtype.name))
    least, most = values.min(), values.max()
    if least < 0 or most >= rows:
        raise _beyond(int(least if least < 0 else most), rows)
    return values.reshape(-1)


def _checked_range(frozen: range | slice, rows: int) -> range:
    """Ascending."""
    if isinstance(frozen, slice):
        bounds = [bound for bound in (frozen.start, frozen.stop) if bound is not None]
        if any(not -rows <= bound <= rows for bound in bounds):
            raise ValueError(f"frozen: found {frozen}, but the variable has {rows:,} rows; end the slice there")
        frozen = range(*frozen.indices(rows))
    if not frozen:
        return range(0)
    if min(frozen[0], frozen[-1]) < 0 or max(frozen[0], frozen[-1]) >= rows:
        raise _beyond(next(row for row in (frozen[0], frozen[-1]) if not 0 <= row < rows), rows)
    return frozen if frozen.step > 0 else frozen[::-1]


def _beyond(row: int, rows: int) -> ValueError:
    return ValueError(
        f"frozen: row {row:,} is not in the variable, which has rows 0 to {rows - 1:,}; remove it, or freeze "
        f"rows of the right variable"
    )


def _asked(answer: Callable[[np.ndarray], np.ndarray], question: Any, dtype: tf.DType) -> Any:
    """What this process answers when a session runs the graph, which then holds nothing of the rows."""
    found = tf.numpy_function(answer, [question], dtype)
    found.set_shape(question.shape if dtype == tf.bool else [None])
    return found
