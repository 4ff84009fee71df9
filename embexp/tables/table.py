"""An embedding table in each of its layouts: one variable of rows, split, or kept in its file; in bounded memory.

A variable holds the rows and another one each slot of the optimizer. In a split table, frozen rows have no slots, and
may stay in their file, as the rows of a frozen table may.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.tables import Combiner, Storage
from embexp.system import arrays
from embexp.system.arrays import Rows, SomeRows
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
    variable_over,
    write_rows,
)

_ROWS_COMPARED = 1 << 20


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


class MappedTable(ReadableTable):
    """`rows` × `dim` values: rows of a memory-mapped file, and a small variable of rows that the file lacks.

    Lookups see a frozen `EmbeddingTable` that is kept by reference. Eagerly, TensorFlow uses the mapping itself. In a
    graph of TensorFlow 1 the variables are local, and each new session is fed the arrays that `feeds` returns, also
    without a copy. `read`, `blocks` and `digest` work in both.

    Attributes:
        touched: None.
        by_reference: True: no checkpoint holds it.
    """

    storage = Storage.MEMORY_MAP
    frozen = True
    by_reference = True
    touched = None
    take = gathered

    def __init__(
        self,
        name: str,
        mapping: np.ndarray,
        file_rows: np.ndarray | None,
        others: Rows,
        *,
        scales: np.ndarray | None = None,
        combiner: Combiner = Combiner.MEAN,
        precision: Precision = SINGLE,
    ) -> None:
        """Creates the variables; reads no row of the file.

        Args:
            mapping: [file rows, dim], C-contiguous, aligned to 64 bytes, of a file mapped copy-on-write (mode `c`), as
                `VectorSource.memory_map` returns it: as rows are stored by `precision`.
            file_rows: integers [rows], for each row of the table its row in the file, -1 where the file lacks it;
                None: the table is the file.
            others: the table's rows; only those that the file lacks are read, and copied. They are rounded to 16 bits
                as the others; next to int8, they are float32.
            scales: of int8, float32 [file rows]: what the numbers of a row are multiplied by.

        Raises:
            ValueError: TensorFlow can't use the mapping without a copy, or `file_rows` are not rows of it.
        """
        check_mapping(name, mapping, precision.rows)
        if scales is not None:
            check_scales(name, scales, len(mapping))
        if file_rows is not None:
            check_file_rows(name, file_rows, len(mapping))
        self.name, self.combiner = name, combiner
        self.rows, self.dim = len(mapping) if file_rows is None else len(file_rows), mapping.shape[1]
        self.slots: dict[str, Any] = {}
        self.precision = precision
        self._values = {"mapping": mapping} if scales is None else {"mapping": mapping, "scales": scales}
        if file_rows is None or _in_order(file_rows):
            self._values["mapping"] = mapping[: self.rows]
        else:
            lacking = np.flatnonzero(file_rows < 0)
            self._values["index"] = _index(file_rows, lacking, len(mapping))
            if lacking.size:
                kept = np.float32 if precision.rows == tf.int8 else mapping.dtype
                values = arrays.empty((lacking.size, self.dim), kept)
                values[:] = SomeRows(others, lacking).read(0, lacking.size)
                self._values["others"] = values
        self._variables = {
            part: variable_over(name if part == "mapping" else f"{name}/{part}", values)
            for part, values in self._values.items()
        }

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table: float32 [n, dim]; it has no slots."""
        if slot is not None:
            raise KeyError(slot)
        # Read, then gathered: the operation that does both would first copy the variable's memory.
        parts = {part: variable.read_value() for part, variable in self._variables.items()}

        def rows(part: str, places: Any) -> Any:
            return tf.cast(tf.gather(parts[part], places), tf.float32)

        places = ids if "index" not in parts else tf.gather(parts["index"], ids)
        of_file = places if "others" not in parts else tf.maximum(places, 0)
        in_file = rows("mapping", of_file)
        if "scales" in parts:
            in_file *= rows("scales", of_file)[:, None]
        if "others" not in parts:
            return in_file
        return tf.where(places[:, None] < 0, rows("others", tf.maximum(-1 - places, 0)), in_file)

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """Variables and values to feed each new session of a graph of TensorFlow 1.

        Feed each by `session.run(variable.initializer, {variable.initial_value: values})`.
        """
        return [(self._variables[part], values) for part, values in self._values.items()]

    def fills(self, source: Rows) -> list[tuple[TableVariable, Rows]]:
        """None: the rows are in the file, and in the values of `feeds`."""
        return []

    def slot_fills(self, slots: Mapping[str, Rows]) -> list[tuple[TableVariable, Rows]]:
        """None: a frozen table has no slots."""
        return []

    def checkpointed(self, slot: str | None = None) -> Any:
        """Raises ValueError: no checkpoint holds a table that is kept by reference."""
        raise ValueError(f"table {self.name!r} is kept by reference: no checkpoint holds it")

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim]; possibly a read-only view of the file."""
        self.check_range(start, stop)
        if slot is not None:
            raise KeyError(slot)
        mapping, scales, index = self._values["mapping"], self._values.get("scales"), self._values.get("index")
        if index is None:
            return arrays.widened(mapping[start:stop], None if scales is None else scales[start:stop])
        places = index[start:stop]
        lacking = places < 0
        of_file = np.where(lacking, 0, places)
        values = arrays.widened(mapping[of_file], None if scales is None else scales[of_file])
        if lacking.any():
            values[lacking] = self._values["others"][-1 - places[lacking]]
        return values


class SplitTable(ReadableTable):
    """`rows` × `dim` float32 values, some of them frozen.

    Lookups and the row engine see one table: each id is routed to its part, and rows are put together again before
    anything is computed from them, so the bits are those of an `EmbeddingTable`. Frozen rows are in a variable without
    slots, or in a mapped file. The other part has the rows that may move, in order, then frozen rows that the file
    lacks; slots have only the rows that may move.

    In a graph of TensorFlow 1, `feeds` returns what each new session must be fed; `read`, `blocks`, `digest` and
    `touched_rows` work only eagerly.

    Attributes:
        slots: by slot name, float32 [rows that may move, dim], or [rows that may move, 1] of `row_slots`.
        initial: initial value of each slot.
        touched: uint8 [rows], see `EmbeddingTable.touched`.
        frozen: False: some rows may move.
        by_reference: False: checkpoints hold all rows.
        fixed: variable of the frozen rows, float32 [n, dim].
        others: variable of the other rows, float32 [m, dim].
        index: variable, int32 or int64 [rows]: the row of `fixed`, or -1 - the row of `others`.
    """

    frozen = False
    by_reference = False

    def __init__(
        self,
        name: str,
        groups: RowGroups,
        dim: int,
        *,
        mapping: np.ndarray | None = None,
        file_rows: np.ndarray | None = None,
        combiner: Combiner = Combiner.MEAN,
        slots: Mapping[str, float] | None = None,
        row_slots: Collection[str] = (),
        precision: Precision = SINGLE,
    ) -> None:
        """Creates the variables; those that `fills` returns are uninitialised memory.

        Args:
            groups: which rows move when, and how fast; rows that never move are frozen.
            mapping: a file in which frozen rows stay, see `MappedTable`; None: they are in a variable.
            file_rows: integers [rows], the row of the file that is each row of the table, -1 where it has none.
            slots: initial value of each slot, see `optimizers.slots_of`.
            row_slots: those with one number for each row.
            precision: how rows and slots are stored, those in the file too.

        Raises:
            ValueError: there would be no frozen part, or the mapping can't be used as it is.
        """
        frozen = groups.frozen_rows()
        if mapping is not None:
            check_mapping(name, mapping, precision.rows)
            if file_rows is None or len(file_rows) != len(frozen) or mapping.shape[1] != dim:
                raise ValueError(f"table {name!r} is {len(frozen)} × {dim}, but the rows of its file don't fit")
            check_file_rows(name, file_rows, len(mapping))
        in_file = frozen.copy() if file_rows is None else frozen & (file_rows >= 0)
        fixed_rows, moving_rows = int(np.count_nonzero(in_file)), int(np.count_nonzero(~frozen))
        if moving_rows == 0 and in_file.all():  # of a part of a table; TensorFlow gathers from no variable of no rows
            in_file[0], fixed_rows = False, fixed_rows - 1
        if not fixed_rows:
            raise ValueError(f"table {name!r} is split, but none of its {len(frozen)} rows would be split off")
        self.name, self.rows, self.dim, self.combiner = name, len(frozen), dim, combiner
        self.storage = Storage.SPLIT if mapping is None else Storage.MEMORY_MAP
        self.groups, self.initial = groups, dict(slots or {})
        self._mapping, self._moving = mapping, moving_rows
        self.row_slots, self.precision = frozenset(row_slots), precision
        self._index, self._others_rows = split_index(frozen, in_file, file_rows)
        self.index = variable_over(f"{name}/index", self._index)
        if mapping is None:
            self.fixed = _empty(f"{name}/fixed", [fixed_rows, dim], precision.rows)
        else:
            self.fixed = variable_over(f"{name}/fixed", mapping)
        self.others = _empty(name, [len(self._others_rows), dim], precision.rows)
        self.slots = self.slot_variables(moving_rows, self.initial)
        self.touched = flags_of_rows(name, self.rows, local=True)

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table, or of one slot: float32 [n, dim]; only rows that may move have slots."""
        places = self._places(ids)
        if slot is not None:
            return gather_rows(self.slots[slot], -1 - places)
        others = gather_rows(self.others, tf.maximum(-1 - places, 0))
        return tf.where(places[:, None] < 0, others, self._gather_fixed(tf.maximum(places, 0)))

    def scatter(self, ids: Any, rows: Any, slot: str | None = None) -> Any:
        """Assigns `rows` to the rows `ids`, which must not repeat and must be rows that may move."""
        return scatter_rows(self.others if slot is None else self.slots[slot], -1 - self._places(ids), rows)

    @property
    def row_variables(self) -> RowVariables:
        """Two parts."""
        return RowVariables([self.others, self.fixed], [self.index], self.slots, self.touched)

    def scatter_fixed(self, ids: Any, rows: Any) -> Any:
        """Assigns `rows` to the frozen rows `ids`, which must not repeat or stay in a file."""
        return scatter_rows(self.fixed, self._places(ids), rows)

    def fills(self, source: Rows) -> list[tuple[TableVariable, Rows]]:
        """The variables to fill, each with its rows of `source`."""
        filled: list[tuple[TableVariable, Rows]]
        filled = [(TableVariable(self.name, self.others), SomeRows(source, self._others_rows))]
        if self._mapping is None:
            rows = np.flatnonzero(self._index >= 0).astype(self._index.dtype)
            filled.append((TableVariable(f"{self.name}/fixed", self.fixed), SomeRows(source, rows)))
        return filled

    def slot_fills(self, slots: Mapping[str, Rows]) -> list[tuple[TableVariable, Rows]]:
        """The slots to fill, each with the values of the rows that may move."""
        rows = self._others_rows[: self._moving]
        return [
            (TableVariable(f"{self.name}/{slot}", self.slots[slot]), SomeRows(source, rows))
            for slot, source in slots.items()
        ]

    def checkpointed(self, slot: str | None = None) -> StreamedTable:
        """The table, or one slot, as a checkpoint holds it: all rows in one variable."""
        covered = [self.others, self.fixed] if slot is None else [self.slots[slot]]
        rows = SplitRows(self, slot)
        return StreamedTable(self, slot, covered, rows.read, rows.write)

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """Variables and values to feed each new session of a graph of TensorFlow 1; see `MappedTable.feeds`."""
        fed = [(self.index, self._index), *self.groups.feeds()]
        if self.shares is not None:
            fed += self.shares.feeds()
        if self._mapping is not None:
            fed.append((self.fixed, self._mapping))
        return fed

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers of the table, or of one slot, float32; see `read`."""
        return SplitRows(self, slot).take(numbers)

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32; slots of frozen rows have their initial value."""
        self.check_range(start, stop)
        return SplitRows(self, slot).read(start, stop)

    @property
    def mapped(self) -> bool:
        """Whether frozen rows stay in a file."""
        return self._mapping is not None

    def in_fixed(self, start: int, stop: int) -> np.ndarray:
        """Bool [stop - start]: which of the rows [start, stop) are in `fixed`."""
        fixed: np.ndarray = self._index[start:stop] >= 0
        return fixed

    def moving(self, numbers: np.ndarray) -> np.ndarray:
        """Bool [n]: which of the rows with these numbers may move, and so have slots."""
        places: np.ndarray = -1 - self._index[numbers]
        return (places >= 0) & (places < self._moving)

    def _places(self, ids: Any) -> Any:
        return tf.gather(self.index.read_value(), ids)

    def _gather_fixed(self, places: Any) -> Any:
        if self._mapping is None:
            return gather_rows(self.fixed, places)
        return tf.cast(tf.gather(self.fixed.read_value(), places), tf.float32)


