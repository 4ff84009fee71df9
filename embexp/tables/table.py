"""One embedding table: a variable of rows, a variable per optimizer slot, and access to both in bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.tables import Combiner, Storage
from embexp.system.arrays import Rows
from embexp.tables.checkpointing import StreamedTable
from embexp.tables.optimizers import RowGroups
from embexp.tables.variables import (
    SINGLE,
    Precision,
    ReadableTable,
    RowVariables,
    TableVariable,
    empty,
    flags_of_rows,
    gather_rows,
    gathered,
    in_place,
    scatter_rows,
    variable,
    write_rows,
)


class EmbeddingTable(ReadableTable):
    """`rows` × `dim` float32 values and as many for each slot.

    The table's values start uninitialised, so that filling them (`write`) is the first time that their pages are
    touched: never two copies, never filled twice. Slots start with their initial value.

    The variables are created in the current graph. In a graph of TensorFlow 1, sessions hold the values: `write`,
    `read`, `blocks`, `digest` and `touched_rows` work only eagerly.

    Attributes:
        name: of the table; it becomes the key in checkpoints.
        variable: [rows, dim], float32 unless its `precision` is another.
        slots: by slot name, float32 [rows, dim], or [rows, 1] of `row_slots`.
        touched: uint8 [rows], 1 for each row that a training step looked up, a local variable in a graph of
            TensorFlow 1; None if the table is frozen.
        by_reference: the rows can be read again from their source, so no checkpoint holds them.
        groups: which rows move when, and how fast; None: all do, unless frozen.
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
        row_slots: Collection[str] = (),
        frozen: bool = False,
        by_reference: bool = False,
        initial_value: Callable[[], Any] | None = None,
        groups: RowGroups | None = None,
        precision: Precision = SINGLE,
    ) -> None:
        """Creates the variables.

        Args:
            rows: vocabulary size, at least 1.
            dim: width of a row, at least 1.
            slots: initial value of each slot, see `optimizers.slots_of`.
            row_slots: those with one number for each row.
            frozen: no step moves a row, so there are no slots and no `touched`.
            by_reference: leave the table out of checkpoints; only if frozen. In a graph of TensorFlow 1 its variable
                is then local: no `Saver` saves it, and every new session must fill it.
            initial_value: returns the variable's initial value, float32 [rows, dim]; None: uninitialised memory.
            groups: which rows move when, and how fast; None: all do, unless frozen.
            precision: how rows and slots are stored.

        Raises:
            ValueError: the arguments contradict each other.
        """
        if rows < 1 or dim < 1:
            raise ValueError(f"table {name!r}: rows ({rows}) and dim ({dim}) must be at least 1")
        if frozen and slots:
            raise ValueError(f"table {name!r} is frozen, so it can't have slots, got {sorted(slots)}")
        if by_reference and not frozen:
            raise ValueError(
                f"table {name!r} is kept by reference, so it must be frozen, or trained rows would be lost"
            )
        if frozen and groups is not None:
            raise ValueError(f"table {name!r} is frozen, so it can't have groups of rows")
        self.name, self.rows, self.dim, self.combiner = name, rows, dim, combiner
        self.frozen, self.by_reference, self.groups = frozen, by_reference, groups
        self.row_slots, self.precision = frozenset(row_slots), precision
        shape = [rows, dim]
        untouched = functools.partial(empty, shape, precision.rows)
        self.variable = variable(name, initial_value or untouched, shape, local=by_reference)
        self.slots = self.slot_variables(rows, slots or {})
        self.touched = None if frozen else flags_of_rows(name, rows, local=True)

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table, or of one slot: float32 [n, width]. Reading the variable whole would copy it."""
        return gather_rows(self._variable(slot), ids)

    def scatter(self, ids: Any, rows: Any, slot: str | None = None) -> None:
        """Assigns `rows` to the rows `ids`, which must not repeat."""
        scatter_rows(self._variable(slot), ids, rows)

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """Variables and values to feed each new session of a graph of TensorFlow 1; see `MappedTable.feeds`."""
        return [pair for each in (self.groups, self.shares) if each is not None for pair in each.feeds()]

    def fills(self, source: Rows) -> list[tuple[TableVariable, Rows]]:
        """The variable to fill, with all rows of `source`."""
        return [(TableVariable(self.name, self.variable), source)]

    def slot_fills(self, slots: Mapping[str, Rows]) -> list[tuple[TableVariable, Rows]]:
        """The slots to fill, each with its values from an earlier checkpoint."""
        return [(TableVariable(f"{self.name}/{slot}", self.slots[slot]), source) for slot, source in slots.items()]

    def checkpointed(self, slot: str | None = None) -> Any:
        """The table, or one slot, as a checkpoint holds it.

        In a graph of TensorFlow 1 this is the variable, which Estimators save themselves. Eagerly, TensorFlow would
        restore the variable with a second copy of its rows in memory.
        """
        variable = self._variable(slot)
        if not tf.executing_eagerly():
            return variable
        read, write = functools.partial(self.read, slot=slot), functools.partial(self.write, slot=slot)
        return StreamedTable(self, slot, [variable], read, write)

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns `values` [n, dim] float32 to the rows from `start`.

        Values that `arrays.can_be_taken_over` are copied once, into the table; others once more on the way.

        Raises:
            ValueError: the values' dtype or shape does not fit.
        """
        self.check_range(start, start + len(values))
        write_rows(self._variable(slot), self.name, start, values)

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32 [stop - start, dim]."""
        self.check_range(start, stop)
        return in_place(self.gather(tf.range(start, stop, dtype=tf.int64), slot))

    @property
    def row_variables(self) -> RowVariables:
        """One part, and its slots."""
        return RowVariables([self.variable], [], self.slots, self.touched)

    def _variable(self, slot: str | None) -> Any:
        return self.variable if slot is None else self.slots[slot]
