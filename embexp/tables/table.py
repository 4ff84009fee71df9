"""One embedding table: a variable of rows, a variable per optimizer slot, and access to both in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from embexp import digests
from embexp.specs.tables import Combiner


class EmbeddingTable:
    """`rows` × `dim` float32 values and as many for each slot.

    The table's own values are left uninitialised, so that filling them (`write`) is the only time their pages
    are touched: never two copies, never filled twice. Slots hold their constant from the start.

    Attributes:
        name: of the table; it becomes the key in checkpoints.
        rows: vocabulary size.
        dim: width of a row.
        combiner: how several rows of one example become one vector.
        variable: float32 [rows, dim].
        slots: by slot name, float32 [rows, dim].
        touched: uint8 [rows], 1 for each row that a training step looked up; None when not tracked.
    """

    def __init__(
        self,
        name: str,
        rows: int,
        dim: int,
        *,
        combiner: Combiner = Combiner.MEAN,
        slots: Mapping[str, float] | None = None,
        track_touched: bool = True,
    ) -> None:
        """Makes the variables.

        Args:
            name: of the table.
            rows: vocabulary size, at least 1.
            dim: width of a row, at least 1.
            combiner: how several rows of one example become one vector.
            slots: initial value of each slot, see `optimizers.slots_of`.
            track_touched: keep a byte per row that tells whether training ever looked the row up.
        """
        if rows < 1 or dim < 1:
            raise ValueError(f"table {name!r}: rows ({rows}) and dim ({dim}) must be at least 1")
        self.name, self.rows, self.dim, self.combiner = name, rows, dim, combiner
        shape = [rows, dim]
        self.variable = _variable(name, lambda: tf.raw_ops.Empty(shape=shape, dtype=tf.float32), shape)
        self.slots = {
            slot: _variable(f"{name}/{slot}", lambda value=value: tf.fill(shape, np.float32(value)), shape)
            for slot, value in (slots or {}).items()
        }
        self.touched = (
            _variable(f"{name}/touched", lambda: tf.zeros([rows], tf.uint8), [rows]) if track_touched else None
        )

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table, or of one slot: float32 [n, dim]. Reading the variable whole would copy it."""
        rows = tf.raw_ops.ResourceGather(resource=self._of(slot).handle, indices=ids, dtype=tf.float32)
        if not tf.executing_eagerly():
            rows.set_shape([*ids.shape.as_list(), self.dim])
        return rows

    def scatter(self, ids: Any, rows: Any, slot: str | None = None) -> None:
        """Assigns `rows` to the rows `ids`, which must not repeat."""
        tf.raw_ops.ResourceScatterUpdate(resource=self._of(slot).handle, indices=ids, updates=rows)

    def mark_touched(self, ids: Any) -> None:
        """Remembers that training looked these rows up."""
        if self.touched is not None:
            tf.raw_ops.ResourceScatterUpdate(
                resource=self.touched.handle, indices=ids, updates=tf.constant(1, tf.uint8)
            )

    def touched_rows(self) -> int:
        """Number of rows that training steps have looked up.

        Raises:
            ValueError: the table does not track it.
        """
        if self.touched is None:
            raise ValueError(f"table {self.name!r} was made with track_touched=False")
        return int(tf.math.count_nonzero(self.touched))

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns `values` [n, dim] float32 to the rows from `start`; needs one further copy of `values`.

        Raises:
            ValueError: the values' dtype or shape does not fit.
        """
        stop = start + len(values)
        if values.dtype != np.float32 or values.ndim != 2 or values.shape[1] != self.dim:
            raise ValueError(
                f"table {self.name!r} takes float32 rows of {self.dim}, got {values.dtype} of shape {values.shape}"
            )
        self._check_range(start, stop)
        # Copied into TensorFlow's memory: memory of NumPy's, handed over by DLPack, need not have the alignment
        # that TensorFlow's kernels abort the process without.
        tf.raw_ops.ResourceStridedSliceAssign(
            ref=self._of(slot).handle, begin=[start], end=[stop], strides=[1], value=tf.constant(values)
        )

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32 [stop - start, dim]."""
        self._check_range(start, stop)
        values: np.ndarray = self.gather(tf.range(start, stop, dtype=tf.int64), slot).numpy()
        return values

    def blocks(self, slot: str | None = None, *, rows: int = digests.ROWS_PER_BLOCK) -> Iterator[np.ndarray]:
        """The table, or one slot, as consecutive blocks of rows, one at a time in memory."""
        for start in range(0, self.rows, rows):
            yield self.read(start, min(start + rows, self.rows), slot)

    def digest(self, slot: str | None = None) -> str:
        """Digest of all rows, in blocks; see `digests.of_rows`."""
        return digests.of_rows(self.blocks(slot))

    def _of(self, slot: str | None) -> Any:
        return self.variable if slot is None else self.slots[slot]

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"table {self.name!r} has rows 0 to {self.rows - 1}, asked for [{start}, {stop})")


def _variable(name: str, value: Any, shape: list[int]) -> Any:
    return tf.Variable(value, trainable=False, shape=shape, name=name)
