"""What workers send each other in a step: ids, rows, gradients and sums. Two classes send them.

`shared_memory` is for workers of one machine that share memory, `collectives` for all others. Both move the same
numbers and add them in the same order, so both give the same bits.

Tables are sharded, each row with one owner, or mirrored, with all rows on all workers. Ids and gradients of a mirrored
table go to all workers, and its rows to none. Where a step looks up all rows of one, it needs no ids: their gradients
are added by a ring, and every worker gets the same sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

import tensorflow as tf

from embexp.strategies.cluster.partition import Partition
from embexp.tables.row_updates import Distinct

GROUP = 1
"""Key of all workers, for TensorFlow's collectives."""
KINDS = 16
"""Keys of one enlargement; more than there are kinds of messages."""
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


Route = TypeVar("Route")
"""What a way to send remembers of the ids: where their rows and gradients go."""


@dataclass(frozen=True, eq=False)
class Asked(Generic[Route]):
    """Ids of a table that a worker has asked others for, and those that others have asked it for.

    Attributes:
        own: integers [m], those that it was asked for, its own numbers: by asking worker, then in its order.
        training: whether they are of a step; else of a lookup.
    """

    own: Any
    training: bool
    route: Route


class Exchange(ABC, Generic[Route]):
    """The messages of one worker, for some tables.

    Attributes:
        name: how they travel, as a summary says it.
        workers: number of workers.
        worker: which one this is.
        id_dtype: the type of ids in messages: int32, or int64 where a table is that long.
    """

    name: str

    def __init__(self, worker: int, workers: int, sharded: Mapping[str, Partition], mirrored: Mapping[str, int]):
        """Sends nothing.

        Args:
            sharded: the owners of the rows of each table that is looked up, and sharded.
            mirrored: how many rows each other one has whose gradients are exchanged by ids.
        """
        self._partitions, self._names = dict(sharded), [*sharded, *mirrored]
        self.worker, self.workers = worker, workers
        sizes = [*(each.rows for each in sharded.values()), *mirrored.values()]
        self.id_dtype = tf.int32 if all(rows <= tf.int32.max for rows in sizes) else tf.int64
        self._seconds = tf.Variable(0.0, trainable=False, dtype=tf.float64, name="exchange_seconds")

    @property
    def seconds(self) -> float:
        """In which this worker has sent, received and waited for others; to be read eagerly."""
        return float(self._seconds.numpy())

    def facts(self) -> dict[str, Any]:
        """What a summary says of the messages; to be called eagerly."""
        return {"transport": self.name}

    @abstractmethod
    def ask(self, ids: Mapping[str, Any], *, training: bool) -> dict[str, Asked[Route]]:
        """Sends the ids of each table to their owners, and those of mirrored tables to all.

        Args:
            ids: by table, integers [u], distinct; of all tables, or of sharded ones in a lookup.
            training: False: it is a lookup.
        """

    @abstractmethod
    def rows(self, asked: Mapping[str, Asked[Route]], rows: Mapping[str, Any]) -> dict[str, Any]:
        """Sends the rows that others have asked for, and returns those of this worker's ids, float32 [u, dim].

        Args:
            rows: by sharded table, float32 [m, dim], of `Asked.own`.
        """

    @abstractmethod
    def gradients(
        self, asked: Mapping[str, Asked[Route]], gradients: Mapping[str, tuple[Distinct, Sequence[Any]]]
    ) -> dict[str, Any]:
        """Sums gradients by row, sends them to where ids were sent, and returns those of `Asked.own`, float32 [m, dim].

        Args:
            gradients: by table, the ids that were asked for, and the gradients of their occurrences in parts, see
                `row_updates.occurrence_gradients`; tables may be left out.
        """

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
                group_key=GROUP,
                instance_key=_BY_SIZE + KINDS * tf.size(flat) + kind if by_size else int(kind),
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
