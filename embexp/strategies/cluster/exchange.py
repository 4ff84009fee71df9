"""Ids, rows and gradients exchanged by workers, by TensorFlow's collective operations.

`CollectiveAllToAllV2` sends parts of one size from each worker to each. So a part has room for some ids of each table,
and what is not used is padding. All workers have the same rooms: each message of ids begins with how many its sender
needs, so all of them see in the same step that some need more. They enlarge the rooms alike, by an eighth more than
that, and send the ids of that step once more. No graph is traced again.

TensorFlow expects one shape under one key, so keys have the number of the rooms' enlargements in them.

| collective | content for W workers, tables t of dim d(t) | bytes that a worker sends |
|---|---|---|
| ids | [W, T + sum of room(t)], int32, or int64 where a table is that long | (W - 1) times a row |
| rows | [W, sum of room(t) d(t)], float32 | (W - 1) times a row |
| gradients | the same, of tables that are not frozen | (W - 1) times a row |
| dense | [numbers of the dense part], float32, by a ring | 2 (W - 1) / W of it |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.strategies.cluster.partition import Partition

_GROUP = 1
_IDS, _ROWS, _GRADIENTS, _DENSE, _MEANS = range(5)
_KINDS = 8
"""Keys of one enlargement; more than there are kinds of collectives."""
_LEAST = 8
"""Room that is added at least."""


@dataclass(frozen=True, eq=False)
class Asked:
    """Ids of a table that a worker has asked others for, and those that others have asked it for.

    Attributes:
        room: int32 scalar, how many ids a part has room for.
        slots: int32 [u], where in all parts, one after the other, the worker's ids went: there their rows will be.
        places: int64 [m], where in the received parts ids were.
        own: integers [m], these ids, the worker's own numbers: by asking worker, then in its order.
    """

    room: Any
    slots: Any
    places: Any
    own: Any


class Exchange:
    """The collectives of one worker, for some tables.

    Attributes:
        workers: number of workers.
        worker: which one this is.
    """

    def __init__(self, worker: int, partitions: Mapping[str, Partition], dims: Mapping[str, int]) -> None:
        """Creates the rooms, the same on all workers.

        Args:
            partitions: of each table that is looked up.
            dims: of the same tables.
        """
        self._partitions, self._dims, self._names = dict(partitions), dict(dims), list(partitions)
        self.worker = worker
        self.workers = next(iter(partitions.values())).workers
        self._type = tf.int32 if all(each.rows <= tf.int32.max for each in partitions.values()) else tf.int64
        self._rooms = tf.Variable(tf.fill([len(partitions)], _LEAST), trainable=False, name="rooms")
        self._enlarged = tf.Variable(0, trainable=False, name="enlarged")
        # Of all steps so far: ids that this worker has sent, itself included, and ids that would have had room.
        self._used = tf.Variable(tf.zeros([2], tf.int64), trainable=False, name="exchanged")

    @property
    def id_dtype(self) -> Any:
        """The type of ids in messages."""
        return self._type

    def facts(self) -> dict[str, Any]:
        """Rooms by table, enlargements, and which share of what was sent was padding; to be called eagerly."""
        used, room = (int(each) for each in self._used.numpy())
        return {
            "rooms": {name: int(room) for name, room in zip(self._names, self._rooms.numpy(), strict=True)},
            "enlarged": int(self._enlarged.numpy()),
            "padding": 0.0 if room == 0 else 1 - used / room,
        }

    def ask(self, ids: Mapping[str, Any]) -> dict[str, Asked]:
        """Sends the ids of each table to their owners.

        Args:
            ids: by table, integers [u], distinct.
        """
        sent = {name: self._sorted(name, ids[name]) for name in self._names}
        needed = tf.stack([tf.reduce_max(sent[name].counts) for name in self._names])
        enlarged, rooms = self._enlarged.read_value(), self._rooms.read_value()
        first = self._all_to_all(self._message(sent, needed, rooms), _IDS, enlarged)
        most = tf.reduce_max(tf.cast(first[:, : len(self._names)], tf.int32), 0)

        def again() -> Any:
            larger = tf.where(most > rooms, most + most // 8 + _LEAST, rooms)
            with tf.control_dependencies([self._rooms.assign(larger), self._enlarged.assign(enlarged + 1)]):
                return self._all_to_all(self._message(sent, needed, larger), _IDS, enlarged + 1), larger

        received, rooms = tf.cond(tf.reduce_any(most > rooms), again, lambda: (first, tf.identity(rooms)))
        counts = tf.add_n([tf.size(sent[name].local, tf.int64) for name in self._names])
        self._used.assign_add(tf.stack([counts, self.workers * tf.cast(tf.reduce_sum(rooms), tf.int64)]))
        parts = tf.split(received[:, len(self._names) :], rooms, 1, num=len(self._names))
        found = {}
        for number, (name, part) in enumerate(zip(self._names, parts, strict=True)):
            flat = tf.reshape(part, [-1])
            places = tf.where(flat >= 0)[:, 0]
            room = rooms[number]
            slots = sent[name].owners * room + sent[name].within
            found[name] = Asked(room, slots, places, tf.gather(flat, places))
        return found

    def rows(self, asked: Mapping[str, Asked], rows: Mapping[str, Any]) -> dict[str, Any]:
        """Sends the rows that others have asked for, and returns those of this worker's ids, float32 [u, dim].

        Args:
            rows: by table, float32 [m, dim], of `Asked.own`.
        """
        spread = [self._spread(asked[name].places, rows[name], asked[name].room) for name in self._names]
        parts = self._sent(spread, self._names, asked, _ROWS)
        return {name: tf.gather(part, asked[name].slots) for name, part in zip(self._names, parts, strict=True)}

    def gradients(self, asked: Mapping[str, Asked], gradients: Mapping[str, Any]) -> dict[str, Any]:
        """Sends gradients to the owners of their rows, and returns those of `Asked.own`, float32 [m, dim].

        Args:
            gradients: by table, float32 [u, dim], of the worker's ids; tables may be left out.
        """
        names = list(gradients)
        spread = [self._spread(asked[name].slots, gradients[name], asked[name].room) for name in names]
        parts = self._sent(spread, names, asked, _GRADIENTS)
        return {name: tf.gather(part, asked[name].places) for name, part in zip(names, parts, strict=True)}

    def sums(self, tensors: Sequence[Any]) -> list[Any]:
        """The sums of tensors over all workers, each in one order that is the same in every step."""
        return self._reduced(tensors, _DENSE)

    def means(self, tensors: Sequence[Any]) -> list[Any]:
        """The means of tensors over all workers."""
        return [total / self.workers for total in self._reduced(tensors, _MEANS)]

    def _reduced(self, tensors: Sequence[Any], kind: int) -> list[Any]:
        if not tensors:
            return []
        dtypes = {tensor.dtype for tensor in tensors}
        dtype = next(iter(dtypes)) if len(dtypes) == 1 else tf.float32
        flat = tf.concat([tf.reshape(tf.cast(tensor, dtype), [-1]) for tensor in tensors], 0)
        total = tf.raw_ops.CollectiveReduceV2(
            input=flat,
            group_size=self.workers,
            group_key=_GROUP,
            instance_key=kind,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            communication_hint="ring",
        )
        parts = tf.split(total, [tf.size(tensor) for tensor in tensors], num=len(tensors))
        return [
            tf.cast(tf.reshape(part, tf.shape(tensor)), tensor.dtype)
            for part, tensor in zip(parts, tensors, strict=True)
        ]

    def _sorted(self, name: str, ids: Any) -> _Sorted:
        """Ids by owner."""
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
        for number, name in enumerate(self._names):
            room, each = rooms[number], sent[name]
            beyond = self.workers * room
            slots = tf.where(each.within < room, each.owners * room + each.within, beyond)
            empty = tf.fill([beyond + 1], tf.constant(-1, self._type))
            filled = tf.tensor_scatter_nd_update(empty, slots[:, None], each.local)
            parts.append(tf.reshape(filled[:-1], [self.workers, room]))
        return tf.concat(parts, 1)

    def _spread(self, places: Any, values: Any, room: Any) -> Any:
        """Values at their places in the parts, [W, room * dim]; 0 elsewhere."""
        dim = values.shape[1]
        shape = tf.stack([self.workers * room, dim])
        spread = tf.scatter_nd(tf.cast(places, tf.int32)[:, None], values, shape)
        return tf.reshape(spread, [self.workers, room * dim])

    def _sent(self, spread: Sequence[Any], names: Sequence[str], asked: Mapping[str, Asked], kind: int) -> list[Any]:
        """Exchanges parts of several tables at once, and returns each as [W * room, dim]."""
        widths = [asked[name].room * self._dims[name] for name in names]
        received = self._all_to_all(tf.concat(spread, 1), kind, self._enlarged.read_value())
        parts = tf.split(received, widths, 1, num=len(names))
        return [tf.reshape(part, [-1, self._dims[name]]) for part, name in zip(parts, names, strict=True)]

    def _all_to_all(self, parts: Any, kind: int, enlarged: Any) -> Any:
        return tf.raw_ops.CollectiveAllToAllV2(
            input=parts,
            group_size=self.workers,
            group_key=_GROUP,
            instance_key=_KINDS + kind + _KINDS * enlarged,
            ordering_token=[],
            communication_hint="ring",
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
