"""The embedding hardware of a simulated TPU, whose operations the row engine serves, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.compiler.xla import xla

from embexp.specs.tables import Feature
from embexp.strategies.simulation import configuration, replicas
from embexp.strategies.simulation.configuration import Configuration, Variables, copy
from embexp.strategies.simulation.queues import (
    EITHER,
    INFERENCE,
    TRAIN,
    BatchKind,
    BatchQueues,
    FeatureDescription,
    read_input,
    to_occurrences,
)
from embexp.tables.inputs import without_autograph
from embexp.tables.row_engine import RowEngine


class Engine:
    """State of the embedding hardware of one simulated TPU.

    Batches go from `enqueue` to `receive` at run time, through queues, so the two need not be traced together; see
    `BatchQueues`.
    """

    def __init__(self, cores: int, embedding_feature: str = "V1") -> None:
        """Begins without a configuration.

        Args:
            cores: number of cores of the TPU.
            embedding_feature: the embedding hardware that the TPU reports.
        """
        self._cores, self._feature = cores, embedding_feature
        self.reset()

    def reset(self) -> None:
        """Removes all state, as initialising a TPU does."""
        self._configured: Configuration | None = None
        self._queues = BatchQueues(self._cores)
        self._step: Step | None = None

    def is_configured(self) -> bool:
        """Whether a `TPUEmbedding` was built."""
        return self._configured is not None

    @without_autograph
    def configure(self, proto: Any) -> None:
        """Serves the configuration of a `TPUEmbedding`.

        Args:
            proto: `TPUEmbeddingConfiguration`.

        Raises:
            NotImplementedError: the simulation does not support a setting.
            RuntimeError: the TPU has no hardware for `TPUEmbedding`.
        """
        if self._feature != "V1":
            other = (
                "it has SparseCores, for tf.tpu.experimental.embedding.TPUEmbeddingV2" if self._feature == "V2" else ""
            )
            raise RuntimeError(
                f"TPUEmbedding: this TPU reports the embedding hardware {self._feature}, but TPUEmbedding needs V1"
                + (f"; {other}" if other else "")
            )
        self._configured = Configuration.from_proto(proto)

    def load(self, variables: Variables, table_config: Sequence[Any]) -> None:
        """Serves the loading of host variables into the TPU.

        The variables of the first `TPUEmbedding` since initialisation become the TPU's memory; those of another with
        tables of the same names are copied into it.
        """
        configured = self._require_configured("loading of embeddings")
        if configured.variables is not None:
            copy(variables, configured.variables)
            configured.flush()
        else:
            configured.load(variables, table_config)

    def retrieve(self, variables: Variables, table_config: Sequence[Any]) -> None:
        """Serves the retrieval of the TPU's memory into host variables; see `load`."""
        configured = self._require_configured("retrieval of embeddings")
        if configured.variables is not None:
            copy(configured.variables, variables)
            configured.flush()

    @without_autograph
    def enqueue(
        self,
        sample_indices_or_row_splits: Sequence[Any],
        embedding_indices: Sequence[Any],
        aggregation_weights: Sequence[Any],
        device_ordinal: int,
        combiners: Sequence[str] | None = None,
        mode_override: Any = None,
        name: str | None = None,
    ) -> Any:
        """Serves `EnqueueTPUEmbeddingArbitraryTensorBatch`."""
        described = self._require_configured("enqueue").described
        by_replica = device_ordinal < 0
        if by_replica and replicas.in_function():
            raise RuntimeError(
                "TPUEmbedding.enqueue: the current graph does not match graph which contains TPUReplicateContext: "
                "a function passed to strategy.run can't enqueue inside a tf.function, and neither could it on a TPU"
            )
        core = self._own_core() if by_replica else device_ordinal
        inputs = zip(described, sample_indices_or_row_splits, embedding_indices, aggregation_weights, strict=True)
        read = [read_input(*each) for each in inputs]
        kind = BatchKind(EITHER if by_replica else _mode(mode_override), tuple(layout for layout, _ in read))
        return self._queues.put(kind, core, [tensor for _, tensors in read for tensor in tensors])

    @without_autograph
    def receive(self, num_outputs: int, config: Any, name: str | None = None) -> list[Any]:
        """Serves `RecvTPUEmbeddingActivations`: the activations of this replica, by feature."""
        described = self._require_configured("dequeue").described
        received: list[Any] = replicas.exchange(
            "TPUEmbedding.dequeue",
            self._look_up,
            None,
            outside=lambda: [tf.zeros([*one.shape, one.dim]) for one in described],
        )
        return received

    @without_autograph
    def send(
        self, inputs: Sequence[Any], config: Any, learning_rates: Sequence[Any] | None = None, name: str | None = None
    ) -> Any:
        """Serves `SendTPUEmbeddingGradients`: updates the rows with the gradients of all replicas together."""
        sent = list(inputs), list(learning_rates or [])
        replicas.exchange("TPUEmbedding.apply_gradients", self._update, sent, outside=tf.no_op)
        return tf.no_op()

    @without_autograph
    def replicate(
        self,
        computation: Callable[..., Any],
        inputs: Sequence[Sequence[Any]] | None = None,
        infeed_queue: Any = None,
        device_assignment: Any = None,
        *_: Any,
        **__: Any,
    ) -> list[Any]:
        """Serves `tpu.split_compile_and_replicate`, behind `tpu.replicate`, `rewrite`, `shard` and `batch_parallel`.

        It ignores other options, which concern compilation for a TPU.

        Returns:
            An operation in place of the compilation, and the results by replica, flat ones as lists, as from a TPU.

        Raises:
            NotImplementedError: there is an infeed queue.
            RuntimeError: a batch that was enqueued for training gets no gradients.
        """
        if infeed_queue is not None:
            raise NotImplementedError("the simulated TPU has no infeed queues: pass the data as arguments")
        inputs = [[]] if inputs is None else inputs
        outer, self._step = self._step, Step(_cores(device_assignment, len(inputs)))
        try:
            results = replicas.replicate(computation, inputs)
            self._step.check_applied()
        finally:
            self._step = outer
        return [tf.no_op(), [_returned(result) for result in results]]

    def _require_configured(self, call: str) -> Configuration:
        if self._configured is None:
            raise RuntimeError(
                f"{call}: this simulated TPU no longer has a TPUEmbedding: it was initialised again, or its block ended"
            )
        return self._configured

    def _require_step(self) -> Step:
        assert self._step is not None  # replicas exchange values only inside one
        return self._step

    def _own_core(self) -> int:
        cores = self._require_step().cores[replicas.number()]
        if len(cores) > 1:
            raise NotImplementedError(
                "TPUEmbedding.enqueue: a replica of several cores can't enqueue inside strategy.run; enqueue before it"
            )
        return cores[0]

    def _look_up(self, _: list[Any]) -> list[list[Any]]:
        kind = self._queues.kind_to_take()
        return self._require_step().look_up(self._require_configured("dequeue"), kind, self._queues)

    def _update(self, values: list[Any]) -> list[None]:
        self._require_step().update(self._require_configured("apply_gradients"), values)
        return [None] * len(values)


