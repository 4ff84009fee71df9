"""A matrix of an incremental checkpoint: that of its base, with the rows that changed since in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embexp.errors import DataError
from embexp.tensor_bundle.tensor import Tensor


@dataclass(frozen=True)
class ChangedMatrix:
    """Reads rows of such a matrix.

    Attributes:
        whole: the matrix in the checkpoint at the end of the chain.
        changes: numbers of rows, int64 [n], rising, and the rows, [n, dim]; the earliest change first.
    """

    whole: Tensor
    changes: Sequence[tuple[Tensor, Tensor]]

    @property
    def dtype(self) -> np.dtype | None:
        """NumPy's type of its numbers."""
        return self.whole.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in memory of their own; no checksum is compared, see `Tensor.read`.

        Raises:
            DataError: there are no such rows, or a data file is missing, cut short, or does not fit.
        """
        values = np.array(self.whole.read(start, stop))
        for numbers, rows in self.changes:
            of_rows = numbers.value()
            first, last = np.searchsorted(of_rows, [start, stop])
            changed = rows.read(int(first), int(last))
            at = of_rows[first:last] - start
            if changed.shape != (len(at), *values.shape[1:]) or np.any((at < 0) | (at >= len(values))):
                raise DataError(f"{rows.name}: found rows {list(rows.entry.shape)} that are not those of {numbers.key}")
            values[at] = changed
        return values

    def value(self) -> np.ndarray:
        """All rows, see `read`."""
        return self.read(0, self.whole.entry.shape[0])

    def verify(self) -> None:
        """Reads all that it is made of, a block at a time, and compares the checksums.

        Raises:
            DataError: one is wrong, or a data file is missing or cut short.
        """
        for each in (self.whole, *(tensor for change in self.changes for tensor in change)):
            each.verify()
