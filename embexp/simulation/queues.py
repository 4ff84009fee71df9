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

from embexp.simulation.features import Layout

TRAIN, INFERENCE, EITHER = "train", "inference", "train or inference"
"""Modes of batches: gradients will follow, or not; either, if a replica enqueues: a TPU infers it from the step."""

_numbers = itertools.count()


@dataclass(frozen=True)
class BatchKind:
    """What tracing a step must know about the batch that it takes.

    Attributes:
        mode: `TRAIN`, `INFERENCE` or `EITHER`.
        layouts: by feature.
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


class BatchQueues:
    """The queues of all cores, and the kind of batch that a step takes while it is traced.

    That is the kind of the `put` that was traced in the same graph, in one around it, or else last.
    """

    def __init__(self, cores: int) -> None:
        """Begins without queues; each kind of batch gets one for each core."""
        self._cores = cores
        self._queues: dict[BatchKind, list[Queue]] = {}
        self._pending: weakref.WeakKeyDictionary[Any, PendingKinds] = weakref.WeakKeyDictionary()
        self._latest: BatchKind | None = None

    def put(self, kind: BatchKind, core: int, batch: Sequence[Any]) -> Any:
        """Appends a core's part of a batch to its queue; returns the operation."""
        self._latest = kind
        self._pending.setdefault(ops.get_default_graph(), PendingKinds()).add(kind, core)
        return self.of_kind(kind)[core].put(batch)

    def of_kind(self, kind: BatchKind) -> list[Queue]:
        """The queues of a kind of batch, by core."""
        if kind not in self._queues:
            dtypes = list(itertools.chain.from_iterable(layout.dtypes() for layout in kind.layouts))
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
