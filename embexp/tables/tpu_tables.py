"""Tables as a TPU holds them: each in one part, or in two where some of its rows never move.

A TPU looks rows up in one table at a time and applies that table's optimizer to all that were looked up. So rows that
never move live in a table of their own, with plain SGD, which is only ever sent gradients of zero: w - lr * 0 is w to
the last bit, which a learning rate of 0 does not give (-0.0 becomes 0.0, an infinite gradient NaN). Only numbers too
small to be normal would become 0, as arithmetic flushes them; so such rows are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.errors import RunError
from embexp.specs.optimizers import SGD, TableOptimizer
from embexp.specs.tables import Combiner, Storage
from embexp.system import arrays
from embexp.system.rows import Rows, SomeRows
from embexp.tables import optimizers as rules
from embexp.tables.parts import TablePart, WritableRows
from embexp.tables.reading import ReadableTable
from embexp.tables.streamed import RowRanges, StreamedTable, streamed
from embexp.tables.variables import variable, variable_over

STILL = SGD(learning_rate=1.0)
"""The optimizer of rows that never move: their gradients are zeros."""


@dataclass(frozen=True, eq=False)
class TPUPart:
    """A table of a TPU: some rows of a table, or all.

    Attributes:
        name: of the TPU's table.
        rows: how many.
        still: none ever moves.
        numbers: which rows of the table they are, rising; None: all.
    """

    name: str
    rows: int
    still: bool
    numbers: np.ndarray | None = None


class TPUTable(ReadableTable):
    """`rows` × `dim` float32 values and their slots, on a TPU; what reads them asks for what its hosts' memory has.

    `fresh` is called before anything is read: it brings what the TPU has learned into the variables of its hosts.

    Attributes:
        name: of the table.
        rows: vocabulary size.
        dim: width of a row.
        combiner: how several rows of one example become one vector.
        optimizer: of the rows that may move; None: none may.
        frozen: no step moves a row.
        by_reference: the rows can be had again from where they came, so no checkpoint holds them.
        parts: the TPU's tables.
        source: first values.
        storage: how the rows are kept.
        slots: the optimizer's slots, with their first values.
        chunk_bytes: largest piece of first values that is read at once.
    """

    def __init__(
        self,
        name: str,
        source: Rows,
        rows: int,
        dim: int,
        *,
        combiner: Combiner = Combiner.MEAN,
        optimizer: TableOptimizer | None,
        still: np.ndarray | None = None,
        by_reference: bool = False,
        hosts: int = 1,
        chunk_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """Says what the TPU is to hold; only an index and a byte per row are made, in this machine's memory.

        Args:
            name: of the table.
            source: its first values.
            rows: vocabulary size.
            dim: width of a row.
            combiner: how several rows of one example become one vector.
            optimizer: of the rows that may move; None: none may.
            still: bool [rows], those that never move; None: all are alike.
            by_reference: leave the table out of checkpoints; only if none may move.
            hosts: machines over which the TPU spreads its tables.
            chunk_bytes: largest piece of first values that is read at once.

        Raises:
            ValueError: the arguments contradict each other.
        """
        if optimizer is None and still is not None:
            raise ValueError(f"table {name!r} has no optimizer, so all its rows stay as they are")
        if by_reference and optimizer is not None:
            raise ValueError(f"table {name!r} is kept by reference, so it must be frozen: its rows would be lost")
        if still is not None and (still.dtype != np.bool_ or still.shape != (rows,)):
            raise ValueError(f"table {name!r}: still is {still.dtype} {still.shape}, expected bool ({rows},)")
        if still is not None and not 0 < np.count_nonzero(still) < rows:
            raise ValueError(f"table {name!r} is split only where some rows may move and some may not")
        self.name, self.source, self.rows, self.dim = name, source, rows, dim
        self.combiner, self.optimizer, self.by_reference = combiner, optimizer, by_reference
        self.chunk_bytes = chunk_bytes
        self.frozen = optimizer is None
        self.index: Any = None
        self.parts: tuple[TPUPart, ...] = (TPUPart(name, rows, still=self.frozen),)
        self.storage = "sharded" if hosts > 1 else Storage.VARIABLE.value
        if still is not None:
            self.storage = Storage.SPLIT.value
            moving, fixed = np.flatnonzero(~still), np.flatnonzero(still)
            self.parts = (
                TPUPart(name, len(moving), False, moving),
                TPUPart(f"{name}/fixed", len(fixed), True, fixed),
            )
            self._places = _index(still)
            self.index = variable_over(f"{name}/index", self._places)
        self.slots = {} if optimizer is None else rules.slots_of(optimizer)
        self._values: dict[str, Mapping[str, Sequence[Any]]] = {}
        self._fresh: Callable[[], object] = lambda: None
        self.touched = None if self.frozen else variable(f"{name}/touched", lambda: tf.zeros([rows], tf.uint8), [rows])

    def rows_of(self, part: TPUPart) -> Rows:
        """First values of a part's rows."""
        rows = self.source if part.numbers is None else SomeRows(self.source, part.numbers)
        return _Normal(self.name, rows) if part.still else rows

    def attach(self, values: Mapping[str, Mapping[str, Sequence[Any]]], fresh: Callable[[], object]) -> None:
        """Says where the values are, once they are.

        Args:
            values: by part, "parameters" and each slot: a variable for each host that has any of its rows, in order.
            fresh: brings them up to date.
        """
        self._values, self._fresh = {part.name: values[part.name] for part in self.parts}, fresh

    def mark_touched(self, ids: Any) -> None:
        """Remembers that training looked these rows up to move them; of those that never move nothing is kept."""
        if self.index is not None:
            ids = tf.boolean_mask(ids, tf.gather(self.index.read_value(), ids) < 0)
        super().mark_touched(ids)

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Rows of these numbers, rising, float32 [n, dim]."""
        self._fresh()
        return self._taken(numbers, None)

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32; slots of rows that never move are as at first."""
        self.check_range(start, stop)
        self._fresh()
        return self._taken(np.arange(start, stop), slot)

    def fills(self, source: Rows) -> list[tuple[TablePart, Rows]]:
        """Nothing is to be filled: a TPU's backend makes the variables with `source`."""
        return []

    def slot_fills(self, slots: Mapping[str, Rows]) -> list[tuple[WritableRows, Rows]]:
        """What is to be filled with values of slots, in the variables of the hosts, and to be loaded afterwards."""
        return [(_Slot(self, slot), source) for slot, source in slots.items()]

    def checkpointed(self, slot: str | None = None) -> StreamedTable:
        """What a checkpoint holds of the table, or of one slot.

        What is restored stands in the variables of the hosts: `TPUBackend.load` brings it into the TPU.
        """
        return streamed(self, slot, self.variables(slot), RowRanges(self, slot))

    def _taken(self, numbers: np.ndarray, slot: str | None) -> np.ndarray:
        if self.index is None:
            return self._read(self.parts[0], numbers, slot)
        places = self._places[numbers]
        values = arrays.empty((len(numbers), self.dim), np.float32)
        moving = places < 0
        values[moving] = self._read(self.parts[0], -1 - places[moving], slot)
        if slot is None:
            values[~moving] = self._read(self.parts[1], places[~moving], None)
        else:
            values[~moving] = self.slots[slot]
        return values

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns float32 [n, dim] to the rows from `start`, in the variables of the hosts; to be loaded afterwards.

        Of a slot, what stands for rows that never move is not looked at.
        """
        stop = start + len(values)
        for part in self.parts:
            if slot is not None and part.still:
                continue
            low, high, own = start, stop, values
            if part.numbers is not None:
                low, high = (int(place) for place in np.searchsorted(part.numbers, (start, stop)))
                own = values[part.numbers[low:high] - start]
            first = 0
            for shard in self._values[part.name][slot or "parameters"]:
                last = first + int(shard.shape[0])
                begin, end = max(low, first), min(high, last)
                if begin < end:
                    # The TPU reads its variables whole, and so does `_read`.
                    TablePart(self.name, shard, read_whole=True).write(begin - first, own[begin - low : end - low])
                first = last

    def variables(self, slot: str | None = None) -> list[Any]:
        """The variables of the hosts that hold the table, or one slot."""
        return [
            shard
            for part in self.parts
            if slot is None or not part.still
            for shard in self._values[part.name][slot or "parameters"]
        ]

    def _read(self, part: TPUPart, numbers: np.ndarray, slot: str | None) -> np.ndarray:
        """Some rows of a part, whose numbers rise."""
        values = arrays.empty((len(numbers), self.dim), np.float32)
        first = 0
        for shard in self._values[part.name][slot or "parameters"]:
            last = first + int(shard.shape[0])
            low, high = np.searchsorted(numbers, (first, last))
            if high > low:
                values[low:high] = tf.gather(shard.read_value(), numbers[low:high] - first).numpy()
            first = last
        return values


@dataclass(frozen=True)
class _Normal:
    """Rows that never move, found to be such that a TPU keeps them."""

    table: str
    source: Rows

    @property
    def rows(self) -> int:
        return self.source.rows

    @property
    def dim(self) -> int:
        return self.source.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        values = self.source.read(start, stop)
        if ((np.abs(values) < np.finfo(np.float32).tiny) & (values != 0)).any():
            raise RunError(
                f"table {self.table!r}: rows that are to stay as they are hold numbers below"
                f" {np.finfo(np.float32).tiny:.2g} that are not 0; a TPU makes 0 of them as soon as it touches a row."
                " Set them to 0 in the pretrained file, or set strategy=cpu"
            )
        return values


@dataclass(frozen=True)
class _Slot:
    """A slot of all rows of a table, to be written."""

    table: TPUTable
    slot: str

    @property
    def name(self) -> str:
        return f"{self.table.name}/{self.slot}"

    @property
    def rows(self) -> int:
        return self.table.rows

    @property
    def dim(self) -> int:
        return self.table.dim

    def write(self, start: int, values: np.ndarray) -> None:
        self.table.write(start, values, self.slot)


def _index(still: np.ndarray) -> np.ndarray:
    """Where each row is: its row in the part that never moves, or -1 - its row in the other."""
    width = np.int32 if len(still) <= np.iinfo(np.int32).max else np.int64
    index = arrays.empty(still.shape, width)
    index[still] = np.arange(np.count_nonzero(still), dtype=width)
    index[~still] = -1 - np.arange(np.count_nonzero(~still), dtype=width)
    return index
