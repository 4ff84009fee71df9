"""Variables of which some rows are kept as they are, whatever a step does, and what became of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.freezing.diagnosis import Cause, by_cause
from embexp.freezing.watching import row_hashes
from embexp.tables.frozen_rows import FrozenRows
from embexp.tables.variables import in_keras, is_writable

_BLOCK_BYTES = 16 * 1024 * 1024
_EXPLANATIONS = {
    Cause.NEVER_MET: "were never looked up",
    Cause.NO_GRADIENT: "were looked up, but their gradient was 0, or too small to change a bit",
}
_OF_DENSE = "got no gradient: they were not looked up, or it was 0 (dense gradients do not tell), or too small"
Values = Callable[[Any], np.ndarray]
"""The values of a variable."""


@dataclass(frozen=True, eq=False)
class RowReport:
    """What became of the rows of a variable.

    Attributes:
        rows: how many there are.
        frozen: how many are frozen.
        frozen_changed: how many of these have other bits than at the beginning: 0, unless the program assigned them.
        moved: how many of the other rows have other bits.
        never_moved: the other rows that never moved, bool [rows], by cause, where there are any.
        dense: whether a step had a dense gradient, which does not tell which rows were looked up.
    """

    name: str
    rows: int
    frozen: int
    frozen_changed: int
    moved: int
    never_moved: dict[Cause, np.ndarray]
    dense: bool

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.rows:,} rows, {self.frozen:,} frozen ({self.frozen_changed:,} of them changed),"
            f" {self.moved:,} of {self.rows - self.frozen:,} trainable rows moved"
        ]
        for cause, mask in self.never_moved.items():
            numbers = np.flatnonzero(mask)
            shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
            why = _OF_DENSE if self.dense else _EXPLANATIONS[cause]
            lines.append(
                f"  {len(numbers):,} never moved: they {why} ({'row' if len(numbers) == 1 else 'rows'} {shown})"
            )
        return "\n".join(lines)


class Report(dict[str, RowReport]):
    """By the name of the variable; as text, a few lines for each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))


