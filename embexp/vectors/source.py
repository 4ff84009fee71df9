"""What a file of vectors is to the rest of the program."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa


class TokenRows(Protocol):
    """Rows with tokens: what writing a file takes."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def dim(self) -> int:
        """Numbers per row."""
        ...

    @property
    def tokens(self) -> pa.LargeStringArray | None:
        """The word of each row, [rows]; None when there are none."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim]."""
        ...


class VectorSource(Protocol):
    """A matrix on disk, read by ranges of rows or mapped."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def dim(self) -> int:
        """Numbers per row."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """As stored; what is read is always float32."""
        ...

    @property
    def tokens(self) -> pa.LargeStringArray | None:
        """The word of each row, [rows]; None when the file has none.

        Those of text and word2vec files are distinct; elsewhere a token may be repeated, and its first row counts.
        """
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the content, independent of the file's name."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim], with memory for little more than these rows."""
        ...

    def memory_map(self) -> np.ndarray | None:
        """The matrix as a mapping: float32 [rows, dim], C-contiguous, aligned to 64 bytes, a plain `np.ndarray`.

        Writing to it changes nothing on disk (mode `c`). A file that can't be mapped as it is, is converted once
        into the cache. None where there is nothing to map.
        """
        ...
