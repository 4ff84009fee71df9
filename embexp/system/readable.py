"""What can be read by ranges of rows, so that it never has to be in memory whole."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class ReadableRows(Protocol):
    """Rows by number."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim], the same values however the ranges are cut."""
        ...


class ReadableMatrix(ReadableRows, Protocol):
    """Rows by number, and how many there are."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def dim(self) -> int:
        """Width of a row."""
        ...
