"""Messages of workers by TensorFlow's collective operations, which have parts of one size, each to each.

So a part has room for some ids of each table, and what is not used is padding. All workers have the same rooms: each
message of ids begins with how many its sender needs, so all of them see in the same step that some need more. They
enlarge the rooms alike, by an eighth more than that, and send the ids of that step once more. No graph is traced again.
Lookups have rooms of their own, so that large batches of an evaluation do not make the parts of later steps larger.

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

from embexp.strategies.cluster.exchange import GROUP, KINDS, Asked, Exchange, Kind
from embexp.strategies.cluster.partition import Partition
from embexp.tables import row_updates
from embexp.tables.row_updates import Distinct

_LEAST = 8
"""Room that is added at least."""


@dataclass(frozen=True, eq=False)
class _Slots:
    """Where ids were in the parts of a message.

    Attributes:
        room: int32 scalar, how many ids a part has room for.
        sent: int32 [u], where in all parts, one after the other, the worker's ids went: there their rows will be. Of a
            mirrored table [W u], as they went to all workers.
        received: int32 [m], where in the received parts ids were.
    """

    room: Any
    sent: Any
    received: Any


class Collectives(Exchange[_Slots]):
    """The messages of one worker, by TensorFlow's collective operations."""

    name = "collectives"

    def __init__(self, worker: int, workers: int, sharded: Mapping[str, Partition], mirrored: Mapping[str, int]):
        """Creates the rooms, the same on all workers; see `Exchange`."""
        super().__init__(worker, workers, sharded, mirrored)
        # Of lookups, and of steps.
        self._rooms = tf.Variable(tf.fill([2, len(self._names)], _LEAST), trainable=False, name="rooms")
        self._enlarged = tf.Variable(0, trainable=False, name="enlarged")
        # Of all steps so far: ids that this worker has sent, itself included, and ids that would have had room.
        self._used = tf.Variable(tf.zeros([2], tf.int64), trainable=False, name="exchanged")

    def facts(self) -> dict[str, Any]:
        """Also rooms of a step by table, enlargements, and the share of padding in what was sent."""
        used, room = (int(each) for each in self._used.numpy())
        return {
            **super().facts(),
            "rooms": {name: int(room) for name, room in zip(self._names, self._rooms.numpy()[1], strict=True)},
            "enlarged": int(self._enlarged.numpy()),
            "padding": 0.0 if room == 0 else 1 - used / room,
        }

    def ask(self, ids: Mapping[str, Any], *, training: bool) -> dict[str, Asked[_Slots]]:
        """See `Exchange.ask`."""
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
            slots = _Slots(room, sent[name].owners * room + sent[name].within, places)
            found[name] = Asked(tf.gather(flat, places), training, slots)
        return found

    def rows(self, asked: Mapping[str, Asked[_Slots]], rows: Mapping[str, Any]) -> dict[str, Any]:
        """See `Exchange.rows`."""
        training = all(each.training for each in asked.values())
        return self._sent(rows, asked, Kind.ROWS if training else Kind.FOUND)

    def gradients(
        self, asked: Mapping[str, Asked[_Slots]], gradients: Mapping[str, tuple[Distinct, Sequence[Any]]]
    ) -> dict[str, Any]:
        """See `Exchange.gradients`."""
        summed = {name: row_updates.summed(distinct, parts) for name, (distinct, parts) in gradients.items()}
        values = {
            name: each if name in self._partitions else tf.tile(each, [self.workers, 1])
            for name, each in summed.items()
        }
        return self._sent(values, asked, Kind.GRADIENTS)

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

    def _sent(self, values: Mapping[str, Any], asked: Mapping[str, Asked[_Slots]], kind: Kind) -> dict[str, Any]:
        """Sends float32 [n, dim] of all tables to where ids came from, or gradients to where they went."""
        if not values:
            return {}
        slots = [asked[name].route for name in values]
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
                group_key=GROUP,
                instance_key=KINDS + kind + KINDS * enlarged,
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
