"""Reads and writes the rows of a split table in order, each from or to the part that holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from embexp.tables.reading import in_place

if TYPE_CHECKING:
    from embexp.tables.split import SplitTable


class SplitRows:
    """The rows of a split table, or of one slot: in a graph of TensorFlow 1, those of the default session."""

    def __init__(self, table: SplitTable, slot: str | None) -> None:
        """Creates the operations that read and write, in a graph of TensorFlow 1 as part of it."""
        self._table, self._slot = table, slot
        ids, rows = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, table.dim], tf.float32)
        self._gather = _function(lambda ids: table.gather(ids, slot), ids)
        self._put = _function(lambda ids, rows: table.scatter(ids, rows, slot), ids, rows)
        self._fix = None if table.mapped or slot else _function(table.scatter_fixed, ids, rows)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim]; slots of frozen rows have their initial value."""
        return self.take(np.arange(start, stop))

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Rows with these numbers, float32 [n, dim]; slots of frozen rows have their initial value."""
        if self._slot is None:
            rows: np.ndarray = self._gather(numbers)
            return rows
        values = np.full((len(numbers), self._table.dim), self._table.initial[self._slot], np.float32)
        moving = self._table.moving(numbers)
        values[moving] = self._gather(numbers[moving])
        return values

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`.

        Raises:
            ValueError: rows that stay in their file would change.
        """
        stop = start + len(values)
        numbers = np.arange(start, stop)
        if self._slot is not None:
            moving = self._table.moving(numbers)
            self._put(numbers[moving], values[moving])
            return
        fixed = self._table.in_fixed(start, stop)
        self._put(numbers[~fixed], values[~fixed])
        if self._fix is not None:
            self._fix(numbers[fixed], values[fixed])
        # Rows that stay in their file can't be assigned, only compared.
        elif not np.array_equal(self._gather(numbers[fixed]).view(np.uint32), values[fixed].view(np.uint32)):
            raise ValueError(
                f"frozen rows of table {self._table.name} in the checkpoint are not those of its pretrained file"
            )


def _function(compute: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
    """A computation as a function of arrays: eager, or in the default session at the time of the call."""
    if tf.executing_eagerly():

        def eagerly(*arrays: np.ndarray) -> Any:
            result = compute(*(tf.constant(each) for each in arrays))
            return None if result is None else in_place(result)

        return eagerly
    placeholders = [tf.compat.v1.placeholder(each.dtype, each.shape) for each in specs]
    fetched = compute(*placeholders)
    return lambda *arrays: tf.compat.v1.get_default_session().run(fetched, dict(zip(placeholders, arrays, strict=True)))