def _cores(assignment: Any, replica_count: int) -> list[list[int]]:
    """Numbers of each replica's cores, for a `DeviceAssignment`."""
    if assignment is None:
        return [[replica] for replica in range(replica_count)]
    parts = range(assignment.num_cores_per_replica)
    return [[int(assignment.tpu_ordinal(replica, part)) for part in parts] for replica in range(replica_count)]


def _returned(result: Any) -> Any:
    if not xla.is_flat(result):
        return result
    flat = [] if result is None else tf.nest.flatten(result)
    return [one for one in flat if not isinstance(one, tf.Operation)] or tf.no_op()


def _mode(mode: Any) -> str:
    if mode not in (TRAIN, INFERENCE):
        raise NotImplementedError(f"TPUEmbedding.enqueue: training must be True or False while tracing, got {mode}")
    return str(mode)


@dataclass(frozen=True)
class Place:
    """Where a part of a batch is looked up.

    Attributes:
        replica: number of the replica.
        part: number of the core in its replica.
        core: number of the core in the TPU.
        alone: its replica has no other core.
    """

    replica: int
    part: int
    core: int
    alone: bool

    def input_of(self, feature: FeatureDescription) -> str:
        """Name of a feature's input here, for errors."""
        return f"{feature.name} of replica {self.replica}" + ("" if self.alone else f", core {self.part}")


