"""Queues between the host, which enqueues ids, and the cores, which look them up."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from embexp.strategies.simulation.features import Layout

TRAIN, INFERENCE, EITHER = "train", "inference", "train or inference"
"""Modes of batches: gradients will follow, or not; either, if a replica enqueues: a TPU infers it from the step."""

_numbers = itertools.count()


@dataclass(frozen=True)
class BatchKind:
    """What tracing a step must know about the batch that it takes.

    Attributes:
        mode: `TRAIN`, `INFERENCE` or `EITHER`.
    """

    mode: str
    layouts: tuple[Layout, ...]


@dataclass(eq=False)
class PendingKinds:
    """Kinds of the batches that one graph enqueues and no traced step takes yet, and the last kind taken."""

    waiting: list[BatchKind] = field(default_factory=list)
    taken: BatchKind | None = None
    parts: Counter[int] = field(default_factory=Counter)

    def add(self, kind: BatchKind, core: int) -> None:
        """Notes that a core's part of a batch is enqueued; those of the other cores are of the same kind."""
        self.parts[core] += 1
        if list(self.parts.values()).count(self.parts[core]) == 1 and self.parts[core] == max(self.parts.values()):
            self.waiting.append(kind)

    def take(self) -> BatchKind | None:
        """The kind of the next batch."""
        if self.waiting:
            self.taken = self.waiting.pop(0)
        return self.taken


class Queue:
    """Batches of one core and one kind, first in, first out, in the memory of this process.

    A batch is a list of tensors of the given types; `put` copies nothing.
    """

    def __init__(self, dtypes: Sequence[Any]) -> None:
        """Makes an empty queue, outside of any graph that is being traced."""
        self._dtypes = list(dtypes)
        with ops.init_scope(), tf.device("/device:CPU:0"):
            # Not tf.queue: a traced function may outlive this object, and needs the queue.
            self._handle = tf.raw_ops.FIFOQueueV2(
                component_types=self._dtypes, shared_name=f"simulated_tpu_{next(_numbers)}"
            )

    def put(self, batch: Sequence[Any]) -> Any:
        """Appends a batch; returns the operation."""
        return tf.raw_ops.QueueEnqueueV2(handle=self._handle, components=list(batch))

    def take(self) -> list[Any]:
        """Removes and returns the first batch; when it runs, InvalidArgumentError if there is none."""
        with tf.control_dependencies([self._not_empty()]):
            taken: list[Any] = tf.raw_ops.QueueDequeueV2(handle=self._handle, component_types=self._dtypes)
        return taken

    def take_or(self, default: Callable[[], list[Any]]) -> list[Any]:
        """Removes and returns the first batch, or the default if there is none."""

        def first() -> list[Any]:
            taken: list[Any] = tf.raw_ops.QueueDequeueV2(handle=self._handle, component_types=self._dtypes)
            return taken

        return list(tf.cond(tf.raw_ops.QueueSizeV2(handle=self._handle) > 0, first, default))

    def _not_empty(self) -> Any:
        return tf.raw_ops.Assert(
            condition=tf.raw_ops.QueueSizeV2(handle=self._handle) > 0,
            data=[
                "a TPU would wait forever: a step dequeues embeddings, but no batch of the kind it was traced for "
                "has been enqueued; call TPUEmbedding.enqueue before each strategy.run, best in the same tf.function"
            ],
        )


class Number:
    """An int64 in the memory of this process, 0 at first."""

    def __init__(self) -> None:
        """Makes it, outside of any graph that is being traced."""
        with ops.init_scope(), tf.device("/device:CPU:0"):
            # Not tf.Variable, for the reason of `Queue`.
            self._handle = tf.raw_ops.VarHandleOp(
                dtype=tf.int64, shape=[], shared_name=f"simulated_tpu_{next(_numbers)}"
            )
            self.set(tf.constant(0, tf.int64))

    def read(self) -> Any:
        """Its value."""
        return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)

    def set(self, value: Any) -> Any:
        """Sets it; returns the operation."""
        return tf.raw_ops.AssignVariableOp(resource=self._handle, value=value)

    def increment(self) -> Any:
        """Adds 1; returns the new value."""
        added = tf.raw_ops.AssignAddVariableOp(resource=self._handle, value=tf.constant(1, tf.int64))
        with tf.control_dependencies([added]):
            return self.read()


class BatchQueues:
    """The queues of all cores, and the kind of batch that a step takes while it is traced.

    That is the kind of the `put` that was traced in the same graph, in one around it, or else last. A core of a TPU has
    one queue. Here it has one for each kind, so batches are numbered: a step that would get another batch on a TPU
    than here, fails.
    """

    def __init__(self, cores: int) -> None:
        """Begins without queues; each kind of batch gets one for each core."""
        self._cores = cores
        self._put, self._taken = [Number() for _ in range(cores)], [Number() for _ in range(cores)]
        self._queues: dict[BatchKind, list[Queue]] = {}
        self._pending: weakref.WeakKeyDictionary[Any, PendingKinds] = weakref.WeakKeyDictionary()
        self._latest: BatchKind | None = None

    def put(self, kind: BatchKind, core: int, batch: Sequence[Any]) -> Any:
        """Appends a core's part of a batch to its queue; returns the operation."""
        self._latest = kind
        self._pending.setdefault(ops.get_default_graph(), PendingKinds()).add(kind, core)
        return self._of_kind(kind)[core].put([self._put[core].increment(), *batch])

    def take(self, kind: BatchKind, cores: Sequence[int]) -> dict[int, list[Any]]:
        """Removes and returns the first batch of each of these cores.

        Nothing else of the step can fail before all are removed; or the next step would get those that were left.
        When it runs, InvalidArgumentError if there is none, or if one of another kind was left before it.
        """
        taken, expected, removed = {}, {}, []
        for core in cores:
            expected[core] = self._taken[core].read() + 1
            number, *taken[core] = self._of_kind(kind)[core].take()
            with tf.control_dependencies([expected[core]]):
                removed.append(self._taken[core].set(number))
            expected[core] = tf.equal(expected[core], number)
        with tf.control_dependencies(removed):
            checked = [_in_order(each) for each in expected.values()]
        with tf.control_dependencies([*removed, *checked]):
            return {core: [tf.identity(one) for one in batch] for core, batch in taken.items()}

    def _of_kind(self, kind: BatchKind) -> list[Queue]:
        """The queues of a kind of batch, by core."""
        if kind not in self._queues:
            dtypes = [tf.int64, *itertools.chain.from_iterable(layout.dtypes() for layout in kind.layouts)]
            self._queues[kind] = [Queue(dtypes) for _ in range(self._cores)]
        return self._queues[kind]

    def kind_to_take(self) -> BatchKind:
        """The kind of batch that the step being traced takes.

        Raises:
            RuntimeError: nothing was enqueued.
        """
        graph = ops.get_default_graph()
        while graph is not None:
            kind = self._pending[graph].take() if graph in self._pending else None
            if kind is not None:
                return kind
            graph = getattr(graph, "outer_graph", None)
        if self._latest is None:
            raise RuntimeError(
                "TPUEmbedding.dequeue: nothing was enqueued yet; call TPUEmbedding.enqueue before strategy.run, "
                "best in the same tf.function"
            )
        return self._latest


def _in_order(condition: Any) -> Any:
    return tf.raw_ops.Assert(
        condition=condition,
        data=[
            "a TPU would give this step another batch: batches leave the queue of a core in the order of "
            "TPUEmbedding.enqueue, and one of another kind was left there; dequeue each batch that is enqueued"
        ],
    )
