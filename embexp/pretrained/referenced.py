"""Rows that a run kept in a file, and not in its checkpoint: tables that were frozen whole and pretrained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from embexp.system.rows import MappableRows


@dataclass(frozen=True)
class Referenced:
    """The rows of such a table: a `VectorSource`.

    Attributes:
        source: gives them.
        digest: of the whole that they are a part of.
    """

    source: MappableRows
    digest: str

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.source.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.source.dim

    @property
    def dtype(self) -> np.dtype:
        """Of what is read."""
        return np.dtype(np.float32)

    @property
    def tokens(self) -> pa.LargeStringArray | None:
        """None: the vocabulary of the run has them."""
        return None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim]; may be a view of the file."""
        return self.source.read(start, stop)

    def memory_map(self) -> np.ndarray | None:
        """All rows as one mapping where they lie in their file just so; else None."""
        return self.source.memory_map()
