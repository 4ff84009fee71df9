"""Queues between the host, which enqueues ids, and the cores, which look them up; the form of what is in them."""

from __future__ import annotations

import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from embexp.specs.tables import Combiner
from embexp.tables.inputs import Occurrences, denominator_of, row_numbers


@dataclass(frozen=True)
class Layout:
    """Which tensors the host sends to the cores for a feature.

    Attributes:
        summed: several ids may add to one vector, so there are segments; False: id i is vector i.
        divided: there is a denominator for each vector.
    """

    summed: bool = False
    weighted: bool = False
    divided: bool = False

    def dtypes(self) -> list[Any]:
        """Types of the tensors, in the order in which `read_input` returns them."""
        optional = ((self.summed, tf.int32), (self.weighted, tf.float32), (self.divided, tf.float32))
        return [tf.int64, *(dtype for there, dtype in optional if there)]


@dataclass(frozen=True)
class FeatureDescription:
    """A feature in a `TPUEmbeddingConfiguration`.

    Attributes:
        name: of the feature; its number if it has no name.
        dim: width of a row.
        combiner: "sum", "mean" or "sqrtn".
        shape: of its activations for one replica, without dim.
    """

    name: str
    table: str
    dim: int
    combiner: str
    shape: tuple[int, ...]


def read_input(feature: FeatureDescription, places: Any, ids: Any, weights: Any) -> tuple[Layout, list[Any]]:
    """Reads one replica's input of a feature.

    Sparse ids combine over their last dimension. Ids beyond the end of another dimension, except the first, are cut
    off: so `TPUEmbedding` cuts sequences. Ragged ids with one row per vector combine; with k vectors per row they are a
    sequence, cut or padded with zeros to k.

    Args:
        places: int32; empty for dense ids, indices [n, rank] for sparse, row splits for ragged.
        ids: integers [n].
        weights: float32 [n], or empty for all 1.

    Returns:
        The layout, and its tensors: ids, segments, weights, denominators.

    Raises:
        ValueError: the input does not fit the feature's shape.
    """
    ids = tf.cast(ids, tf.int64)
    weights = None if weights.shape.num_elements() == 0 else weights
    if places.shape.rank == 2:
        kept, segments = _sparse(feature, places)
    elif places.shape.num_elements() == 0:
        return Layout(), [_dense(feature, ids)]
    else:
        kept, segments = _ragged(feature, places, tf.size(ids))
    if weights is not None:
        message = f"feature {feature.name!r}: the numbers of weights and ids differ"
        with tf.control_dependencies([_equal(tf.size(ids), tf.size(weights), message)]):
            weights = tf.identity(weights)
    if kept is not None:
        ids, segments = tf.boolean_mask(ids, kept), tf.boolean_mask(segments, kept)
        weights = None if weights is None else tf.boolean_mask(weights, kept)
    denominators = denominator_of(Combiner(feature.combiner), weights, segments, math.prod(feature.shape))
    optional = [tensor for tensor in (segments, weights, denominators) if tensor is not None]
    return Layout(True, weights is not None, denominators is not None), [ids, *optional]


def to_occurrences(
    feature: FeatureDescription, layout: Layout, tensors: list[Any], source: tuple[Any, ...]
) -> Occurrences:
    """The tensors of `read_input` for the row engine; `source` identifies the ids."""
    rest = list(tensors)
    ids = rest.pop(0)
    ids.set_shape([None] if layout.summed else [math.prod(feature.shape)])
    segments, weights, denominators = (
        rest.pop(0) if there else None for there in (layout.summed, layout.weighted, layout.divided)
    )
    shape = tf.constant(feature.shape, tf.int32)
    return Occurrences(source, ids, segments, weights, denominators, shape, tf.TensorShape(feature.shape))


def _dense(feature: FeatureDescription, ids: Any) -> Any:
    count = math.prod(feature.shape)
    if ids.shape.num_elements() not in (None, count):
        raise ValueError(
            f"feature {feature.name!r}: {ids.shape.num_elements()} dense ids, but its shape {feature.shape} "
            f"holds {count}"
        )
    if ids.shape.is_fully_defined():
        return ids
    message = f"feature {feature.name!r}: its shape {feature.shape} holds a different number of dense ids"
    with tf.control_dependencies([_equal(tf.size(ids), count, message)]):
        return tf.identity(ids)


def _sparse(feature: FeatureDescription, indices: Any) -> tuple[Any, Any]:
    rank = indices.shape[1]
    if rank is None or rank - 1 != len(feature.shape):
        raise ValueError(
            f"feature {feature.name!r}: sparse ids of rank {rank}, but its shape {feature.shape} needs rank "
            f"{len(feature.shape) + 1}"
        )
    message = f"feature {feature.name!r}: sparse ids of more than {feature.shape[0]} examples"
    with tf.control_dependencies([_equal(tf.reduce_all(indices[:, 0] < feature.shape[0]), True, message)]):
        segments = indices[:, 0] + 0
    for axis, length in enumerate(feature.shape[1:], start=1):
        segments = segments * length + indices[:, axis]
    if rank == 2:
        return None, segments
    return tf.reduce_all(indices[:, 1:-1] < tf.constant(feature.shape[1:], tf.int32), axis=1), segments


def _ragged(feature: FeatureDescription, splits: Any, count: Any) -> tuple[Any, Any]:
    vectors, rows = math.prod(feature.shape), splits.shape[0]
    if rows is None:
        raise ValueError(
            f"feature {feature.name!r}: the number of rows of its ragged ids must be known while tracing: "
            "batch with drop_remainder=True"
        )
    length, rest = divmod(vectors, rows - 1) if rows > 1 else (0, vectors)
    if rest or length < 1:
        raise ValueError(
            f"feature {feature.name!r}: its shape {feature.shape} holds {vectors} vectors, which is not a "
            f"multiple of the {rows - 1} rows of its ragged ids"
        )
    row = row_numbers(splits, count)
    if length == 1:
        return None, row
    place = tf.range(count) - tf.gather(splits, row)
    return place < length, row * length + place


def _equal(actual: Any, expected: Any, message: str) -> Any:
    return tf.raw_ops.Assert(condition=tf.equal(actual, expected), data=[message, actual, expected])


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
                "has been enqueued; call TPUEmbedding.enqueue before each strategy.run, preferably in the same "
                "tf.function"
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
                "TPUEmbedding.dequeue: nothing has been enqueued yet; call TPUEmbedding.enqueue before "
                "strategy.run, preferably in the same tf.function"
            )
        return self._latest


def _in_order(condition: Any) -> Any:
    return tf.raw_ops.Assert(
        condition=condition,
        data=[
            "a TPU would give this step a different batch: batches leave the queue of a core in the order of "
            "TPUEmbedding.enqueue, and one of another kind is still there; dequeue each batch that you enqueue"
        ],
    )
