"""What workers send each other in a step, by TensorFlow's collective operations: ids, rows, gradients and sums.

Tables are sharded, each row with one owner, or mirrored, with all rows on all workers. Ids and gradients of a mirrored
table go to all workers, and its rows to none. Where a step looks up all rows of one, it needs no ids: their gradients
are added by a ring, and every worker gets the same sums.

The other messages have parts of one size, each to each. So a part has room for some ids of each table, and what is not
used is padding. All workers have the same rooms: each message of ids begins with how many its sender needs, so all of
them see in the same step that some need more. They enlarge the rooms alike, by an eighth more than that, and send the
ids of that step once more. No graph is traced again. Lookups have rooms of their own, so that large batches of an
evaluation do not make the parts of later steps larger.

| message | content for W workers, tables t of dim d(t) | bytes that a worker sends |
|---|---|---|
| ids | [W, T + sum of room(t)], int32, or int64 where a table is that long | (W - 1) times a row |
| ids of a lookup | the same, of sharded tables | (W - 1) times a row |
| rows, also of a lookup | [W, sum of room(t) d(t)] of sharded tables, float32 | (W - 1) times a row |
| gradients | [W, sum of room(t) d(t)] of tables that are not frozen | (W - 1) times a row |
| whole | [sum of rows(t) d(t)] of mirrored tables looked up whole, float32, by a ring | 2 (W - 1) / W of it |
| dense | [numbers of the dense part], float32, by a ring | 2 (W - 1) / W of it |
| answers, standings | [queries of a batch], float32, by a ring | 2 (W - 1) / W of it |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import tensorflow as tf

from embexp.strategies.cluster.partition import Partition
from embexp.tables import row_updates
from embexp.tables.row_updates import Distinct

_GROUP = 1
"""Key of all workers, for TensorFlow's collectives."""
_KINDS = 16
"""Keys of one enlargement; more than there are kinds of messages."""
_LEAST = 8
"""Room that is added at least."""
_BY_SIZE = 1 << 30
"""The first key of sums that may have any size; those of others stay below it."""


class Kind(IntEnum):
    """Of messages."""

    IDS = 0
    ROWS = 1
    GRADIENTS = 2
    DENSE = 3
    MEANS = 4
    LOOKUPS = 5
    """Ids of a lookup."""
    FOUND = 6
    """Rows of a lookup."""
    WHOLE = 7
    """Gradients of mirrored tables that a step looks up whole."""
    ANSWERS = 8
    STANDINGS = 9


@dataclass(frozen=True, eq=False)
class Asked:
    """Ids of a table that a worker has asked others for, and those that others have asked it for.

    Attributes:
        own: integers [m], those that it was asked for, its own numbers: by asking worker, then in its order.
        training: whether they are of a step; else of a lookup.
        room: int32 scalar, how many ids a part of the message has room for.
        sent: int32 [u], where in all parts, one after the other, the worker's ids went: there their rows will be. Of a
            mirrored table [W u], as they went to all workers.
        received: int32 [m], where in the received parts ids were.
    """

    own: Any
    training: bool
    room: Any
    sent: Any
    received: Any


