"""Ids, rows and gradients exchanged by workers; see `transport` for how they travel.

Workers send parts of one size, each to each. So a part has room for some ids of each table,
and what is not used is padding. All workers have the same rooms: each message of ids begins with how many its sender
needs, so all of them see in the same step that some need more. They enlarge the rooms alike, by an eighth more than
that, and send the ids of that step once more. No graph is traced again. Lookups have rooms of their own, so that large
batches of an evaluation do not make the parts of later steps larger.

Tables are sharded, each row with one owner, or mirrored, with all rows on all workers. Ids and gradients of a mirrored
table go to all workers, and its rows to none. Where a step looks up all rows of one, it needs no ids: their gradients
are added by a ring, and every worker gets the same sums.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.strategies.cluster.partition import Partition
from embexp.strategies.cluster.transport import Collectives, SharedMemory, Transport

_IDS, _ROWS, _GRADIENTS, _DENSE, _MEANS, _LOOKUPS, _FOUND, _WHOLE, _ANSWERS, _STANDINGS = range(10)
_LEAST = 8
"""Room that is added at least."""


@dataclass(frozen=True, eq=False)
class Asked:
    """Ids of a table that a worker has asked others for, and those that others have asked it for.

    Attributes:
        room: int32 scalar, how many ids a part has room for.
        slots: int32 [u], where in all parts, one after the other, the worker's ids went: there their rows will be. Of a
            mirrored table [W u], as they went to all workers.
        places: int32 [m], where in the received parts ids were.
        own: integers [m], these ids, the worker's own numbers: by asking worker, then in its order.
        training: whether they are of a step; else of a lookup.
    """

    room: Any
    slots: Any
    places: Any
    own: Any
    training: bool


class Exchange:
    """The messages of one worker, for some tables.

    Attributes:
        workers: number of workers.
        worker: which one this is.
    """

    def __init__(
        self,
        worker: int,
        workers: int,
        sharded: Mapping[str, Partition],
        mirrored: Mapping[str, int],
        memory: int | None = None,
    ) -> None:
        """Creates the rooms, the same on all workers.

        Args:
            sharded: the owners of the rows of each table that is looked up, and sharded.
            mirrored: how many rows each other one has whose gradients are exchanged by ids.
            memory: descriptor of the memory that workers share; None: there is none.
        """
        self._partitions, self._names = dict(sharded), [*sharded, *mirrored]
        self.worker, self.workers = worker, workers
        sizes = [*(each.rows for each in sharded.values()), *mirrored.values()]
        self._type = tf.int32 if all(rows <= tf.int32.max for rows in sizes) else tf.int64
        # Of lookups, and of steps.
        self._rooms = tf.Variable(tf.fill([2, len(self._names)], _LEAST), trainable=False, name="rooms")
        self._enlarged = tf.Variable(0, trainable=False, name="enlarged")
        # Of all steps so far: ids that this worker has sent, itself included, and ids that would have had room.
        self._used = tf.Variable(tf.zeros([2], tf.int64), trainable=False, name="exchanged")
        self._seconds = tf.Variable(0.0, trainable=False, dtype=tf.float64, name="exchange_seconds")
        self._collectives = Collectives(workers, self._seconds)
        self._transport: Transport = self._collectives
        if memory is not None:
            self._transport = SharedMemory(memory, worker, workers, self._seconds)

    @property
    def id_dtype(self) -> Any:
        """The type of ids in messages."""
        return self._type

    @property
    def seconds(self) -> float:
        """In which this worker has sent, received and waited for others; to be read eagerly."""
        return float(self._seconds.numpy())

    def facts(self) -> dict[str, Any]:
        """Rooms of a step by table, enlargements, and the share of padding in what was sent; to be called eagerly."""
        used, room = (int(each) for each in self._used.numpy())
        return {
            "rooms": {name: int(room) for name, room in zip(self._names, self._rooms.numpy()[1], strict=True)},
            "transport": self._transport.name,
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
        kind, rooms = _IDS if training else _LOOKUPS, tf.gather(all_rooms[int(training)], own)
        first = self._transport.parts(self._message(sent, needed, rooms), kind, enlarged)
        most = tf.reduce_max(tf.cast(first[:, : len(names)], tf.int32), 0)

        def again() -> Any:
            larger = tf.where(most > rooms, most + most // 8 + _LEAST, rooms)
            places = tf.stack([tf.fill([len(names)], int(training)), own], 1)
            kept = self._rooms.assign(tf.tensor_scatter_nd_update(all_rooms, places, larger))
            with tf.control_dependencies([kept, self._enlarged.assign(enlarged + 1)]):
                return self._transport.parts(self._message(sent, needed, larger), kind, enlarged + 1), larger

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
            found[name] = Asked(room, slots, places, tf.gather(flat, places), training)
        return found

    def rows(self, asked: Mapping[str, Asked], rows: Mapping[str, Any]) -> dict[str, Any]:
        """Sends the rows that others have asked for, and returns those of this worker's ids, float32 [u, dim].

        Args:
            rows: by sharded table, float32 [m, dim], of `Asked.own`.
        """
        training = all(each.training for each in asked.values())
        wanted = {name: asked[name].slots for name in rows}
        return self._sent(
            rows, {name: asked[name].places for name in rows}, wanted, asked, _ROWS if training else _FOUND
        )

    def gradients(self, asked: Mapping[str, Asked], gradients: Mapping[str, Any]) -> dict[str, Any]:
        """Sends gradients to where ids were sent, and returns those of `Asked.own`, float32 [m, dim].

        Args:
            gradients: by table, float32 [u, dim], of the worker's ids; tables may be left out.
        """
        values = {
            name: each if name in self._partitions else tf.tile(each, [self.workers, 1])
            for name, each in gradients.items()
        }
        places = {name: asked[name].slots for name in values}
        return self._sent(values, places, {name: asked[name].places for name in values}, asked, _GRADIENTS)

    def wholes(self, gradients: Mapping[str, Any]) -> dict[str, Any]:
        """The sums over all workers of gradients of mirrored tables that a step looks up whole, float32 [rows, dim]."""
        return dict(zip(gradients, self._reduced(list(gradients.values()), _WHOLE), strict=True))

    def sums(self, tensors: Sequence[Any]) -> list[Any]:
        """The sums of tensors over all workers, each in one order that is the same in every step."""
        return self._reduced(tensors, _DENSE)

    def means(self, tensors: Sequence[Any]) -> list[Any]:
        """The means of tensors over all workers."""
        return [total / self.workers for total in self._reduced(tensors, _MEANS)]

    def of_queries(self, values: Any, number: int) -> Any:
        """The sums over all workers of float32 [B], of any B; `number` is 0 or 1, and each comes once in a step."""
        return self._reduced([values], (_ANSWERS, _STANDINGS)[number], by_size=True)[0]

    def _reduced(self, tensors: Sequence[Any], kind: int, *, by_size: bool = False) -> list[Any]:
        if not tensors:
            return []
        dtypes = {tensor.dtype for tensor in tensors}
        dtype = next(iter(dtypes)) if len(dtypes) == 1 else tf.float32
        transport = self._transport if dtype in (tf.float32, tf.float64) else self._collectives
        totals = transport.sums([tf.cast(tensor, dtype) for tensor in tensors], kind, by_size=by_size)
        return [tf.cast(total, tensor.dtype) for total, tensor in zip(totals, tensors, strict=True)]

    def _sorted(self, name: str, ids: Any) -> _Sorted:
        """Ids by owner, or of a mirrored table all ids for each worker."""
        if name not in self._partitions:
            each, count = tf.range(self.workers), tf.size(ids)
            within = tf.tile(tf.range(count), [self.workers])
            local = tf.tile(tf.cast(ids, self._type), [self.workers])
            return _Sorted(tf.repeat(each, count), within, local, tf.fill([self.workers], count))
        owners, local = self._partitions[name].traced(ids)
        of_owners = tf.dynamic_partition(tf.range(tf.size(ids)), owners, self.workers)
        counts = tf.stack([tf.size(part) for part in of_owners])
        order = tf.concat(of_owners, 0)
        before = tf.gather(tf.cumsum(counts, exclusive=True), tf.gather(owners, order))
        within = tf.scatter_nd(order[:, None], tf.range(tf.size(ids)) - before, tf.shape(ids))
        return _Sorted(owners, within, tf.cast(local, self._type), counts)

    def _message(self, sent: Mapping[str, _Sorted], needed: Any, rooms: Any) -> Any:
        """The parts of ids; those without room are left out, as the message is sent again then."""
        head = tf.tile(tf.cast(needed, self._type)[None], [self.workers, 1])
        parts = [head]
        for number, each in enumerate(sent.values()):
            room = rooms[number]
            beyond = self.workers * room
            slots = tf.where(each.within < room, each.owners * room + each.within, beyond)
            empty = tf.fill([beyond + 1], tf.constant(-1, self._type))
            filled = tf.tensor_scatter_nd_update(empty, slots[:, None], each.local)
            parts.append(tf.reshape(filled[:-1], [self.workers, room]))
        return tf.concat(parts, 1)

    def _sent(
        self,
        values: Mapping[str, Any],
        places: Mapping[str, Any],
        wanted: Mapping[str, Any],
        asked: Mapping[str, Asked],
        kind: int,
    ) -> dict[str, Any]:
        """Exchanges rows of several tables at once."""
        if not values:
            return {}
        ordered = [[each[name] for name in values] for each in (values, places, wanted)]
        rooms = [asked[name].room for name in values]
        found = self._transport.rows(
            ordered[0], ordered[1], ordered[2], rooms, kind=kind, enlarged=self._enlarged.read_value()
        )
        return dict(zip(values, found, strict=True))


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