@dataclass(eq=False)
class Step:
    """One strategy.run.

    Attributes:
        engine: of a batch that was looked up, until its gradients are applied.
        must_apply: whether gradients must follow.
        ids: of that batch, by table.
    """

    cores: Sequence[Sequence[int]]
    engine: RowEngine | None = None
    must_apply: bool = False
    ids: dict[str, list[Any]] = field(default_factory=dict)

    def places(self) -> Iterator[Place]:
        """All places, those of the first replica first."""
        for replica, cores in enumerate(self.cores):
            for part, core in enumerate(cores):
                yield Place(replica, part, core, alone=len(cores) == 1)

    def look_up(self, configured: Configuration, kind: BatchKind, queues: BatchQueues) -> list[list[Any]]:
        """Takes a batch and looks it up.

        Args:
            configured: the `TPUEmbedding`.

        Returns:
            The activations, by replica and feature; those of a replica's cores are joined along the first dimension.

        Raises:
            RuntimeError: the batch before got no gradients.
        """
        self.check_applied()
        read = {}
        self.ids = {}
        taken = queues.take(kind, [place.core for place in self.places()])
        for place in self.places():
            batch = iter(taken[place.core])
            for number, (one, layout) in enumerate(zip(configured.described, kind.layouts, strict=True)):
                tensors = list(itertools.islice(batch, len(layout.dtypes())))
                occurrences = to_occurrences(one, layout, tensors, (place.core, number))
                read[place.input_of(one)] = occurrences
                self.ids.setdefault(one.table, []).append(occurrences.ids)
        training = kind.mode != INFERENCE
        engine = self._engine(configured, configured.tables)
        engine.enqueue_occurrences(read, training=training)
        activations = engine.activations()
        if configured.pipeline is not None:
            if training:
                stale = self._engine(configured, configured.pipeline.stale())
                stale.enqueue_occurrences(read, training=False)
                activations = stale.activations()
            else:
                configured.pipeline.flush()
        self.engine, self.must_apply = engine if training else None, kind.mode == TRAIN
        return [
            [_joined([activations[place.input_of(one)] for place in mine]) for one in configured.described]
            for mine in self._by_replica()
        ]

    def update(self, configured: Configuration, values: Sequence[tuple[list[Any], list[Any]]]) -> None:
        """Updates the rows that were looked up.

        Args:
            configured: the `TPUEmbedding`.
            values: by replica, its gradients by feature, and the learning rates that it sends.

        Raises:
            RuntimeError: nothing was looked up for training.
        """
        if self.engine is None:
            raise RuntimeError(
                "TPUEmbedding.apply_gradients: a TPU would wait forever, because this strategy.run has not "
                "dequeued anything that was enqueued with training=True"
            )
        gradients = {
            place.input_of(one): part
            for mine, (whole, _) in zip(self._by_replica(), values, strict=True)
            for one, gradient in zip(configured.described, whole, strict=True)
            for place, part in zip(mine, _parts(gradient, len(mine)), strict=True)
        }
        rates = {
            table: configuration.learning_rate_of(parameters, values[0][1])
            for table, parameters in configured.parameters.items()
        }
        if configured.pipeline is not None:
            configured.pipeline.remember(self.ids)
        self.engine.apply_gradients(gradients, rates)
        self.engine = None

    def check_applied(self) -> None:
        """Checks that a batch for training got its gradients.

        Raises:
            RuntimeError: it did not.
        """
        if self.engine is not None and self.must_apply:
            raise RuntimeError(
                "a TPU would wait forever: embeddings were enqueued with training=True and dequeued, but no "
                "TPUEmbedding.apply_gradients follows in the same strategy.run; if none should follow, enqueue "
                "with training=False"
            )

    def _engine(self, configured: Configuration, tables: Any) -> RowEngine:
        inputs = {
            place.input_of(one): Feature(table=one.table) for place in self.places() for one in configured.described
        }
        return RowEngine(dict(tables), inputs, configured.optimizers, step=None, total_steps=1)

    def _by_replica(self) -> list[list[Place]]:
        return [list(mine) for _, mine in itertools.groupby(self.places(), key=lambda place: place.replica)]


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _parts(whole: Any, count: int) -> list[Any]:
    return [whole] if count == 1 else list(tf.split(whole, count))