class Exchange:
    """The messages of one worker, for some tables.

    Attributes:
        workers: number of workers.
        worker: which one this is.
        id_dtype: the type of ids in messages: int32, or int64 where a table is that long.
    """

    def __init__(self, worker: int, workers: int, sharded: Mapping[str, Partition], mirrored: Mapping[str, int]):
        """Creates the rooms, the same on all workers; sends nothing.

        Args:
            sharded: the owners of the rows of each table that is looked up, and sharded.
            mirrored: how many rows each other one has whose gradients are exchanged by ids.
        """
        self._partitions, self._names = dict(sharded), [*sharded, *mirrored]
        self.worker, self.workers = worker, workers
        sizes = [*(each.rows for each in sharded.values()), *mirrored.values()]
        self.id_dtype = tf.int32 if all(rows <= tf.int32.max for rows in sizes) else tf.int64
        self._seconds = tf.Variable(0.0, trainable=False, dtype=tf.float64, name="exchange_seconds")
        # Of lookups, and of steps.
        self._rooms = tf.Variable(tf.fill([2, len(self._names)], _LEAST), trainable=False, name="rooms")
        self._enlarged = tf.Variable(0, trainable=False, name="enlarged")
        # Of all steps so far: ids that this worker has sent, itself included, and ids that would have had room.
        self._used = tf.Variable(tf.zeros([2], tf.int64), trainable=False, name="exchanged")

    @property
    def seconds(self) -> float:
        """In which this worker has sent, received and waited for others; to be read eagerly."""
        return float(self._seconds.numpy())

    def facts(self) -> dict[str, Any]:
        """Rooms of a step by table, enlargements, and the share of padding in what was sent; to be read eagerly."""
        used, room = (int(each) for each in self._used.numpy())
        return {
            "rooms": {name: int(room) for name, room in zip(self._names, self._rooms.numpy()[1], strict=True)},
            "enlarged": int(self._enlarged.numpy()),
            "padding": 0.0 if room == 0 else 1 - used / room,
        }

    def ask(self, ids: Mapping[str, Any], *, training: bool) -> dict[str, Asked]:
        """Sends the ids of each table to their owners, and those of mirrored tables to all.

        Args:
            ids: by table, integers [u], distinct; of all tables, or of sharded ones in a lookup.
            training: False: it is a lookup.
        """
        names = [name for name in self._names if name in ids]
        if not names:
            return {}
        own = tf.constant([self._names.index(name) for name in names])
        sent = {name: self._sorted(name, ids[name]) for name in names}
        needed = tf.stack([tf.reduce_max(sent[name].counts) for name in names])
        enlarged, all_rooms = self._enlarged.read_value(), self._rooms.read_value()
        kind, rooms = Kind.IDS if training else Kind.LOOKUPS, tf.gather(all_rooms[int(training)], own)
        first = self._parts(self._message(sent, needed, rooms), kind, enlarged)
        most = tf.reduce_max(tf.cast(first[:, : len(names)], tf.int32), 0)

        def again() -> Any:
            larger = tf.where(most > rooms, most + most // 8 + _LEAST, rooms)
            places = tf.stack([tf.fill([len(names)], int(training)), own], 1)
            kept = self._rooms.assign(tf.tensor_scatter_nd_update(all_rooms, places, larger))
            with tf.control_dependencies([kept, self._enlarged.assign(enlarged + 1)]):
                return self._parts(self._message(sent, needed, larger), kind, enlarged + 1), larger

        received, rooms = tf.cond(tf.reduce_any(most > rooms), again, lambda: (first, tf.identity(rooms)))
        counts = tf.add_n([tf.size(sent[name].local, tf.int64) for name in names])
        self._used.assign_add(tf.stack([counts, self.workers * tf.cast(tf.reduce_sum(rooms), tf.int64)]))
        parts = tf.split(received[:, len(names) :], rooms, 1, num=len(names))
        found = {}
        for number, (name, part) in enumerate(zip(names, parts, strict=True)):
            flat = tf.reshape(part, [-1])
            places = tf.cast(tf.where(flat >= 0)[:, 0], tf.int32)
            room = rooms[number]
            slots = sent[name].owners * room + sent[name].within
            found[name] = Asked(tf.gather(flat, places), training, room, slots, places)
        return found

    def rows(self, asked: Mapping[str, Asked], rows: Mapping[str, Any]) -> dict[str, Any]:
        """Sends the rows that others have asked for, and returns those of this worker's ids, float32 [u, dim].

        Args:
            rows: by sharded table, float32 [m, dim], of `Asked.own`.
        """
        training = all(each.training for each in asked.values())
        return self._sent(rows, asked, Kind.ROWS if training else Kind.FOUND)

    def gradients(
        self, asked: Mapping[str, Asked], gradients: Mapping[str, tuple[Distinct, Sequence[Any]]]
    ) -> dict[str, Any]:
        """Sums gradients by row, sends them to where ids were sent, and returns those of `Asked.own`, float32 [m, dim].

        Args:
            gradients: by table, the ids that were asked for, and the gradients of their occurrences in parts, see
                `row_updates.occurrence_gradients`; tables may be left out.
        """
        summed = {name: row_updates.summed(distinct, parts) for name, (distinct, parts) in gradients.items()}
        values = {
            name: each if name in self._partitions else tf.tile(each, [self.workers, 1])
            for name, each in summed.items()
        }
        return self._sent(values, asked, Kind.GRADIENTS)

    def wholes(self, gradients: Mapping[str, Any]) -> dict[str, Any]:
        """The sums over all workers of gradients of mirrored tables that a step looks up whole, float32 [rows, dim]."""
        return dict(zip(gradients, self._reduced(list(gradients.values()), Kind.WHOLE), strict=True))

    def sums(self, tensors: Sequence[Any]) -> list[Any]:
        """The sums of tensors over all workers, each in one order that is the same in every step."""
        return self._reduced(tensors, Kind.DENSE)

    def means(self, tensors: Sequence[Any]) -> list[Any]:
        """The means of tensors over all workers."""
        return [total / self.workers for total in self._reduced(tensors, Kind.MEANS)]

    def of_queries(self, values: Any, number: int) -> Any:
        """The sums over all workers of float32 [B], of any B; `number` is 0 or 1, and each comes once in a step."""
        return self._reduced([values], (Kind.ANSWERS, Kind.STANDINGS)[number], by_size=True)[0]

    def _reduced(self, tensors: Sequence[Any], kind: Kind, *, by_size: bool = False) -> list[Any]:
        if not tensors:
            return []
        dtypes = {tensor.dtype for tensor in tensors}
        dtype = next(iter(dtypes)) if len(dtypes) == 1 else tf.float32
        totals = self._sums([tf.cast(tensor, dtype) for tensor in tensors], kind, by_size=by_size)
        return [tf.cast(total, tensor.dtype) for total, tensor in zip(totals, tensors, strict=True)]

    def _sums(self, tensors: Sequence[Any], kind: Kind, *, by_size: bool) -> list[Any]:
        """The sums over all workers of each of some tensors of one type, by one ring of TensorFlow's for all.

        Args:
            by_size: whether messages of this kind differ in size.
        """
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
        total = self._timed(
            flat,
            lambda: tf.raw_ops.CollectiveReduceV2(
                input=flat,
                group_size=self.workers,
                group_key=_GROUP,
                instance_key=_BY_SIZE + _KINDS * tf.size(flat) + kind if by_size else int(kind),
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
                communication_hint="ring",
            ),
        )
        parts = tf.split(total, [tf.size(tensor) for tensor in tensors], num=len(tensors))
        return [tf.reshape(part, tf.shape(tensor)) for part, tensor in zip(parts, tensors, strict=True)]

    def _timed(self, sent: Any, collective: Callable[[], Any]) -> Any:
        """What a collective returns, whose time is counted from where `sent` is there."""
        with tf.control_dependencies([sent]):
            start = tf.timestamp()
        with tf.control_dependencies([start]):
            received = collective()
        with tf.control_dependencies([received]):
            self._seconds.assign_add(tf.timestamp() - start)
        return received

    def _sorted(self, name: str, ids: Any) -> _Sorted:
        """Ids by owner, or of a mirrored table all ids for each worker."""
        if name not in self._partitions:
            each, count = tf.range(self.workers), tf.size(ids)
            within = tf.tile(tf.range(count), [self.workers])
            local = tf.tile(tf.cast(ids, self.id_dtype), [self.workers])
            return _Sorted(tf.repeat(each, count), within, local, tf.fill([self.workers], count))
        owners, local = self._partitions[name].traced(ids)
        of_owners = tf.dynamic_partition(tf.range(tf.size(ids)), owners, self.workers)
        counts = tf.stack([tf.size(part) for part in of_owners])
        order = tf.concat(of_owners, 0)
        before = tf.gather(tf.cumsum(counts, exclusive=True), tf.gather(owners, order))
        within = tf.scatter_nd(order[:, None], tf.range(tf.size(ids)) - before, tf.shape(ids))
        return _Sorted(owners, within, tf.cast(local, self.id_dtype), counts)

    def _message(self, sent: Mapping[str, _Sorted], needed: Any, rooms: Any) -> Any:
        """The parts of ids; those without room are left out, as the message is sent again then."""
        head = tf.tile(tf.cast(needed, self.id_dtype)[None], [self.workers, 1])
        parts = [head]
        for number, each in enumerate(sent.values()):
            room = rooms[number]
            beyond = self.workers * room
            slots = tf.where(each.within < room, each.owners * room + each.within, beyond)
            empty = tf.fill([beyond + 1], tf.constant(-1, self.id_dtype))
            filled = tf.tensor_scatter_nd_update(empty, slots[:, None], each.local)
            parts.append(tf.reshape(filled[:-1], [self.workers, room]))
        return tf.concat(parts, 1)

    def _sent(self, values: Mapping[str, Any], asked: Mapping[str, Asked], kind: Kind) -> dict[str, Any]:
        """Sends float32 [n, dim] of all tables to where ids came from, or gradients to where they went."""
        if not values:
            return {}
        slots = [asked[name] for name in values]
        ways = [(each.received, each.sent) for each in slots]
        if kind is Kind.GRADIENTS:
            ways = [(to, back) for back, to in ways]
        dims = [each.shape[1] for each in values.values()]
        widths = [each.room * dim for each, dim in zip(slots, dims, strict=True)]
        spread = []
        for value, each, (places, _), dim, width in zip(values.values(), slots, ways, dims, widths, strict=True):
            whole = tf.scatter_nd(places[:, None], value, [self.workers * each.room, dim])
            spread.append(tf.reshape(whole, [self.workers, width]))
        parts = tf.split(self._parts(tf.concat(spread, 1), kind, self._enlarged.read_value()), widths, 1, num=len(dims))
        received = [tf.reshape(part, [-1, dim]) for part, dim in zip(parts, dims, strict=True)]
        return {name: tf.gather(part, wanted) for name, part, (_, wanted) in zip(values, received, ways, strict=True)}

    def _parts(self, parts: Any, kind: Kind, enlarged: Any) -> Any:
        """Sends row w of [W, n] to worker w, and returns what the workers have sent, [W, n].

        Args:
            enlarged: int32 scalar; it differs where one kind had parts of another size, as one shape is expected
                under one key.
        """
        return self._timed(
            parts,
            lambda: tf.raw_ops.CollectiveAllToAllV2(
                input=parts,
                group_size=self.workers,
                group_key=_GROUP,
                instance_key=_KINDS + kind + _KINDS * enlarged,
                ordering_token=[],
                communication_hint="ring",
            ),
        )


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Ids of a table by owner.

    Attributes:
        owners: int32 [u].
        within: int32 [u], the place of each id among those for its owner.
        local: integers [u], the owners' numbers of them.
        counts: int32 [W], how many each owner gets.
    """

    owners: Any
    within: Any
    local: Any
    counts: Any
