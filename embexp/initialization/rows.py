"""The two sides of an initialization: rows that can be read, and a table that can be written."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from embexp.system.readable import ReadableMatrix


class RowSource(ReadableMatrix, Protocol):
    """A matrix that is read by ranges of rows, so that it never has to be in memory whole."""

    def memory_map(self) -> np.ndarray | None:
        """All rows as one mapping of a file, where they lie in one just so; else None.

        Then float32 [rows, dim], C-contiguous, aligned to 64 bytes, a plain `np.ndarray`; writing to it changes nothing
        on disk.
        """
        ...


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


def check_fit(table: WritableTable, source: RowSource) -> None:
    """Raises ValueError unless the source has exactly the table's rows and dim."""
    if (source.rows, source.dim) != (table.rows, table.dim):
        raise ValueError(
            f"table {table.name!r} is {table.rows} × {table.dim}, its source of rows is {source.rows} × {source.dim}"
        )
