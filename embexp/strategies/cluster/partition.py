"""Which worker owns which rows: blocks of neighbours, dealt in turn.

Row r is in block r // b. Worker block % W owns it, as its row (block // W) * b + r % b. So a range of rows of a table
is one range of rows of each worker, and rows that are looked up often, which a vocabulary has at its beginning, are
spread over all workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Partition:
    """The owners of a table's rows.

    Attributes:
        rows: of the table.
        workers: that share them.
        block: rows of a block, a power of two.
    """

    rows: int
    workers: int
    block: int

    @classmethod
    def of(cls, rows: int, workers: int, block: int) -> Partition:
        """Blocks of `block` rows, or of fewer where there would not be one for each worker."""
        while block > 1 and block * workers > rows:
            block //= 2
        return cls(rows, workers, block)

    def below(self, worker: int, row: int) -> int:
        """How many of the rows before `row` a worker owns: also its own number of the first that it owns from there."""
        block, within = divmod(row, self.block)
        turn, place = divmod(block, self.workers)
        if worker < place:
            return (turn + 1) * self.block
        return turn * self.block + (within if worker == place else 0)

    def count(self, worker: int) -> int:
        """How many rows a worker owns; 0 of a table with fewer rows than workers."""
        return self.below(worker, self.rows)

    def numbers(self, worker: int, start: int, stop: int) -> np.ndarray:
        """The rows of the table, int64, that a worker has as its rows [start, stop)."""
        own = np.arange(start, stop, dtype=np.int64)
        turn, within = own // self.block, own % self.block
        return (turn * self.workers + worker) * self.block + within

    def split(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The owner of each of some rows, and the owner's number of it, int64 both."""
        block, within = numbers // self.block, numbers % self.block
        return block % self.workers, block // self.workers * self.block + within

    def traced(self, ids: Any) -> tuple[Any, Any]:
        """`split` of a tensor of ids, int32 or int64 [n]: int32 owners, and numbers of the ids' type."""
        import tensorflow as tf  # not above: `plan` deals rows without it

        block, within = ids // self.block, ids % self.block
        return tf.cast(block % self.workers, tf.int32), block // self.workers * self.block + within


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

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the worker's, float32 [stop - start, dim]."""
        from embexp.system.arrays import SomeRows

        if self._partition.count(self._worker) == 0:
            return np.asarray(self._source.read(0, 1)[: stop - start])
        numbers = self._partition.numbers(self._worker, start, stop)
        return SomeRows(self._source, numbers).read(0, len(numbers))

    def memory_map(self) -> np.ndarray | None:
        """None: the rows are not contiguous."""
        return None

    def of_array(self, values: np.ndarray) -> np.ndarray:
        """The worker's part of one value per row of the table."""
        if self._partition.count(self._worker) == 0:
            return np.asarray(values[:1])
        return np.asarray(values[self._partition.numbers(self._worker, 0, self.rows)])
