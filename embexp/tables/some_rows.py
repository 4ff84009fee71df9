"""Some rows of a table's first values, as rows that can be read by ranges."""

from __future__ import annotations

import numpy as np

from embexp.system import arrays
from embexp.system.readable import ReadableRows

_ROWS_READ = 4_096


class SomeRows:
    """Chosen rows, one behind the other; a `RowSource`.

    Attributes:
        rows: how many.
        dim: width of a row.
    """

    def __init__(self, source: ReadableRows, numbers: np.ndarray, dim: int) -> None:
        """Takes a source and the numbers of rows in it; reads nothing.

        Args:
            source: of all rows.
            numbers: integers [n], of the rows that are chosen; best in rising order.
            dim: width of a row.
        """
        self._source, self._numbers = source, numbers
        self.rows, self.dim = len(numbers), dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the chosen ones, float32; neighbours are read together."""
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"there are rows 0 to {self.rows - 1}, asked for [{start}, {stop})")
        numbers = self._numbers[start:stop]
        values = arrays.empty((len(numbers), self.dim), np.float32)
        if not len(numbers):
            return values
        ends = (np.flatnonzero(np.diff(numbers // _ROWS_READ)) + 1).tolist()
        for low, high in zip([0, *ends], [*ends, len(numbers)], strict=True):
            some = numbers[low:high]
            first, last = int(some.min()), int(some.max())
            values[low:high] = self._source.read(first, last + 1)[some - first]
        return values

    def memory_map(self) -> np.ndarray | None:
        """None: they lie apart."""
        return None
