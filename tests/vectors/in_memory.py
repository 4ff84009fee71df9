"""Files of vectors that are none, for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Memory:
    """A file of vectors that is none; with `mapped` false it can only be read by ranges."""

    matrix: np.ndarray
    tokens: pa.LargeStringArray | None = None
    mapped: bool = True
    digest: str = "memory"

    @property
    def rows(self) -> int:
        return len(self.matrix)

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start < stop <= self.rows
        return self.matrix[start:stop].astype(np.float32)

    def memory_map(self) -> np.ndarray | None:
        return self.matrix if self.mapped else None


@dataclass(frozen=True)
class Numbered:
    """Rows that tell their number: -1000 - row, everywhere."""

    dim: int

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.repeat(-1000 - np.arange(start, stop, dtype=np.float32)[:, None], self.dim, axis=1)
