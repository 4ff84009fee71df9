"""Tables as checkpoints see them: whole variables, whose rows come and go block by block."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.system import arrays
from embexp.tables.split import SplitTable
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable

_KEY = "VARIABLE_VALUE"
_BLOCK_BYTES = 1 << 22


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

    def __init__(self, name: str, shape: tuple[int, int], rows: _InBlocks | _InParts, covered: list[Any]) -> None:
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


def streamed(table: EmbeddingTable | SplitTable | TPUTable, slot: str | None) -> StreamedTable:
    """A table, or one slot of it, for a checkpoint."""
    name = table.name if slot is None else f"{table.name}/{slot}"
    rows = _InParts(table, slot) if isinstance(table, SplitTable) else _InBlocks(table, slot)
    match table:
        case TPUTable():
            covered = table.variables(slot)
        case SplitTable():
            covered = [table.others, table.fixed] if slot is None else [table.slots[slot]]
        case _:
            covered = [table.variable if slot is None else table.slots[slot]]
    return StreamedTable(name, (table.rows, table.dim), rows, covered)


class _InBlocks:
    """A table that is read and written by ranges of rows.

    What is written to one of a TPU stands in the variables of its hosts: `TPUBackend.load` brings it into the TPU.
    """

    def __init__(self, table: EmbeddingTable | TPUTable, slot: str | None) -> None:
        self._table, self._slot = table, slot

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All rows in their order, float32, `rows` of them at a time."""
        yield from self._table.blocks(self._slot, rows=rows)

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`."""
        self._table.write(start, values, self._slot)


class _InParts:
    """A split table; in a graph of TensorFlow 1 its rows are those of the default session."""

    def __init__(self, table: SplitTable, slot: str | None) -> None:
        self._table, self._slot = table, slot
        ids, rows = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, table.dim], tf.float32)
        self._take = _function(lambda ids: table.gather(ids, slot), ids)
        self._put = _function(lambda ids, rows: table.scatter(ids, rows, slot), ids, rows)
        self._fix = None if table.mapped or slot else _function(table.scatter_fixed, ids, rows)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for start in range(0, self._table.rows, rows):
            yield self._read(start, min(start + rows, self._table.rows))

    def _read(self, start: int, stop: int) -> np.ndarray:
        numbers = np.arange(start, stop)
        if self._slot is None:
            whole: np.ndarray = self._take(numbers)
            return whole
        values = np.full((stop - start, self._table.dim), self._table.initial[self._slot], np.float32)
        moving = self._table.moving(start, stop)
        values[moving] = self._take(numbers[moving])
        return values

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start` that can be assigned.

        Raises:
            ValueError: the others are not the same.
        """
        stop = start + len(values)
        numbers = np.arange(start, stop)
        if self._slot is not None:
            moving = self._table.moving(start, stop)
            self._put(numbers[moving], values[moving])
            return
        fixed = self._table.in_fixed(start, stop)
        self._put(numbers[~fixed], values[~fixed])
        if self._fix is not None:
            self._fix(numbers[fixed], values[fixed])
        # Rows that stay in their file can't be restored, but they can be found to be the same.
        elif not np.array_equal(self._take(numbers[fixed]).view(np.uint32), values[fixed].view(np.uint32)):
            raise ValueError(
                f"frozen rows of table {self._table.name} in the checkpoint are not those of its pretrained file"
            )


def _function(compute: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
    """A computation as a function of arrays: eagerly, or in what is the default session when it is called."""
    if tf.executing_eagerly():

        def eagerly(*given: np.ndarray) -> Any:
            result = compute(*(tf.constant(each) for each in given))
            return None if result is None else result.numpy()

        return eagerly
    fed = [tf.compat.v1.placeholder(each.dtype, each.shape) for each in specs]
    fetched = compute(*fed)
    return lambda *given: tf.compat.v1.get_default_session().run(fetched, dict(zip(fed, given, strict=True)))
