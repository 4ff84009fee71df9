"""Tables as checkpoints see them: whole variables, whose rows come and go block by block."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.system import arrays
from embexp.tables.reading import ReadableTable

_KEY = "VARIABLE_VALUE"
_BLOCK_BYTES = 1 << 22


class CheckpointRows(Protocol):
    """The rows of a table, or of one slot, wherever they are kept."""

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All rows in their order, float32, `rows` of them at a time."""
        ...

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`, where they can be assigned; the others must be the same.

        Raises:
            ValueError: they are not.
        """
        ...


class RangedTable(Protocol):
    """A table that is read and written by ranges of its rows, whatever it is made of."""

    def blocks(self, slot: str | None = None, *, rows: int) -> Iterator[np.ndarray]:
        """The table, or one slot, `rows` rows at a time."""
        ...

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns float32 [n, dim] to the rows from `start`, of the table or of one slot."""
        ...


class Apart(enum.Enum):
    """What TensorFlow is given in a table's place while its rows go another way."""

    WRITTEN = "no rows, under the table's key"
    READ = "nothing"


class StreamedTable(tf.__internal__.tracking.Trackable):  # type: ignore[misc]
    """A table, or one of its slots, as checkpoints see it: a variable of all its rows.

    `checkpoints.streaming` writes and reads it in blocks, while TensorFlow is kept from it (`apart`). Eagerly, what
    knows nothing of this (`tf.train.Checkpoint.write`) gets it too, as one tensor.

    Attributes:
        name: of the variable.
        shape: [rows, dim].
        covered: the variables that a checkpoint of it holds.
    """

    def __init__(self, name: str, shape: tuple[int, int], rows: CheckpointRows, covered: list[Any]) -> None:
        self.name, self.covered = name, covered
        self.shape = tf.TensorShape(shape)
        self._rows = rows
        self._apart: Apart | None = None

    @property
    def rows_per_block(self) -> int:
        """Rows of which there are a few megabytes."""
        return max(1, _BLOCK_BYTES // (4 * int(self.shape[1])))

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in their order, float32 [n, dim], one block at a time in memory."""
        yield from self._rows.blocks(self.rows_per_block)

    def restore(self, blocks: Iterable[np.ndarray]) -> None:
        """Assigns all rows, which come in their order.

        Raises:
            ValueError: rows that can't be assigned are not those that the table has.
        """
        start = 0
        for block in blocks:
            self._rows.write(start, block)
            start += len(block)

    def _serialize_to_tensors(self) -> dict[str, Any]:
        match self._apart:
            case Apart.WRITTEN:
                with tf.device("/cpu:0"):
                    return {_KEY: tf.zeros([0, int(self.shape[1])])}
            case Apart.READ:
                return {}
        if not tf.executing_eagerly():
            raise ValueError(f"{self.name}: in a graph, it is saved by `checkpoints.graph_saver`")
        whole = arrays.empty(tuple(self.shape), np.float32)
        start = 0
        for block in self.blocks():
            whole[start : start + len(block)] = block
            start += len(block)
        return {_KEY: tf.experimental.dlpack.from_dlpack(whole.__dlpack__())}

    def _restore_from_tensors(self, restored: dict[str, Any]) -> Any:
        if not tf.executing_eagerly():
            # A saver of a graph makes an operation for all that it writes. This one must not be taken for a success.
            return tf.debugging.Assert(False, [f"{self.name} is restored by checkpoints.graph_saver"])
        whole = restored[_KEY]
        if not whole.shape.is_compatible_with(self.shape):
            raise ValueError(f"{self.name} is {self.shape.as_list()}, the checkpoint's {whole.shape.as_list()}")
        step = self.rows_per_block
        self.restore(whole[start : start + step].numpy() for start in range(0, int(self.shape[0]), step))
        return None


@contextlib.contextmanager
def apart(tables: Iterable[StreamedTable], how: Apart) -> Iterator[None]:
    """Meanwhile TensorFlow neither writes nor reads rows of these."""
    tables = list(tables)
    try:
        for table in tables:
            table._apart = how
        yield
    finally:
        for table in tables:
            table._apart = None


def streamed(table: ReadableTable, slot: str | None, covered: list[Any], rows: CheckpointRows) -> StreamedTable:
    """A table, or one slot of it, for a checkpoint.

    Args:
        table: gives its name and size.
        slot: of which slot; None: the table itself.
        covered: the variables that hold it.
        rows: reads and writes it.
    """
    name = table.name if slot is None else f"{table.name}/{slot}"
    return StreamedTable(name, (table.rows, table.dim), rows, covered)


class RowRanges:
    """The rows of a table, or of one slot, that is read and written by ranges."""

    def __init__(self, table: RangedTable, slot: str | None) -> None:
        self._table, self._slot = table, slot

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All rows in their order, float32, `rows` of them at a time."""
        yield from self._table.blocks(self._slot, rows=rows)

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`."""
        self._table.write(start, values, self._slot)
