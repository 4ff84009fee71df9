"""Which rows training has looked up: in the whole run, and since it was last asked.

Each training step sets flags in a variable. The rows of earlier flags are kept in this process, so that the flags can
be cleared, and so that a resumed run goes on with those of its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class TouchedRows:
    """The rows of one table that training has looked up."""

    def __init__(self, table: str, rows: int, flags: Callable[[], np.ndarray], clear: Callable[[], object]) -> None:
        """Reads nothing.

        Args:
            table: its name, for errors.
            rows: of the table.
            flags: returns bool [rows], the rows looked up since `clear` was last called.
            clear: clears the flags.
        """
        self._table, self._rows, self._flags, self._clear = table, rows, flags, clear
        self._before: np.ndarray | None = None

    def ever(self) -> np.ndarray:
        """Bool [rows]: rows looked up in the run so far."""
        flags = self._flags()
        return flags if self._before is None else flags | self._before

    def take(self) -> np.ndarray:
        """Bool [rows]: rows looked up since the last `take` or `restore`, or in the run so far."""
        flags = self._flags()
        self._before = flags.copy() if self._before is None else self._before | flags
        self._clear()
        return flags

    def restore(self, ever: np.ndarray) -> None:
        """Replaces the rows looked up in the run so far by those of a checkpoint; `take` then finds later ones.

        Args:
            ever: bool [rows], as `ever` returned it.

        Raises:
            ValueError: the mask is not of that form.
        """
        if ever.dtype != np.bool_ or ever.shape != (self._rows,):
            raise ValueError(f"table {self._table!r} takes bool ({self._rows},), got {ever.dtype} {ever.shape}")
        self._before = ever.copy()
        self._clear()
