"""Tables that each worker of a cluster holds whole: mirrored ones, whose copies have the same bits at any time.

A step looks up a worker's own copy. The ids and the summed gradients of all workers' parts of the batch go to all
workers, and each adds them in the order of the workers, and of the ids of each. So all copies move alike. Worker 0
reads its own copy for checkpoints, digests and rankings, and tells the others what it assigns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import tensorflow as tf

from embexp.initialization import filling
from embexp.initialization.filling import TablePlan
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Feature, Storage
from embexp.strategies.cluster.control import Leader
from embexp.system.arrays import MappableRows, Rows
from embexp.tables import inputs, row_updates
from embexp.tables.checkpointing import StreamedTable
from embexp.tables.inputs import EveryRow, Occurrences
from embexp.tables.row_engine import RowEngine
from embexp.tables.row_updates import Distinct, MovingTable
from embexp.tables.table import EmbeddingTable
from embexp.tables.variables import ReadableTable, TableVariable


class MirroredTable(ReadableTable):
    """A table of which this worker has a copy. What worker 0 assigns, it assigns on all workers.

    Attributes:
        own: the copy, a table.
        plan: of the table.
        slots: names of the slots, each with the variable of this worker.
    """

    storage = Storage.MIRRORED

    def __init__(self, plan: TablePlan, leader: Leader | None) -> None:
        """Makes the copy; it is not filled.

        Args:
            leader: tells the other workers; None: this is one of them.
        """
        self.name, self.rows, self.dim = plan.name, plan.source.rows, plan.source.dim
        self.combiner, self.by_reference, self.frozen = plan.combiner, plan.by_reference, plan.optimizer is None
        self.precision, self.plan, self._leader = plan.precision, plan, leader
        self.own = cast(MovingTable, filling.make_tables({plan.name: plan})[plan.name])  # a mapped one never moves
        self.slots, self.row_slots, self.touched = self.own.slots, self.own.row_slots, self.own.touched

    def fills(self, source: Rows) -> list[tuple[TableVariable, Rows]]:
        """The variables of this worker, with their rows of `source`."""
        return list(self.own.fills(source))

    def slot_fills(self, slots: Mapping[str, MappableRows]) -> list[tuple[TableVariable, Rows]]:
        """The slots of this worker, each with its values from an earlier checkpoint."""
        return list(self.own.slot_fills(slots))

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """Nothing: only graphs of TensorFlow 1 are fed."""
        return []

    def checkpointed(self, slot: str | None = None) -> Any:
        """The table, or one slot, as a checkpoint holds it."""
        read, write = partial(self.read, slot=slot), partial(self.write, slot=slot)
        return StreamedTable(self, slot, self.own.checkpointed(slot).covered, read, write)

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, float32 [stop - start, width]."""
        return self.own.read(start, stop, slot)

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers of the table, or of one slot, float32 [n, width]."""
        return self.own.take(numbers, slot)

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns float32 [n, width] to the rows from `start`, on all workers.

        Raises:
            ValueError: the values' dtype or shape does not fit, or rows that can't be assigned would change.
        """
        self.write_own(start, values, slot)
        if self._leader is not None:
            head = {"command": "write", "table": self.name, "slot": slot, "start": start}
            self._leader.tell(head, [np.ascontiguousarray(values)])
            if wrong := [reply["wrong"] for reply in self._leader.replies() if "wrong" in reply]:
                raise ValueError(wrong[0])

    def write_own(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns float32 [n, width] to the rows of this worker's copy from `start`."""
        self.own.checkpointed(slot).assign(start, values)

    def differing(self) -> list[int]:
        """The workers whose copies do not have the bits of that of worker 0, which calls this."""
        if self._leader is None:
            raise RuntimeError(f"table {self.name!r}: only worker 0 compares copies")
        self._leader.tell({"command": "digest", "table": self.name})
        own = self.digest()
        return [worker for worker, reply in enumerate(self._leader.replies(), 1) if reply["digest"] != own]


class CopiedRows:
    """Looks up and moves the copies of a worker, for its backend."""

    def __init__(
        self,
        tables: Mapping[str, MirroredTable],
        optimizers: Mapping[str, TableOptimizer],
        *,
        step: Any,
        total_steps: int,
    ) -> None:
        """Makes the engine that moves rows; see `RowEngine`."""
        self._tables = dict(tables)
        own = {name: table.own for name, table in tables.items() if not table.frozen}
        plain = {name: Feature(table=name) for name in own}
        self._engine = RowEngine(own, plain, optimizers, step=step, total_steps=total_steps)

    def moved_whole(self, table: str, read: Mapping[str, Occurrences]) -> bool:
        """Whether a training step looks up all rows of a table: the candidates of a knowledge graph.

        Args:
            table: one that is not frozen.
            read: the occurrences of the table's features.
        """
        return row_updates.reads_all(self._tables[table].own, read)

    def lookups(
        self, table: str, read: Mapping[str, Occurrences], distinct: Distinct | None
    ) -> dict[str, tuple[Any, Any]]:
        """By feature of a table rows, and the position in them of each occurrence, or None: in order.

        Args:
            distinct: the distinct ids; None: none are needed.
        """
        own = self._tables[table].own
        if distinct is not None:
            rows = own.gather(distinct.ids)
            return {feature: (rows, distinct.positions[each.source]) for feature, each in read.items()}
        whole = isinstance(own, EmbeddingTable) and not own.frozen and own.dtype() == tf.float32
        if whole and row_updates.reads_all(own, read):
            rows = row_updates.gather_all(own, read)
            return {feature: (rows, None if each.every_row else each.ids) for feature, each in read.items()}
        found = {}
        for feature, each in read.items():
            with tf.control_dependencies([inputs.check(feature, table, own.rows, each.ids)]):
                found[feature] = (own.gather(tf.identity(each.ids)), None)
        return found

    def move(self, ids: Mapping[str, Any], gradients: Mapping[str, Any], wholes: Mapping[str, Any]) -> None:
        """Moves the rows of all tables that are not frozen.

        Args:
            ids: by table, integers [m], those of all workers, one after the other.
            gradients: by the same tables, float32 [m, dim].
            wholes: by other tables, the gradients of all rows, float32 [rows, dim].
        """
        every = {name: EveryRow(tf.range(self._tables[name].rows)[None]) for name in wholes}
        self._engine.enqueue({**ids, **every}, training=True)
        self._engine.activations()
        self._engine.apply_gradients({**gradients, **{name: each[None] for name, each in wholes.items()}})