def _empty(name: str, shape: list[int], dtype: tf.DType) -> Any:
    return variable(name, functools.partial(empty, shape, dtype), shape)


def split_index(
    frozen: np.ndarray, fixed: np.ndarray | None = None, file_rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Routes the rows of a table to its two parts, `fixed` and `others`.

    Args:
        frozen: bool [rows], which rows never move.
        fixed: bool [rows], which of them are in `fixed`; None: all.
        file_rows: integers [rows], the row of `fixed` of each row there; None: `fixed` has no others, in order.

    Returns:
        The index, int32 or int64 [rows]: the row of `fixed`, or -1 - the row of `others`. And the numbers of the rows
        in `others`, in order: those that may move come first.
    """
    fixed = frozen if fixed is None else fixed
    most = len(frozen) if file_rows is None else max(len(frozen), int(file_rows.max()) + 1)
    width = np.int32 if most <= np.iinfo(np.int32).max else np.int64
    index = arrays.empty(frozen.shape, width)
    numbers = np.flatnonzero(fixed)
    index[numbers] = np.arange(len(numbers), dtype=width) if file_rows is None else file_rows[numbers]
    others = np.concatenate([np.flatnonzero(~frozen), np.flatnonzero(frozen & ~fixed)]).astype(width)
    index[others] = -1 - np.arange(len(others), dtype=width)
    return index, others


class SplitRows:
    """The rows of a split table, or of one slot: in a graph of TensorFlow 1, those of the default session."""

    def __init__(self, table: SplitTable, slot: str | None) -> None:
        """Creates the operations that read and write, in a graph of TensorFlow 1 as part of it."""
        self._table, self._slot = table, slot
        ids, rows = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, table.width(slot)], tf.float32)
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
        values = np.full((len(numbers), self._table.width(self._slot)), self._table.initial[self._slot], np.float32)
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
                f"frozen rows of table {self._table.name} in the checkpoint differ from those of its pretrained file"
            )


def _function(compute: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
    """A computation as a function of arrays: eager, or in the default session at the time of the call."""
    if tf.executing_eagerly():

        def eagerly(*arrays: np.ndarray) -> Any:
            result = compute(*(tf.constant(array) for array in arrays))
            return None if result is None else in_place(result)

        return eagerly
    placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
    fetched = compute(*placeholders)
    return lambda *arrays: tf.compat.v1.get_default_session().run(fetched, dict(zip(placeholders, arrays, strict=True)))


def check_mapping(name: str, mapping: np.ndarray, dtype: tf.DType) -> None:
    """Raises ValueError unless TensorFlow can use the mapping in place, as a table of this type."""
    fits = mapping.dtype == dtype.as_numpy_dtype and mapping.ndim == 2 and mapping.size > 0
    if not (fits and arrays.can_be_taken_over(mapping)):
        raise ValueError(
            f"table {name!r}: found an array of {mapping.dtype} {mapping.shape}; to be used in place, it must be"
            f" a C-contiguous {dtype.name} matrix, aligned to {arrays.ALIGNMENT} bytes, and writeable (map the file"
            " with mode 'c')"
        )


def check_scales(name: str, scales: np.ndarray, rows: int) -> None:
    """Raises ValueError unless TensorFlow can use these scales of a mapping's rows in place."""
    if scales.dtype != np.float32 or scales.shape != (rows,) or not arrays.can_be_taken_over(scales):
        raise ValueError(
            f"table {name!r}: found scales of {scales.dtype} {scales.shape}, expected float32 ({rows},), aligned to"
            f" {arrays.ALIGNMENT} bytes, and writeable"
        )


def check_file_rows(name: str, file_rows: np.ndarray, count: int) -> None:
    """Raises ValueError unless these are rows of a file with `count` rows, or -1."""
    if not len(file_rows) or file_rows.min() < -1 or file_rows.max() >= count:
        raise ValueError(
            f"table {name!r}: file row numbers must be 0 to {count - 1}, or -1 for none, with at least one row"
        )


def _in_order(file_rows: np.ndarray) -> bool:
    """Whether the table is the file's first rows, in order; compared in pieces, to save memory."""
    return all(
        np.array_equal(
            file_rows[start : start + _ROWS_COMPARED], np.arange(start, min(start + _ROWS_COMPARED, len(file_rows)))
        )
        for start in range(0, len(file_rows), _ROWS_COMPARED)
    )


def _index(file_rows: np.ndarray, lacking: np.ndarray, count: int) -> np.ndarray:
    """For each row its row in the file, or -1 - its number among the lacking rows."""
    width = np.int32 if max(count, lacking.size) <= np.iinfo(np.int32).max else np.int64
    index = arrays.empty((len(file_rows),), width)
    index[:] = file_rows
    index[lacking] = -1 - np.arange(lacking.size, dtype=width)
    return index
