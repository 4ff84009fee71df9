"""Tables of any layout as checkpoints hold them, under the keys of `tf.tpu.experimental.embedding.TPUEmbedding`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.system import arrays
from embexp.system.parallel import Progress
from embexp.tables.variables import ReadableTable

_KEY = "VARIABLE_VALUE"
_BLOCK_BYTES = 1 << 22


class TableCheckpoint(tf.__internal__.tracking.AutoTrackable):  # type: ignore[misc]
    """The tables as a checkpoint holds them.

    `tf.train.Checkpoint(embedding=TableCheckpoint(tables))` has the keys

        embedding/<table>/.ATTRIBUTES/VARIABLE_VALUE
        embedding/<table>.S<slot>/.ATTRIBUTES/VARIABLE_VALUE        (".S" is an escaped "/")

    and the object graph of a TPUEmbedding, so each restores what the other wrote. A split table is written as one, in
    the order of the vocabulary. Slots of frozen rows are written with their initial values, and ignored when restored.
    Which rows were touched is not saved.
    """

    def __init__(self, tables: Iterable[Any]) -> None:
        variables: dict[str, dict[str, Any]] = {}
        for table in tables:
            if table.by_reference:
                continue
            variables[table.name] = {"parameters": table.checkpointed()}
            self._track_trackable(variables[table.name]["parameters"], table.name)
            for slot in table.slots:
                variables[table.name][slot] = table.checkpointed(slot)
                self._track_trackable(variables[table.name][slot], f"{table.name}/{slot}")
        self._variables = variables

    def whole_variables(self) -> list[Any]:
        """The tables and slots that are one variable each, float32 [rows, dim]."""
        parts = [each for group in self._variables.values() for each in group.values()]
        return [part for part in parts if isinstance(part, tf.Variable)]


class Together(Protocol):
    """Processes that write and read the rows of their tables together, each its own, in files that all of them see."""

    def write(self, prefix: Path, tables: Mapping[str, StreamedTable], progress: Progress) -> bool:
        """Adds the rows of tables, by key, to a checkpoint, as slices in data files of their own, which are on disk.

        Returns:
            Whether they did: False if one does not see its folder; nothing is written then.

        Raises:
            OSError: a file can't be written.
        """

    def restore(self, part: StreamedTable, values: Any) -> bool:
        """Assigns all rows of a tensor of a checkpoint, `Values`.

        Returns:
            Whether they did: False if one does not see its files.

        Raises:
            DataError: a file is damaged.
            ValueError: rows that can't be assigned would change.
        """


class StreamedTable(tf.__internal__.tracking.Trackable):  # type: ignore[misc]
    """A table, or one of its slots, as checkpoints see it: one variable with all rows.

    `checkpoints` writes and reads it in blocks, without TensorFlow (`without_rows`). `tf.train.Checkpoint` eagerly
    writes and reads it as one tensor.

    Attributes:
        shape: [rows, width].
        dtype: what checkpoints hold; rows are read and assigned as float32.
        covered: the variables that hold the rows.
        slot: the slot; None: the table itself.
        together: writes and reads the rows; None: this process does.
    """

    def __init__(
        self,
        table: ReadableTable,
        slot: str | None,
        covered: list[Any],
        read: Callable[[int, int], np.ndarray],
        write: Callable[[int, np.ndarray], None],
        together: Together | None = None,
    ) -> None:
        """Reads and writes nothing.

        Args:
            table: gives name, size and some of its rows.
            slot: one of its slots; None: the table itself.
            covered: the variables that hold the rows.
            read: returns rows [start, stop), float32 [stop - start, dim].
            write: assigns float32 [n, dim] to the rows from `start`. Raises ValueError if rows that can't be assigned
                would change.
            together: see the attribute.
        """
        self.slot, self.together = slot, together
        self.name, self.table = table.name if slot is None else f"{table.name}/{slot}", table.name
        self.shape = tf.TensorShape([table.rows, table.width(slot)])
        self.covered, self._read, self._write = covered, read, write
        self.dtype = table.dtype(slot)
        self._take = functools.partial(table.take, slot=slot)
        self._rowless = False

    @property
    def rows_per_block(self) -> int:
        """Rows in a block of a few megabytes."""
        return rows_per_block(int(self.shape[1]))

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in order, float32 [n, dim], one block at a time in memory."""
        rows, step = int(self.shape[0]), self.rows_per_block
        for start in range(0, rows, step):
            yield self._read(start, min(start + step, rows))

    def some_blocks(self, numbers: np.ndarray) -> Iterator[np.ndarray]:
        """Rows with these numbers, rising, float32 [n, dim], one block at a time in memory."""
        for start in range(0, len(numbers), self.rows_per_block):
            yield self._take(numbers[start : start + self.rows_per_block])

    def restore(self, blocks: Iterable[np.ndarray]) -> None:
        """Assigns all rows, given in order.

        Raises:
            ValueError: rows that can't be assigned would change.
        """
        start = 0
        for block in blocks:
            self.assign(start, block.astype(np.float32, copy=False))
            start += len(block)

    def assign(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`.

        Raises:
            ValueError: rows that can't be assigned would change.
        """
        self._write(start, values)

    def _serialize_to_tensors(self) -> dict[str, Any]:
        if self._rowless:
            with tf.device("/cpu:0"):
                return {_KEY: tf.zeros([0, int(self.shape[1])], self.dtype)}
        if not tf.executing_eagerly():
            raise ValueError(f"{self.name}: in a graph, use `checkpoints.streaming` to save it")
        whole = arrays.empty(tuple(self.shape), np.float32)
        start = 0
        for block in self.blocks():
            whole[start : start + len(block)] = block
            start += len(block)
        return {_KEY: tf.cast(tf.experimental.dlpack.from_dlpack(whole.__dlpack__()), self.dtype)}

    def _restore_from_tensors(self, restored: dict[str, Any]) -> Any:
        if not tf.executing_eagerly():
            # A saver of a graph creates this operation for everything that it writes; running it must fail.
            return tf.debugging.Assert(False, [f"{self.name}: use checkpoints.streaming to restore it"])
        whole = restored[_KEY]
        if not whole.shape.is_compatible_with(self.shape):
            raise ValueError(f"{self.name} is {self.shape.as_list()}, the checkpoint's {whole.shape.as_list()}")
        step = self.rows_per_block
        self.restore(whole[start : start + step].numpy() for start in range(0, int(self.shape[0]), step))
        return None


def rows_per_block(dim: int) -> int:
    """Rows of `dim` float32 numbers in a block of a few megabytes."""
    return max(1, _BLOCK_BYTES // (4 * dim))


@contextlib.contextmanager
def without_rows(tables: Iterable[StreamedTable]) -> Iterator[None]:
    """Has TensorFlow write no rows of the tables inside the block, under the tables' keys."""
    tables = list(tables)
    try:
        for table in tables:
            table._rowless = True
        yield
    finally:
        for table in tables:
            table._rowless = False
