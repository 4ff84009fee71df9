"""A frozen table whose rows stay in a mapped file: no copy of them, and one set of pages for all processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.tables import Combiner, Storage
from embexp.system import arrays
from embexp.system.rows import Rows, SomeRows
from embexp.tables.parts import TablePart
from embexp.tables.reading import ReadableTable, gathered
from embexp.tables.variables import variable_over

_ROWS_LOOKED_AT = 1 << 20


class MappedTable(ReadableTable):
    """`rows` × `dim` float32 values: rows of a mapped file, and a small variable of those that it lacks.

    To lookups it is an `EmbeddingTable` that is frozen and kept by reference. Eagerly TensorFlow is handed the mapping
    itself. In a graph of TensorFlow 1 the variables are local ones, and `feeds` has what each new session is to
    be fed; sessions take such arrays without a copy too. `read`, `blocks` and `digest` work in either.

    Attributes:
        name: of the table.
        rows: vocabulary size.
        dim: width of a row.
        combiner: how several rows of one example become one vector.
        slots: none.
        touched: None: no step moves a row.
        frozen: True.
        by_reference: True: no checkpoint holds it.
        storage: how the rows are kept.
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
        combiner: Combiner = Combiner.MEAN,
    ) -> None:
        """Makes the variables; looks at no row of the file.

        Args:
            name: of the table.
            mapping: float32 [file rows, dim], C-contiguous, aligned to 64 bytes, of a file mapped for writing in
                private (mode `c`), as `VectorSource.memory_map` gives it.
            file_rows: integers [rows], the row of the file that is each row of the table, -1 where it has none;
                None: the table is the file.
            others: the table's rows; only those that the file lacks are read, and kept.
            combiner: how several rows of one example become one vector.

        Raises:
            ValueError: the mapping can't be taken over without a copy, or `file_rows` asks for what it doesn't have.
        """
        check_mapping(name, mapping)
        if file_rows is not None:
            check_file_rows(name, file_rows, len(mapping))
        self.name, self.combiner = name, combiner
        self.rows, self.dim = len(mapping) if file_rows is None else len(file_rows), mapping.shape[1]
        self.slots: dict[str, Any] = {}
        self._values: dict[str, np.ndarray] = {}
        if file_rows is None or _in_order(file_rows):
            self._values["mapping"] = mapping[: self.rows]
        else:
            lacking = np.flatnonzero(file_rows < 0)
            self._values = {"mapping": mapping, "index": _index(file_rows, lacking, len(mapping))}
            if lacking.size:
                self._values["others"] = SomeRows(others, lacking).read(0, lacking.size)
        self._variables = {
            part: variable_over(name if part == "mapping" else f"{name}/{part}", values)
            for part, values in self._values.items()
        }

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table: float32 [n, dim]; it has no slots."""
        if slot is not None:
            raise KeyError(slot)
        # Read, then gathered: the one operation that does both first makes a variable's memory its own, by a copy.
        parts = {part: variable.read_value() for part, variable in self._variables.items()}
        if "index" not in parts:
            return tf.gather(parts["mapping"], ids)
        places = tf.gather(parts["index"], ids)
        if "others" not in parts:
            return tf.gather(parts["mapping"], places)
        found = tf.gather(parts["mapping"], tf.maximum(places, 0))
        return tf.where(places[:, None] < 0, tf.gather(parts["others"], tf.maximum(-1 - places, 0)), found)

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """The table's variables and their values: what a new session of a graph of TensorFlow 1 is to be fed.

        That is `session.run(variable.initializer, {variable.initial_value: values})`, for all of them together.
        """
        return [(self._variables[part], values) for part, values in self._values.items()]

    def fills(self, source: Rows) -> list[tuple[TablePart, Rows]]:
        """Nothing is to be filled: the rows are in their file, and in what `feeds` has."""
        return []

    def slot_fills(self, slots: Mapping[str, Rows]) -> list[tuple[TablePart, Rows]]:
        """Nothing: a table that no step moves has no slots."""
        return []

    def checkpointed(self, slot: str | None = None) -> Any:
        """Refuses: no checkpoint holds a table that is kept by reference."""
        raise ValueError(f"table {self.name!r} is kept by reference: no checkpoint holds it")

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim]; may be a view of the file, so not to be written to."""
        self.check_range(start, stop)
        if slot is not None:
            raise KeyError(slot)
        mapping, index = self._values["mapping"], self._values.get("index")
        if index is None:
            return mapping[start:stop]
        places = index[start:stop]
        lacking = places < 0
        values = mapping[np.where(lacking, 0, places)]
        if lacking.any():
            values[lacking] = self._values["others"][-1 - places[lacking]]
        return values


def check_mapping(name: str, mapping: np.ndarray) -> None:
    """Raises ValueError unless TensorFlow can use the mapping where it lies."""
    fits = mapping.dtype == np.float32 and mapping.ndim == 2 and mapping.size > 0
    if not (fits and arrays.can_be_taken_over(mapping)):
        raise ValueError(
            f"table {name!r}: found an array of {mapping.dtype} {mapping.shape}; one that is to be used where it lies"
            f" has rows of float32, one behind the other, begins at a multiple of {arrays.ALIGNMENT} bytes, and is"
            " writeable (a file is mapped with mode 'c')"
        )


def check_file_rows(name: str, file_rows: np.ndarray, count: int) -> None:
    """Raises ValueError unless these are rows of a file that has `count`, or -1."""
    if not len(file_rows) or file_rows.min() < -1 or file_rows.max() >= count:
        raise ValueError(f"table {name!r}: rows of the file are 0 to {count - 1}, or -1 for none, at least one of them")


def _in_order(file_rows: np.ndarray) -> bool:
    """Whether the table is the file's first rows, one for one; looked at in pieces, as there may be many."""
    return all(
        np.array_equal(
            file_rows[start : start + _ROWS_LOOKED_AT], np.arange(start, min(start + _ROWS_LOOKED_AT, len(file_rows)))
        )
        for start in range(0, len(file_rows), _ROWS_LOOKED_AT)
    )


def _index(file_rows: np.ndarray, lacking: np.ndarray, count: int) -> np.ndarray:
    """Where each row is: its row in the file, or -1 - its number among the lacking ones."""
    width = np.int32 if max(count, lacking.size) <= np.iinfo(np.int32).max else np.int64
    index = arrays.empty((len(file_rows),), width)
    index[:] = file_rows
    index[lacking] = -1 - np.arange(lacking.size, dtype=width)
    return index
