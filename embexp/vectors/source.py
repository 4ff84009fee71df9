"""`VectorSource`: the interface of a file of vectors."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from embexp.system.rows import MappableRows


class VectorSource(MappableRows, Protocol):
    """A matrix on disk, read by ranges of rows or mapped.

    Its `memory_map` converts a file that can't be mapped as it is, once, into the cache. To read some rows takes
    memory for little more than these.
    """

    @property
    def dtype(self) -> np.dtype:
        """Type as stored; rows are read as float32."""
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
