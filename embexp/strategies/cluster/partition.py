"""Which worker owns which rows: blocks of neighbours, dealt in turn.

The first blocks have b rows. After every `turns` of W blocks, one for each worker, they have twice as many. So the
blocks of level l have b 2^l rows, and begin at row turns W b (2^l - 1). Within a level that starts at row s with blocks
of c rows, row r is in block (r - s) // c. Worker block % W owns it, as its row s / W + block // W * c + (r - s) % c.

So a range of rows of a table is one range of rows of each worker. Rows that are looked up often, which a vocabulary has
at its beginning, are spread over all workers by small blocks. And the blocks are few, as their number grows with the
logarithm of that of the rows: a checkpoint has a slice for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

_TURNS = 32
"""A block is a 32nd of the rows of a worker before it at most, and so much more may one have than another."""


@dataclass(frozen=True)
class Partition:
    """The owners of a table's rows.

    Attributes:
        rows: of the table.
        workers: that share them.
        block: rows of the first blocks, a power of two.
        turns: blocks of a worker after which they double.
    """

    rows: int
    workers: int
    block: int
    turns: int = _TURNS

    @classmethod
    def of(cls, rows: int, workers: int, block: int) -> Partition:
        """Blocks of `block` rows, or of fewer where there would not be one for each worker."""
        while block > 1 and block * workers > rows:
            block //= 2
        return cls(rows, workers, block)

    def below(self, worker: int, row: int) -> int:
        """How many of the rows before `row` a worker owns: also its own number of the first that it owns from there."""
        own_start, size = self._level(row, self.turns * self.block * self.workers)
        block, within = divmod(row - own_start * self.workers, size)
        turn, place = divmod(block, self.workers)
        if worker < place:
            return own_start + (turn + 1) * size
        return own_start + turn * size + (within if worker == place else 0)

    def count(self, worker: int) -> int:
        """How many rows a worker owns; 0 of a table with fewer rows than workers."""
        return self.below(worker, self.rows)

    def slices(self, worker: int) -> Iterator[tuple[int, int]]:
        """The ranges of neighbours in the table, as [start, stop), that make up a worker's rows, in its order."""
        own, count = 0, self.count(worker)
        while own < count:
            own_start, size = self._level(own, self.turns * self.block)
            turn = (own - own_start) // size
            first = own_start * self.workers + (turn * self.workers + worker) * size
            length = min(size, count - own)
            yield first, first + length
            own += length

    def numbers(self, worker: int, start: int, stop: int) -> np.ndarray:
        """The rows of the table, int64, that a worker has as its rows [start, stop)."""
        own = np.arange(start, stop, dtype=np.int64)
        own_start, size = self._levels(own, self.turns * self.block)
        turn, within = np.divmod(own - own_start, size)
        found: np.ndarray = own_start * self.workers + (turn * self.workers + worker) * size + within
        return found

    def split(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The owner of each of some rows, and the owner's number of it, int64 both."""
        own_start, size = self._levels(numbers, self.turns * self.block * self.workers)
        block, within = np.divmod(numbers - own_start * self.workers, size)
        return block % self.workers, own_start + block // self.workers * size + within

    def of_array(self, worker: int, values: np.ndarray) -> np.ndarray:
        """A worker's part of one value per row of the table; of one that owns none that of row 0, see `OwnRows`."""
        return np.asarray(values[self.numbers(worker, 0, count) if (count := self.count(worker)) else slice(1)])

    def traced(self, ids: Any) -> tuple[Any, Any]:
        """`split` of a tensor of ids, int32 or int64 [n]: int32 owners, and numbers of the ids' type."""
        import tensorflow as tf  # not above: `plan` deals rows without it

        own_start, size = self._traced_levels(ids, self.workers)
        within = ids - own_start * self.workers
        block = within // size
        owners = tf.cast(block % self.workers, tf.int32)
        return owners, own_start + block // self.workers * size + within % size

    def traced_numbers(self, worker: int, own: Any) -> Any:
        """The rows of the table, int64 [n], that a worker has as its rows `own`, a tensor of integers [n]."""
        import tensorflow as tf

        own = tf.cast(own, tf.int64)
        own_start, size = self._traced_levels(own, 1)
        turn, within = (own - own_start) // size, (own - own_start) % size
        return own_start * self.workers + (turn * self.workers + worker) * size + within

    def _traced_levels(self, rows: Any, workers: int) -> tuple[Any, Any]:
        """`_level` of a tensor of rows, of the table or, with `workers` 1, of a worker; numbers where there is one."""
        import tensorflow as tf

        first = self.turns * self.block
        if self.rows <= first * self.workers:
            return 0, self.block
        count = (self.rows // (first * self.workers) + 1).bit_length()
        own_starts = [first * ((1 << level) - 1) for level in range(count)]
        starts = tf.constant([each * workers for each in own_starts], rows.dtype)
        level = tf.searchsorted(starts, rows, side="right") - 1
        sizes = tf.constant([self.block << level for level in range(count)], rows.dtype)
        return tf.gather(tf.constant(own_starts, rows.dtype), level), tf.gather(sizes, level)

    def _level(self, row: int, first: int) -> tuple[int, int]:
        """Where in a worker's rows the level of a row starts, and the rows of its blocks.

        Args:
            row: of the table, or of a worker.
            first: rows of the first level, of the table or of a worker.
        """
        factor = 1 << ((row // first + 1).bit_length() - 1)
        return self.turns * self.block * (factor - 1), self.block * factor

    def _levels(self, rows: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
        """`_level` of many rows, int64 both."""
        factor = np.int64(1) << (np.frexp((rows // first + 1).astype(np.float64))[1].astype(np.int64) - 1)
        return self.turns * self.block * (factor - 1), self.block * factor


class OwnRows:
    """The rows of a source that a worker owns, in its order; `MappableRows`.

    A worker that owns none has row 0 instead, which nobody asks it for: a variable has at least one row.

    Attributes:
        dim: numbers per row.
    """

    def __init__(self, source: Any, partition: Partition, worker: int) -> None:
        """Reads nothing."""
        self._source, self._partition, self._worker = source, partition, worker
        self.rows, self.dim = max(1, partition.count(worker)), source.dim

    def runs(self) -> Iterator[range]:
        """The ranges of the worker's rows that are neighbours in the source, so that each is read without a copy."""
        start = 0
        for first, last in self._partition.slices(self._worker):
            yield range(start, start + last - first)
            start += last - first
        if not start:
            yield range(1)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the worker's, float32 [stop - start, dim]."""
        from embexp.system.arrays import SomeRows

        if self._partition.count(self._worker) == 0:
            return np.asarray(self._source.read(0, 1)[: stop - start], np.float32)
        numbers = self._partition.numbers(self._worker, start, stop)
        if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
            return np.asarray(self._source.read(int(numbers[0]), int(numbers[-1]) + 1), np.float32)
        return SomeRows(self._source, numbers).read(0, len(numbers))

    def memory_map(self) -> np.ndarray | None:
        """None: the rows are not contiguous."""
        return None
