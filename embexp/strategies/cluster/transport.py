"""How messages of workers travel: in memory that they share on one machine, else by TensorFlow's collective operations.

Worker 0 makes the memory, a file without a name, and the workers that it starts inherit it. So nothing is left behind,
however they end. Without fused operations there is none. Both ways move the same numbers and add them in the same
order: a ring's, in which each chunk of the sums begins at another worker.

`CollectiveAllToAllV2` sends parts of one size, so parts of all tables are joined, with zeros for what is not used. In
shared memory, each worker writes rows at their places, and reads what it wants.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from embexp.system import native

_GROUP = 1
_KINDS = 16
"""Keys of one enlargement; more than there are kinds of messages."""
_BY_SIZE = 1 << 30
"""The first key of sums that may have any size; those of others stay below it."""
_LIBRARY = "exchange"
_HEAD, _BOX = 1 << 20, 1 << 34
"""Bytes of shared memory before the boxes, as in `exchange.cc`, and of a box; Linux gives them where they are used."""


class Transport(Protocol):
    """Sends messages of one worker to all, and returns those of all to it.

    Attributes:
        name: what it is called in a summary.
    """

    name: str

    def parts(self, parts: Any, kind: int, enlarged: Any) -> Any:
        """Sends row w of integers [W, n] to worker w, and returns what the workers have sent, [W, n].

        Args:
            kind: of the message.
            enlarged: int32 scalar; it differs where one kind had parts of another size.
        """

    def rows(
        self,
        values: Sequence[Any],
        places: Sequence[Any],
        wanted: Sequence[Any],
        rooms: Sequence[Any],
        *,
        kind: int,
        enlarged: Any,
    ) -> list[Any]:
        """Sends float32 [n, dim] of each table at its places in parts of [W, room], and returns those wanted, [m, dim].

        Args:
            places: int32 [n] of each table, counted over all parts.
            wanted: int32 [m] of each table, in the parts that come.
            rooms: int32 scalar of each table.
        """

    def sums(self, tensors: Sequence[Any], kind: int, *, by_size: bool) -> list[Any]:
        """The sums over all workers of each of some tensors of one floating type.

        Args:
            by_size: whether messages of this kind differ in size.
        """


class Collectives:
    """TensorFlow's collective operations; a `Transport`."""

    name = "collectives"

    def __init__(self, workers: int, seconds: Any) -> None:
        """Adds the time of each message to the variable `seconds`."""
        self._workers, self._seconds = workers, seconds

    def parts(self, parts: Any, kind: int, enlarged: Any) -> Any:
        """By `CollectiveAllToAllV2`; see `Transport.parts`. One shape is expected under one key."""
        return self._timed(
            parts,
            lambda: tf.raw_ops.CollectiveAllToAllV2(
                input=parts,
                group_size=self._workers,
                group_key=_GROUP,
                instance_key=_KINDS + kind + _KINDS * enlarged,
                ordering_token=[],
                communication_hint="ring",
            ),
        )

    def rows(
        self,
        values: Sequence[Any],
        places: Sequence[Any],
        wanted: Sequence[Any],
        rooms: Sequence[Any],
        *,
        kind: int,
        enlarged: Any,
    ) -> list[Any]:
        """Joins the parts of all tables; see `Transport.rows`."""
        dims = [each.shape[1] for each in values]
        widths = [room * dim for room, dim in zip(rooms, dims, strict=True)]
        spread = [
            tf.reshape(tf.scatter_nd(place[:, None], value, [self._workers * room, dim]), [self._workers, width])
            for place, value, room, dim, width in zip(places, values, rooms, dims, widths, strict=True)
        ]
        parts = tf.split(self.parts(tf.concat(spread, 1), kind, enlarged), widths, 1, num=len(dims))
        received = [tf.reshape(part, [-1, dim]) for part, dim in zip(parts, dims, strict=True)]
        return [tf.gather(part, which) for part, which in zip(received, wanted, strict=True)]

    def sums(self, tensors: Sequence[Any], kind: int, *, by_size: bool) -> list[Any]:
        """By one ring for all; see `Transport.sums`."""
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
        total = self._timed(
            flat,
            lambda: tf.raw_ops.CollectiveReduceV2(
                input=flat,
                group_size=self._workers,
                group_key=_GROUP,
                instance_key=_BY_SIZE + _KINDS * tf.size(flat) + kind if by_size else kind,
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


class SharedMemory:
    """Memory of the workers of one machine; a `Transport`. Its messages have the order in which steps are written."""

    name = "shared memory"

    def __init__(self, file: int, worker: int, workers: int, seconds: Any) -> None:
        """Adds the time of each message to the variable `seconds`.

        Args:
            file: descriptor of the memory.
        """
        self._library = native.library(_LIBRARY)
        self._common = {"seconds": seconds.handle, "file": file, "worker": worker, "workers": workers}

    def parts(self, parts: Any, kind: int, enlarged: Any) -> Any:
        """See `Transport.parts`."""
        return self._library.embexp_exchange_parts(parts=parts, kind=kind, **self._common)

    def rows(
        self,
        values: Sequence[Any],
        places: Sequence[Any],
        wanted: Sequence[Any],
        rooms: Sequence[Any],
        *,
        kind: int,
        enlarged: Any,
    ) -> list[Any]:
        """See `Transport.rows`."""
        found = self._library.embexp_exchange_rows(
            values=values, places=places, wanted=wanted, rooms=tf.stack(rooms), kind=kind, **self._common
        )
        return list(found)

    def sums(self, tensors: Sequence[Any], kind: int, *, by_size: bool) -> list[Any]:
        """In the order of the collectives' ring; see `Transport.sums`."""
        return list(self._library.embexp_exchange_sums(values=tensors, kind=kind, **self._common))


def shared(workers: int) -> int | None:
    """The descriptor of new memory for workers that this process starts; None: they need collectives."""
    if not hasattr(os, "memfd_create") or native.library(_LIBRARY) is None:
        return None
    file = os.memfd_create("embexp")
    try:
        os.truncate(file, _HEAD + 2 * workers * _BOX)
        mmap.mmap(file, 0).close()
    except OSError:  # as a limit forbids it
        os.close(file)
        return None
    return file


def end(file: int) -> None:
    """Ends what workers wait for in shared memory, as one of them was lost."""
    with contextlib.suppress(OSError):
        os.pwrite(file, b"\1", 0)