class Kept:
    """A variable with its frozen rows.

    Attributes:
        variable: the `tf.Variable`, or reference variable of TensorFlow 1.
        name: its path in Keras, or its name.
        frozen: the frozen rows.
    """

    def __init__(self, variable: Any, frozen: Any) -> None:
        """Reads no row: the first step hashes them.

        Raises:
            ValueError: it is no variable with rows, or a row is not in it.
        """
        self.variable = in_keras(variable)
        if not is_writable(self.variable) or not self.variable.shape.rank:
            raise ValueError(
                "embexp.freeze: expected a variable [rows, …] of TensorFlow or Keras, found"
                f" {type(variable).__name__}{'' if not is_writable(self.variable) else ' of no dimension'}"
            )
        self.name = str(getattr(variable, "path", None) or self.variable.name.removesuffix(":0"))
        if isinstance(frozen, FrozenRows) and frozen.rows != self.variable.shape[0]:
            raise ValueError(f"{self.name}: frozen was prepared for a variable of {frozen.rows:,} rows")
        try:
            self.frozen = frozen if isinstance(frozen, FrozenRows) else FrozenRows(frozen, self.variable)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        self._dense = False
        self._hashes: np.ndarray | None = None  # 8 bytes for each row
        with tf.init_scope():
            self._in_session = not tf.executing_eagerly()
            self._looked_up: Any = np.zeros(self.frozen.rows, np.bool_)
            if not self._in_session:
                self._looked_up = tf.Variable(tf.zeros([self.frozen.rows], tf.uint8), trainable=False)

    def is_in(self, variable: Any) -> bool:
        """Whether it is this variable."""
        return in_keras(variable) is self.variable

    def without_frozen(self, gradient: Any, *, fewer: bool = False) -> Any:
        """The gradient, of which frozen rows are 0.

        Args:
            gradient: dense or `tf.IndexedSlices`.
            fewer: leave frozen rows of slices out, which changes their number.
        """
        if isinstance(gradient, tf.IndexedSlices):
            frozen = self.frozen.among(gradient.indices)
            if fewer:
                kept = tf.where(~frozen)[:, 0]
                values, indices = tf.gather(gradient.values, kept), tf.gather(gradient.indices, kept)
                return tf.IndexedSlices(values, indices, gradient.dense_shape)
            values = tf.where(self._along_rows(frozen), tf.zeros([], gradient.values.dtype), gradient.values)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        frozen = self.frozen.among(tf.range(self.frozen.rows, dtype=tf.int64))
        return tf.where(self._along_rows(frozen), tf.zeros([], gradient.dtype), gradient)

    def noted(self, gradient: Any) -> list[Any]:
        """Notes for the report what a step is about to do; returns the operations that must come before it."""
        self._dense |= not isinstance(gradient, tf.IndexedSlices)
        if not self._in_session:
            if self._hashes is None:
                with tf.init_scope():  # a function is traced just before its first step
                    self._hashes = _hashed(self.variable)
            if isinstance(gradient, tf.IndexedSlices):
                ones = tf.ones_like(gradient.indices, tf.uint8)
                self._looked_up.scatter_update(tf.IndexedSlices(ones, gradient.indices))
            return []

        def note(ids: np.ndarray) -> np.int32:
            self._looked_up[ids] = True
            return np.int32(0)

        def hash_all(values: np.ndarray) -> np.int32:
            self._hashes = _hashed(values)
            return np.int32(0)

        first = tf.numpy_function(lambda: np.bool_(self._hashes is None), [], tf.bool)
        first.set_shape([])
        hashed = tf.cond(
            first,
            lambda: tf.numpy_function(hash_all, [tf.convert_to_tensor(self.variable)], tf.int32),
            lambda: tf.constant(0),
        )
        if not isinstance(gradient, tf.IndexedSlices):
            return [hashed]
        return [hashed, tf.numpy_function(note, [gradient.indices], tf.int32)]

    def rows_of(self, variables: Sequence[Any]) -> list[Any]:
        """The frozen rows of the variable, or of some of its slots, as they are now."""
        numbers = self.frozen.numbers()
        return [tf.gather(in_keras(variable), numbers) for variable in variables]

    def put_back(self, variables: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """Gives their frozen rows earlier values; returns the operations that do."""
        numbers = self.frozen.numbers()
        done = []
        for variable, values in zip(map(in_keras, variables), rows, strict=True):
            if hasattr(variable, "handle"):
                done.append(tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=numbers, updates=values))
            else:
                done.append(tf.compat.v1.scatter_update(variable, numbers, values).op)
        return done

    def report(self, values: Values) -> RowReport:
        """What became of its rows."""
        if self._hashes is None:
            raise ValueError(f"{self.name}: no step was done, so there is nothing to report")
        changed = self._hashes != _hashed(values(self.variable))
        looked_up = self._looked_up if self._in_session else self._looked_up.numpy() != 0
        if self._dense:
            looked_up = np.ones(self.frozen.rows, np.bool_)
        found = by_cause(
            changed, frozen=self.frozen.mask, looked_up=looked_up, idle=None, special=np.zeros(0, np.int64)
        )
        frozen_changed = int(np.count_nonzero(changed & self.frozen.mask))
        return RowReport(
            self.name, self.frozen.rows, self.frozen.count, frozen_changed, found.moved, found.rows, self._dense
        )

    def _along_rows(self, mask: Any) -> Any:
        return tf.reshape(mask, [-1, *[1] * (self.variable.shape.rank - 1)])


def reports(kept: Sequence[Kept], values: Any) -> Report:
    """What became of the rows of variables.

    Args:
        values: the session that has the variables, a monitored one, a mapping or function from a variable's name to its
            values, such as `estimator.get_variable_value`, or None for eager variables.
    """
    return Report({each.name: each.report(partial(_value, each.name, values)) for each in kept})


def _value(name: str, values: Any, variable: Any) -> Any:
    if values is None:
        with tf.init_scope():
            if not tf.executing_eagerly():
                raise ValueError("report: in a graph of TensorFlow 1, pass the session that has the variables")
        return variable
    if isinstance(values, Mapping):
        return values[name]
    if callable(values):
        return values(name)
    if hasattr(values, "run_step_fn"):  # a monitored session, whose hooks are not to count this as a step
        return values.run_step_fn(lambda context: context.session.run(variable))
    return values.run(variable)


def _hashed(values: Any) -> np.ndarray:
    """A hash of each row's bits, uint64 [rows], of a variable or an array, read in blocks."""
    rows = int(values.shape[0])
    step = max(_BLOCK_BYTES // (4 * max(int(np.prod(values.shape[1:])), 1)), 1)
    hashes = np.empty(rows, np.uint64)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        block = tf.gather(values, tf.range(start, stop)).numpy() if is_writable(values) else values[start:stop]
        block = np.ascontiguousarray(block).reshape(stop - start, -1)
        if block.dtype.itemsize < 4:
            block = block.view(f"u{block.dtype.itemsize}").astype(np.uint32)
        hashes[start:stop] = row_hashes(block.view(np.float32))
    return hashes
