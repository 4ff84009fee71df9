"""A frozen table whose rows stay in a memory-mapped file: no copy, and one set of pages for all processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.tables import Combiner, Storage
from embexp.system import arrays
from embexp.system.arrays import Rows, SomeRows
from embexp.tables.reading import ReadableTable, gathered
from embexp.tables.variables import TableVariable, variable_over

_ROWS_COMPARED = 1 << 20


class MappedTable(ReadableTable):
    """`rows` × `dim` float32 values: rows of a memory-mapped file, and a small variable of rows that the file lacks.

    Lookups see a frozen `EmbeddingTable` that is kept by reference. Eagerly, TensorFlow uses the mapping itself. In a
    graph of TensorFlow 1 the variables are local, and each new session is fed the arrays that `feeds` returns, also
    without a copy. `read`, `blocks` and `digest` work in both.

    Attributes:
        dim: width of a row.
        combiner: how several rows of one example become one vector.
        touched: None.
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
        """Creates the variables; reads no row of the file.

        Args:
            mapping: float32 [file rows, dim], C-contiguous, aligned to 64 bytes, of a file mapped copy-on-write (mode
                `c`), as `VectorSource.memory_map` returns it.
            file_rows: integers [rows], for each row of the table its row in the file, -1 where the file lacks it;
                None: the table is the file.
            others: the table's rows; only those that the file lacks are read, and copied.
            combiner: how several rows of one example become one vector.

        Raises:
            ValueError: TensorFlow can't use the mapping without a copy, or `file_rows` are not rows of it.
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
        # Read, then gathered: the operation that does both would first copy the variable's memory.
        parts = {part: variable.read_value() for part, variable in self._variables.items()}
        if "index" not in parts:
            return tf.gather(parts["mapping"], ids)
        places = tf.gather(parts["index"], ids)
        if "others" not in parts:
            return tf.gather(parts["mapping"], places)
        in_file = tf.gather(parts["mapping"], tf.maximum(places, 0))
        return tf.where(places[:, None] < 0, tf.gather(parts["others"], tf.maximum(-1 - places, 0)), in_file)

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
    """Raises ValueError unless TensorFlow can use the mapping in place."""
    fits = mapping.dtype == np.float32 and mapping.ndim == 2 and mapping.size > 0
    if not (fits and arrays.can_be_taken_over(mapping)):
        raise ValueError(
            f"table {name!r}: found an array of {mapping.dtype} {mapping.shape}; to be used in place, it must be"
            f" a C-contiguous float32 matrix, aligned to {arrays.ALIGNMENT} bytes, and writeable (map the file with"
            " mode 'c')"
        )


def check_file_rows(name: str, file_rows: np.ndarray, count: int) -> None:
    """Raises ValueError unless these are rows of a file with `count` rows, or -1."""
    if not len(file_rows) or file_rows.min() < -1 or file_rows.max() >= count:
        raise ValueError(f"table {name!r}: rows of the file are 0 to {count - 1}, or -1 for none, at least one of them")


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
