"""Rows from which a table is filled."""

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
