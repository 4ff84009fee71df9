"""What can be read of a table that is filled, wherever its values are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np


class TableValues(Protocol):
    """What can be read of a table once it is made."""

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

    @property
    def frozen(self) -> bool:
        """Whether no row moves."""
        ...

    @property
    def storage(self) -> str:
        """How rows are kept: a `Storage` in words."""
        ...

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows, as consecutive blocks of float32, one at a time in memory."""
        ...

    def digest(self) -> str:
        """Digest of all rows, in blocks; see `digests.of_rows`."""
        ...

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Rows of these numbers, rising, float32 [n, dim]; a few thousand at most."""
        ...

    def touched_rows(self) -> int:
        """Number of rows that training steps have looked up."""
        ...

    def looked_up(self) -> np.ndarray | None:
        """Bool [rows]: which rows training steps have looked up to move them; None: not tracked."""
        ...
