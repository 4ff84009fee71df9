"""Reading the rows of a table of any layout, whole or in blocks, and which of them were looked up.

Which rows training has looked up: in the whole run, and since it was last asked. Each training step sets flags in a
variable. The rows of earlier flags are kept in this process, so that the flags can be cleared, and so that a resumed
run goes on with those of its checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.system import digests
from embexp.system.arrays import SomeRows
from embexp.tables.variables import scatter_rows


class ReadableTable(ABC):
    """`rows` × `dim` float32 values that are read a block at a time.

    In a graph of TensorFlow 1, sessions hold the values of variables, so reading works only eagerly.

    Attributes:
        storage: how rows are kept: a `Storage`, or "sharded".
        touched: uint8 [rows], 1 for each row that a training step looked up since `take_touched`; None when not
            tracked.
    """

    name: str
    rows: int
    dim: int
    frozen: bool
    storage: str
    touched: Any

    @abstractmethod
    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32 [stop - start, dim]; they may be read-only."""

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers, rising, of the table, or of one slot, float32 [n, dim]; at most some thousand."""
        if slot is not None:  # what has slots can gather them
            raise KeyError(slot)
        return SomeRows(self, numbers).read(0, len(numbers))

    def blocks(self, slot: str | None = None, *, rows: int = digests.ROWS_PER_BLOCK) -> Iterator[np.ndarray]:
        """The table, or one slot, as consecutive blocks of rows, one at a time in memory."""
        for start in range(0, self.rows, rows):
            yield self.read(start, min(start + rows, self.rows), slot)

    def digest(self, slot: str | None = None) -> str:
        """Digest of all rows, in blocks; see `digests.of_rows`."""
        return digests.of_float_rows(lambda start, stop: self.read(start, stop, slot), self.rows, self.dim)

    def looked_up(self) -> np.ndarray | None:
        """Bool [rows]: which rows training steps have looked up in the run so far; None: not tracked."""
        return None if self.touched_state is None else self.touched_state.ever()

    def take_touched(self) -> np.ndarray | None:
        """Bool [rows]: which rows training steps have looked up since the last call; None: not tracked.

        A call of `restore_touched` counts as one. With `adam` and `lazy_adam: false`, steps also move other rows.
        """
        return None if self.touched_state is None else self.touched_state.take()

    def restore_touched(self, looked_up: np.ndarray) -> None:
        """Sets which rows training steps have looked up in the run so far, for a run that is resumed.

        Args:
            looked_up: bool [rows], as `looked_up` returned it when the checkpoint was written.

        Raises:
            ValueError: the table does not track it, or the mask is not of that form.
        """
        if self.touched_state is None:
            raise ValueError(f"table {self.name!r} does not track which rows training looks up")
        self.touched_state.restore(looked_up)

    @cached_property
    def touched_state(self) -> TouchedRows | None:
        """Which rows training steps have looked up, and when; None: not tracked."""
        touched = self.touched
        if touched is None:
            return None
        return TouchedRows(
            self.name,
            self.rows,
            flags=lambda: touched.numpy() != 0,
            clear=lambda: touched.assign(tf.zeros([self.rows], tf.uint8)),
        )

    def touched_rows(self) -> int:
        """Number of rows that training steps have looked up; 0 for a frozen table.

        Raises:
            ValueError: the table does not track it.
        """
        if self.frozen:
            return 0
        looked_up = self.looked_up()
        if looked_up is None:
            raise ValueError(f"table {self.name!r} was made with track_touched=False")
        return int(np.count_nonzero(looked_up))

    def mark_touched(self, ids: Any) -> None:
        """Records that training looked up these rows."""
        if self.touched is not None:
            scatter_rows(self.touched, ids, tf.constant(1, tf.uint8))

    def check_range(self, start: int, stop: int) -> None:
        """Raises ValueError unless [start, stop) are rows of the table."""
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"table {self.name!r} has rows 0 to {self.rows - 1}, asked for [{start}, {stop})")


class Gathers(Protocol):
    """A table whose rows are tensors of this process."""

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table, or of one slot: float32 [n, dim]."""
        ...


def gathered(table: Gathers, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
    """`take` of tables that can gather: rows with these numbers, float32 [n, dim]."""
    return in_place(table.gather(tf.constant(numbers), slot))


def in_place(tensor: Any) -> np.ndarray:
    """A tensor that nobody else has, as an array over its memory. `numpy()` would copy it."""
    return np.asarray(memoryview(tensor))


class TouchedRows:
    """The rows of one table that training has looked up."""

    def __init__(self, table: str, rows: int, flags: Callable[[], np.ndarray], clear: Callable[[], object]) -> None:
        """Reads nothing.

        Args:
            flags: returns bool [rows], the rows looked up since `clear` was last called.
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
