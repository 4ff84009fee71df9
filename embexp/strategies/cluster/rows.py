"""Tables whose rows are shared by workers: what each holds, the backend of its steps, and the whole table as read.

Each worker has a table of its own rows with their slots, and a row engine that moves them. In a step it asks the
owners for the rows of its part of the batch, and sends them the gradients, summed over its part. An owner adds what
the workers send in the order of the workers, and moves each row once.

Mirrored tables are held whole by each worker, with the same bits at any time. A step looks up a worker's own copy.
The ids and the summed gradients of all workers' parts of the batch go to all workers, and each adds them in the order
of the workers, and of the ids of each. So all copies move alike. Worker 0 reads its own copy for checkpoints, digests
and rankings, and tells the others what it assigns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import tensorflow as tf

from embexp.initialization import filling
from embexp.initialization.filling import TablePlan
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Feature, Storage
from embexp.strategies.cluster.control import Leader
from embexp.strategies.cluster.exchange import Asked, Exchange
from embexp.strategies.cluster.partition import OwnRows, Partition
from embexp.system.arrays import MappableRows, Rows
from embexp.tables import fused_rows, inputs, row_updates
from embexp.tables.checkpointing import StreamedTable, Together
from embexp.tables.inputs import EveryRow, Occurrences, without_autograph
from embexp.tables.row_engine import RowEngine, rows_between
from embexp.tables.row_updates import Distinct, MovingTable, distinct_ids
from embexp.tables.table import EmbeddingTable
from embexp.tables.variables import ReadableTable, TableVariable, TouchedRows
from embexp.training.one_vs_all import Part


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


class ShardedTable(ReadableTable):
    """A table of which each worker has some rows. Worker 0 reads and writes all of them; the others only their own.

    Attributes:
        own: the rows of this worker, a table.
        plan: of these rows.
        partition: who owns which rows.
        slots: names of the slots, each with the variable of this worker.
        together: of worker 0, has all workers write and read their rows of checkpoints.
    """

    storage = "sharded"

    def __init__(self, plan: TablePlan, partition: Partition, worker: int, leader: Leader | None) -> None:
        """Makes this worker's rows; they are not filled.

        Args:
            leader: asks the other workers; None: this is one of them.
        """
        self.name, self.rows, self.dim = plan.name, plan.source.rows, plan.source.dim
        self.combiner, self.by_reference, self.frozen = plan.combiner, plan.by_reference, plan.optimizer is None
        self.precision, self.partition = plan.precision, partition
        self._worker, self._leader = worker, leader
        self.together: Together | None = None
        of_array, numbered = partial(partition.of_array, worker), partial(partition.traced_numbers, worker)
        self.plan = plan.part(self._own_rows, of_array, numbered)
        made = filling.make_tables({plan.name: self.plan})
        self.own = cast(MovingTable, made[plan.name])  # a mapped one never moves
        self.slots, self.row_slots, self.touched = self.own.slots, self.own.row_slots, self.own.touched

    def fills(self, source: Rows) -> list[tuple[TableVariable, Rows]]:
        """The variables of this worker, with its rows of `source`."""
        return list(self.own.fills(self._own_rows(source)))

    def slot_fills(self, slots: Mapping[str, MappableRows]) -> list[tuple[TableVariable, Rows]]:
        """The slots of this worker, with its values from an earlier checkpoint."""
        return list(self.own.slot_fills({slot: self._own_rows(source) for slot, source in slots.items()}))

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """Nothing: only graphs of TensorFlow 1 are fed."""
        return []

    def checkpointed(self, slot: str | None = None) -> Any:
        """The whole table, or one slot, as a checkpoint holds it."""
        read, write = partial(self.read, slot=slot), partial(self.write, slot=slot)
        # TensorFlow can't read slices of float16, so worker 0 writes such rows whole.
        together = None if self.dtype(slot) == tf.float16 else self.together
        return StreamedTable(self, slot, self.own.checkpointed(slot).covered, read, write, together)

    def read(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of the table, or of one slot, from all workers, float32 [stop - start, dim]."""
        self.check_range(start, stop)
        found = np.empty((stop - start, self.width(slot)), np.float32)
        ranges = {
            worker: (self.partition.below(worker, start), self.partition.below(worker, stop))
            for worker in range(self.partition.workers)
        }
        asked = [worker for worker, (low, high) in ranges.items() if high > low and worker != self._worker]
        for worker in asked:
            low, high = ranges[worker]
            self._all().send(worker, {"command": "read", "table": self.name, "slot": slot, "range": [low, high]})
        for worker in sorted({*asked, self._worker}):
            low, high = ranges[worker]
            if high > low:
                values = self.read_own(low, high, slot) if worker == self._worker else self._all().reply(worker)[1][0]
                found[self.partition.numbers(worker, low, high) - start] = values
        return found

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        """Rows with these numbers, rising, of the table, or of one slot, float32 [n, dim]."""
        owners, local = self.partition.split(np.asarray(numbers, np.int64))
        found = np.empty((len(numbers), self.width(slot)), np.float32)
        asked = [worker for worker in np.unique(owners).tolist() if worker != self._worker]
        for worker in asked:
            command = {"command": "take", "table": self.name, "slot": slot}
            self._all().send(worker, command, [local[owners == worker]])
        own = owners == self._worker
        if own.any():
            found[own] = self.own.take(local[own], slot)
        for worker in asked:
            found[owners == worker] = self._all().reply(worker)[1][0]
        return found

    def write(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns float32 [n, dim] to the rows from `start`, on their workers.

        Raises:
            ValueError: the values' dtype or shape does not fit, or rows that can't be assigned would change.
        """
        self.check_range(start, start + len(values))
        told = []
        for worker in range(self.partition.workers):
            low, high = (self.partition.below(worker, row) for row in (start, start + len(values)))
            if high == low:
                continue
            part = np.ascontiguousarray(values[self.partition.numbers(worker, low, high) - start])
            if worker == self._worker:
                self.write_own(low, part, slot)
            else:
                head = {"command": "write", "table": self.name, "slot": slot, "start": low}
                self._all().send(worker, head, [part])
                told.append(worker)
        for worker in told:
            if (wrong := self._all().reply(worker)[0].get("wrong")) is not None:
                raise ValueError(wrong)

    def read_own(self, start: int, stop: int, slot: str | None = None) -> np.ndarray:
        """Rows [start, stop) of this worker's, float32 [stop - start, dim]."""
        return self.own.read(start, stop, slot)

    def write_own(self, start: int, values: np.ndarray, slot: str | None = None) -> None:
        """Assigns float32 [n, dim] to this worker's rows from `start`; see `write`."""
        self.own.checkpointed(slot).assign(start, values)

    @cached_property
    def touched_state(self) -> TouchedRows | None:
        """Which rows training steps have looked up, on all workers, and when; None: not tracked."""
        if self.touched is None:
            return None
        return TouchedRows(self.name, self.rows, flags=self._flags, clear=self._clear)

    def own_flags(self) -> np.ndarray:
        """Bool: which rows of this worker were looked up since they were last cleared."""
        return np.asarray(self.touched.numpy()[: self.partition.count(self._worker)] != 0)

    def clear_own_flags(self) -> None:
        """From now on, no row of this worker was looked up."""
        self.touched.assign(tf.zeros_like(self.touched))

    def _flags(self) -> np.ndarray:
        found = np.zeros(self.rows, np.bool_)
        leader = self._all()
        leader.tell({"command": "flags", "table": self.name})
        for worker in range(self.partition.workers):
            count = self.partition.count(worker)
            flags = self.own_flags() if worker == self._worker else leader.reply(worker)[1][0]
            found[self.partition.numbers(worker, 0, count)] = flags
        return found

    def _clear(self) -> None:
        self.clear_own_flags()
        self._all().tell({"command": "clear", "table": self.name})
        self._all().replies()

    def _own_rows(self, source: Rows) -> OwnRows:
        return OwnRows(source, self.partition, self._worker)

    def _all(self) -> Leader:
        if self._leader is None:
            raise RuntimeError(f"table {self.name!r}: only worker 0 reads and writes rows of others")
        return self._leader


WorkerTable = ShardedTable | MirroredTable
"""A table of a cluster, as a worker has it."""


@dataclass(frozen=True, eq=False)
class _Step:
    """The state between `enqueue` and `apply_gradients`.

    Attributes:
        inputs: the enqueued tensors, kept alive because sources contain their `id()`.
        lookups: by feature, rows, and the position in them of each occurrence, or None: in order.
    """

    inputs: Any
    read: dict[str, Occurrences]
    distinct: dict[str, Distinct]
    asked: dict[str, Asked]
    lookups: dict[str, tuple[Any, Any]]


class SharedRows:
    """The `EmbeddingBackend` of a worker."""

    def __init__(
        self,
        tables: Mapping[str, WorkerTable],
        features: Mapping[str, Feature],
        optimizers: Mapping[str, TableOptimizer],
        *,
        worker: int,
        workers: int,
        step: Any,
        total_steps: int,
    ) -> None:
        """Makes the exchange, and the engines of the worker's own rows and of its copies; see `RowEngine`."""
        used = [name for name in tables if any(feature.table == name for feature in features.values())]
        self._tables = {name: tables[name] for name in used}
        self._features = dict(features)
        self._sharded = {name: each for name, each in self._tables.items() if isinstance(each, ShardedTable)}
        mirrored = {name: each for name, each in self._tables.items() if isinstance(each, MirroredTable)}
        own = {name: table.own for name, table in self._sharded.items()}
        plain = {name: Feature(table=name) for name in self._sharded}
        self._engine = RowEngine(own, plain, optimizers, step=step, total_steps=total_steps)
        self._copies = CopiedRows(mirrored, optimizers, step=step, total_steps=total_steps)
        partitions = {name: table.partition for name, table in self._sharded.items()}
        copied = {name: table.rows for name, table in mirrored.items() if not table.frozen}
        self.exchange = Exchange(worker, workers, partitions, copied)
        fused = all(
            not table.frozen and fused_rows.moves(table.own, optimizers[name]) for name, table in self._tables.items()
        )
        self._unique = fused_rows.unique if fused else tf.unique
        self._current: _Step | None = None

    @property
    def asks(self) -> bool:
        """Whether a lookup asks other workers for rows."""
        return bool(self._sharded)

    @without_autograph
    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Asks the owners for the rows of the worker's ids; see `EmbeddingBackend.enqueue`.

        The ids of mirrored tables whose rows may move go to all workers, as their gradients will.
        """
        inputs.check_names("enqueue", features, self._features)
        read = {
            name: inputs.occurrences(name, feature, self._tables[feature.table].combiner, features[name])
            for name, feature in self._features.items()
        }
        distinct = {
            name: self._distinct(name, read)
            for name, table in self._tables.items()
            if name in self._sharded
            or (training and not table.frozen and not self._copies.moved_whole(name, self._of_table(name, read)))
        }
        asked = self.exchange.ask({name: each.ids for name, each in distinct.items()}, training=training)
        self._engine.enqueue({name: asked[name].own for name in self._sharded}, training=training)
        rows = self.exchange.rows(asked, self._engine.activations())
        lookups: dict[str, tuple[Any, Any]] = {}
        for name in self._tables:
            mine = self._of_table(name, read)
            if name in self._sharded:
                positions = distinct[name].positions
                lookups |= {feature: (rows[name], positions[each.source]) for feature, each in mine.items()}
            else:
                lookups |= self._copies.lookups(name, mine, distinct.get(name))
        self._current = _Step(features, read, distinct, asked, lookups)

    @without_autograph
    def activations(self) -> dict[str, Any]:
        """Combines the rows that have come; see `EmbeddingBackend.activations`."""
        step = self._step()
        return {name: row_updates.activations(read, *step.lookups[name]) for name, read in step.read.items()}

    @without_autograph
    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Sends the gradients to the owners, who move the rows; see `EmbeddingBackend.apply_gradients`."""
        inputs.check_names("apply_gradients", gradients, self._features)
        step = self._step()
        self._current = None
        sent, whole = {}, {}
        for name, table in self._tables.items():
            mine = self._of_table(name, step.read)
            if table.frozen:
                continue
            if (distinct := step.distinct.get(name)) is not None:
                parts = row_updates.occurrence_gradients(distinct, mine, gradients, table.dim)
                sent[name] = (distinct, parts or [tf.zeros([tf.size(distinct.all_positions), table.dim])])
            else:
                summed = row_updates.summed_gradients_of_all(table.own, mine, gradients)
                whole[name] = tf.zeros([table.rows, table.dim]) if summed is None else summed
        found = self.exchange.gradients(step.asked, sent)
        self._engine.apply_gradients({name: found.get(name) for name in self._sharded})
        moved = {name: each for name, each in found.items() if name not in self._sharded}
        self._copies.move({name: step.asked[name].own for name in moved}, moved, self.exchange.wholes(whole))

    def serve(self) -> list[Any]:
        """Answers one lookup of worker 0 without asking anything; returns tensors that are there after it."""
        none = {name: tf.zeros([0], self.exchange.id_dtype) for name in self._sharded}
        asked = self.exchange.ask(none, training=False)
        self._engine.enqueue({name: each.own for name, each in asked.items()}, training=False)
        rows = self.exchange.rows(asked, self._engine.activations())
        return list(rows.values())

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Rows of a feature's table that this worker has; see `EmbeddingBackend.rows`."""
        return rows_between(self._tables[self._features[feature].table].own, start, stop)

    def shares(self, feature: str) -> bool:
        """Whether workers share the rows of a feature's table."""
        return self._features[feature].table in self._sharded

    def part(self, feature: str, rows: int) -> Part:
        """Of a feature's first rows, so many, those that this worker has."""
        if not self.shares(feature):
            return Part.whole(rows)
        partition, worker = self._sharded[self._features[feature].table].partition, self.exchange.worker

        def places(ids: Any) -> tuple[Any, Any]:
            owners, own = partition.traced(ids)
            which = tf.cast(tf.where(owners == worker)[:, 0], tf.int32)
            return which, tf.gather(own, which)

        return Part(partition.below(worker, rows), places, self.exchange.of_queries)

    def _step(self) -> _Step:
        if self._current is None:
            raise RuntimeError("call activations() and apply_gradients() after enqueue()")
        return self._current

    def _distinct(self, table: str, read: Mapping[str, Occurrences]) -> Distinct:
        by_source: dict[tuple[Any, ...], Any] = {}
        for feature, occurrences in self._of_table(table, read).items():
            if occurrences.source not in by_source:
                check = inputs.check(feature, table, self._tables[table].rows, occurrences.ids)
                with tf.control_dependencies([check]):
                    by_source[occurrences.source] = tf.identity(occurrences.ids)
        return distinct_ids(by_source, narrow=self.exchange.id_dtype == tf.int32, unique=self._unique)

    def _of_table(self, table: str, read: Mapping[str, Occurrences]) -> dict[str, Occurrences]:
        return {name: read[name] for name, feature in self._features.items() if feature.table == table}


def make_tables(
    plans: Mapping[str, TablePlan], *, worker: int, workers: int, block: int, leader: Leader | None
) -> dict[str, WorkerTable]:
    """The tables of a run, of each of which this worker has its rows, or a copy.

    Args:
        block: rows of a block at most.
        leader: asks the other workers; None: this is one of them.
    """
    return {
        name: MirroredTable(plan, leader)
        if plan.mirrored
        else ShardedTable(plan, Partition.of(plan.source.rows, workers, block), worker, leader)
        for name, plan in plans.items()
    }


def sharded(tables: Mapping[str, WorkerTable]) -> dict[str, ShardedTable]:
    """Those tables of which each worker has some rows."""
    return {name: table for name, table in tables.items() if isinstance(table, ShardedTable)}
