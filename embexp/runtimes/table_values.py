"""Tables whose variables live in a session or in a checkpoint, to be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.tables.reading import ReadableTable, TouchedRows
from embexp.vectors import checkpoint


@dataclass(frozen=True)
class TableView(ReadableTable):
    """A table whose rows are read by functions.

    Attributes:
        name: the table's name.
        rows: number of rows.
        dim: width of a row.
        frozen: whether the whole table is frozen.
        storage: the table's storage.
        reads: reads rows [start, stop), float32.
        takes: reads rows by rising numbers, float32; None: `reads` does.
        touched_state: which rows training steps have looked up, and when; None: not tracked.
    """

    name: str
    rows: int
    dim: int
    frozen: bool
    storage: str
    reads: Callable[[int, int], np.ndarray]
    takes: Callable[[np.ndarray], np.ndarray] | None = None
    touched_state: TouchedRows | None = None

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop), float32; slots can't be read."""
        if slot is not None:
            raise KeyError(slot)
        return self.reads(start, stop)

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers, rising, float32 [n, dim], at most some thousand; slots can't be read."""
        return super().take(numbers, slot) if self.takes is None or slot is not None else self.takes(numbers)


def in_session(table: Any, call: Callable[[Callable[[Any], Any]], Any]) -> TableView:
    """A table of the current graph, to be read in a session.

    Args:
        table: the table that was made in this graph.
        call: calls a function with the session; used only when values are read.
    """
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    rows = table.gather(ids)
    touched = None if table.touched is None else _touched_in_session(table, call)

    def take(numbers: np.ndarray) -> np.ndarray:
        values: np.ndarray = call(lambda session: session.run(rows, {ids: numbers}))
        return values

    return TableView(
        name=table.name,
        rows=table.rows,
        dim=table.dim,
        frozen=table.frozen,
        storage=table.storage,
        reads=lambda start, stop: take(np.arange(start, stop)),
        takes=take,
        touched_state=touched,
    )


def _touched_in_session(table: Any, call: Callable[[Callable[[Any], Any]], Any]) -> TouchedRows:
    flags, clear = tf.not_equal(table.touched, 0), table.touched.initializer
    return TouchedRows(
        table.name,
        table.rows,
        flags=lambda: np.asarray(call(lambda session: session.run(flags))),
        clear=lambda: call(lambda session: session.run(clear)),
    )


def rows_in_checkpoint(table: str, prefix: Callable[[], str]) -> Callable[[int, int], np.ndarray]:
    """A function that reads rows [start, stop) of a table from the checkpoint at `prefix()`, called at each read."""

    def read(start: int, stop: int) -> np.ndarray:
        stored = checkpoint.read(Path(f"{prefix()}.index"), f"embedding/{table}")
        return np.asarray(stored.read(start, stop))

    return read
