"""One embedding table: a variable of rows, a variable per optimizer slot, and access to both in bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.tables import Combiner, Storage
from embexp.system import arrays
from embexp.system.rows import Rows
from embexp.tables.groups import RowGroups
from embexp.tables.parts import TablePart
from embexp.tables.reading import ReadableTable, gathered
from embexp.tables.streamed import RowRanges, streamed
from embexp.tables.variables import gather_rows, scatter_rows, variable, write_rows


class EmbeddingTable(ReadableTable):
    """`rows` × `dim` float32 values and as many for each slot.

    The table's own values are left uninitialised, so that filling them (`write`) is the only time their pages
    are touched: never two copies, never filled twice. Slots hold their constant from the start.

    The variables are made in the graph that is current. In a graph of TensorFlow 1, what reads or writes at once
    (`write`, `read`, `blocks`, `digest`, `touched_rows`) is of no use: sessions hold the values there.

    Attributes:
        name: of the table; it becomes the key in checkpoints.
        rows: vocabulary size.
        dim: width of a row.
        combiner: how several rows of one example become one vector.
        variable: float32 [rows, dim].
        slots: by slot name, float32 [rows, dim].
        touched: uint8 [rows], 1 for each row that a training step looked up, a local variable in a graph of
            TensorFlow 1; None when not tracked.
        frozen: no step moves a row.
        by_reference: the rows can be had again from where they came, so no checkpoint holds them.
        groups: which rows move when, and how fast; None: all do, unless frozen.
        storage: how the rows are kept.
    """

    storage = Storage.VARIABLE
    take = gathered

    def __init__(
        self,
        name: str,
        rows: int,
        dim: int,
        *,
        combiner: Combiner = Combiner.MEAN,
        slots: Mapping[str, float] | None = None,
        track_touched: bool = True,
        frozen: bool = False,
        by_reference: bool = False,
        initial_value: Callable[[], Any] | None = None,
        groups: RowGroups | None = None,
    ) -> None:
        """Makes the variables.

        Args:
            name: of the table.
            rows: vocabulary size, at least 1.
            dim: width of a row, at least 1.
            combiner: how several rows of one example become one vector.
            slots: initial value of each slot, see `optimizers.slots_of`.
            track_touched: keep a byte per row that tells whether training ever looked the row up; not if frozen.
            frozen: no step moves a row, so there is nothing to keep for steps: no slots, no `touched`.
            by_reference: leave the table out of checkpoints; only if frozen. In a graph of TensorFlow 1 its variable
                is then a local one, which no `Saver` knows and every new session has to fill.
            initial_value: gives the variable's first value, float32 [rows, dim]; None: uninitialised memory.
            groups: which rows move when, and how fast; None: all do, unless frozen.

        Raises:
            ValueError: the arguments contradict each other.
        """
        if rows < 1 or dim < 1:
            raise ValueError(f"table {name!r}: rows ({rows}) and dim ({dim}) must be at least 1")
        if frozen and slots:
            raise ValueError(f"table {name!r} is frozen, so it has no use for slots, got {sorted(slots)}")
        if by_reference and not frozen:
            raise ValueError(f"table {name!r} is kept by reference, so it must be frozen: its rows would be lost")
        if frozen and groups is not None:
            raise ValueError(f"table {name!r} is frozen, so it has no use for groups of rows")
        self.name, self.rows, self.dim, self.combiner = name, rows, dim, combiner
        self.frozen, self.by_reference, self.groups = frozen, by_reference, groups
        shape = [rows, dim]
        empty = functools.partial(tf.raw_ops.Empty, shape=shape, dtype=tf.float32)
        self.variable = variable(name, initial_value or empty, shape, local=by_reference)
        if initial_value is None and tf.executing_eagerly():
            # Memory that nothing has touched: the view is gone before it is written to.
            arrays.prefer_huge_pages(np.frombuffer(memoryview(self.variable.read_value()), np.uint8))
        self.slots = {
            slot: variable(f"{name}/{slot}", lambda value=value: tf.fill(shape, np.float32(value)), shape)
            for slot, value in (slots or {}).items()
        }
        tracked = track_touched and not frozen
        self.touched = (
            variable(f"{name}/touched", lambda: tf.zeros([rows], tf.uint8), [rows], local=True) if tracked else None
        )

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table, or of one slot: float32 [n, dim]. Reading the variable whole would copy it."""
        return gather_rows(self._of(slot), ids)

    def scatter(self, ids: Any, rows: Any, slot: str | None = None) -> None:
        """Assigns `rows` to the rows `ids`, which must not repeat."""
        scatter_rows(self._of(slot), ids, rows)

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """What a new session of a graph of TensorFlow 1 is to be fed, beside the rows; see `MappedTable.feeds`."""
        return [] if self.groups is None else self.groups.feeds()

    def fills(self, source: Rows) -> list[tuple[TablePart, Rows]]:
        """What is to be filled with the table's initial values, and with which of them: all, in one part."""
        return [(TablePart(self.name, self.variable), source)]

    def slot_fills(self, slots: Mapping[str, Rows]) -> list[tuple[TablePart, Rows]]:
        """What is to be filled with values of slots that an earlier checkpoint has, and with which of them."""
        return [(TablePart(f"{self.name}/{slot}", self.slots[slot]), source) for slot, source in slots.items()]

    def checkpointed(self, slot: str | None = None) -> Any:
        """What a checkpoint holds of the table, or of one slot.

        In a graph of TensorFlow 1 it is the variable, as Estimators have savers of their own. Eagerly, TensorFlow would
        restore the variable with a second copy of its rows in memory.
        """
        variable = self._of(slot)
        return streamed(self, slot, [variable], RowRanges(self, slot)) if tf.executing_eagerly() else variable

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns `values` [n, dim] float32 to the rows from `start`.

        Values that `arrays.can_be_taken_over` are copied once, into the table; others once more on the way.

        Raises:
            ValueError: the values' dtype or shape does not fit.
        """
        self.check_range(start, start + len(values))
        write_rows(self._of(slot), self.name, start, values)

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32 [stop - start, dim]."""
        self.check_range(start, stop)
        values: np.ndarray = self.gather(tf.range(start, stop, dtype=tf.int64), slot).numpy()
        return values

    def _of(self, slot: str | None) -> Any:
        return self.variable if slot is None else self.slots[slot]
