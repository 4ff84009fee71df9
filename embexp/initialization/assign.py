"""Filling a table chunk by chunk: one copy of the table in memory, and one chunk in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

from embexp.initialization.rows import RowSource, WritableTable, check_fit
from embexp.system import arrays

_BYTES_PER_VALUE = 4


@dataclass(frozen=True)
class Assign:
    """Reads a chunk of rows from the source and assigns it, until the table is full.

    Attributes:
        chunk_bytes: largest chunk, in bytes; a single row may be larger.
    """

    chunk_bytes: int = 64 * 1024 * 1024

    def plan(self, rows: int, dim: int) -> tuple[range, ...]:
        """The ranges of rows that are in flight one after the other; touches nothing."""
        size = max(self.chunk_bytes // (_BYTES_PER_VALUE * dim), 1)
        # Chunks of a mapping that is aligned are aligned too, and so go into the table without another copy.
        aligned = arrays.ALIGNMENT // math.gcd(arrays.ALIGNMENT, _BYTES_PER_VALUE * dim)
        if size > aligned:
            size -= size % aligned
        return tuple(range(start, min(start + size, rows)) for start in range(0, rows, size))

    def apply(self, table: WritableTable, source: RowSource) -> None:
        """Fills the table.

        Raises:
            ValueError: the source's shape is not the table's.
        """
        check_fit(table, source)
        for chunk in self.plan(table.rows, table.dim):
            table.write(chunk.start, source.read(chunk.start, chunk.stop))
