"""Filling a table chunk by chunk: one copy of the table in memory, and one chunk in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from embexp.system import arrays
from embexp.system.rows import Rows

_BYTES_PER_VALUE = 4


class WritableTable(Protocol):
    """What an initialization needs of a table."""

    @property
    def name(self) -> str:
        """Name of the table."""
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

    def apply(self, table: WritableTable, source: Rows) -> None:
        """Fills the table.

        Raises:
            ValueError: the source's shape is not the table's.
        """
        if (source.rows, source.dim) != (table.rows, table.dim):
            raise ValueError(
                f"table {table.name!r} is {table.rows} × {table.dim},"
                f" its source of rows is {source.rows} × {source.dim}"
            )
        for chunk in self.plan(table.rows, table.dim):
            table.write(chunk.start, source.read(chunk.start, chunk.stop))
