"""Values of tables whose variables live in a session or in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.tables.reading import ReadableTable
from embexp.vectors import checkpoint


@dataclass(frozen=True)
class TableElsewhere(ReadableTable):
    """A table whose rows are read by a function, wherever they are; a `TableValues`.

    Attributes:
        name: of the table.
        rows: number of rows.
        dim: width of a row.
        frozen: whether no row moves.
        storage: how rows are kept.
        reads: gives rows [start, stop), float32.
        takes: gives rows of these numbers, rising, float32; None: they are read by ranges.
        looks_up: see `TableValues.looked_up`; None: not tracked.
    """

    name: str
    rows: int
    dim: int
    frozen: bool
    storage: str
    reads: Callable[[int, int], np.ndarray]
    takes: Callable[[np.ndarray], np.ndarray] | None = None
    looks_up: Callable[[], np.ndarray] | None = None

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop), float32; of slots nothing can be read."""
        if slot is not None:
            raise KeyError(slot)
        return self.reads(start, stop)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """See `TableValues.take`."""
        return super().take(numbers) if self.takes is None else self.takes(numbers)

    def looked_up(self) -> np.ndarray | None:
        """See `TableValues.looked_up`."""
        return None if self.looks_up is None else self.looks_up()


def in_session(table: Any, call: Callable[[Callable[[Any], Any]], Any]) -> TableElsewhere:
    """Reads a table of the current graph.

    Args:
        table: as it was made in this graph.
        call: calls a function with the session; used when values are read, not before.
    """
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    rows = table.gather(ids)
    touched = None if table.touched is None else tf.not_equal(table.touched, 0)

    def take(numbers: np.ndarray) -> np.ndarray:
        found: np.ndarray = call(lambda session: session.run(rows, {ids: numbers}))
        return found

    def looked_up() -> np.ndarray:
        found: np.ndarray = call(lambda session: session.run(touched))
        return found

    return TableElsewhere(
        name=table.name,
        rows=table.rows,
        dim=table.dim,
        frozen=table.frozen,
        storage=table.storage,
        reads=lambda start, stop: take(np.arange(start, stop)),
        takes=take,
        looks_up=None if touched is None else looked_up,
    )


def rows_in_checkpoint(table: str, prefix: Callable[[], str]) -> Callable[[int, int], np.ndarray]:
    """Reads rows [start, stop) of a table from the checkpoint whose prefix `prefix` gives at the time of reading."""

    def read(start: int, stop: int) -> np.ndarray:
        stored = checkpoint.read(Path(f"{prefix()}.index"), f"embedding/{table}")
        return np.asarray(stored.read(start, stop))

    return read
