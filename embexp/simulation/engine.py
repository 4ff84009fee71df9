"""The embedding hardware of a simulated TPU, whose operations the row engine serves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.simulation import features, optimizers, replicas
from embexp.simulation.configuration import Configuration, Variables, copy
from embexp.simulation.features import FeatureDescription
from embexp.simulation.queues import BatchKind, BatchQueues
from embexp.specs.tables import Feature
from embexp.tables.autograph import without_autograph
from embexp.tables.row_engine import RowEngine

_TRAIN, _INFERENCE, _EITHER = "train", "inference", "train or inference"


@dataclass(eq=False)
class _Run:
    """One strategy.run, while it is traced.

    Attributes:
        engine: of a batch that was looked up, until its gradients are applied.
        must_apply: whether gradients must follow.
    """

    engine: RowEngine | None = None
    must_apply: bool = False


class Engine:
    """State of the embedding hardware of one simulated TPU.

    Batches go from `enqueue` to `receive` at run time, through queues, so the two need not be traced together; see
    `BatchQueues`.
    """

    def __init__(self, replica_count: int) -> None:
        """Begins without a configuration."""
        self._replica_count = replica_count
        self.reset()

    def reset(self) -> None:
        """Removes all state, as initialising a TPU does."""
        self._configured: Configuration | None = None
        self._queues = BatchQueues(self._replica_count)
        self._run: _Run | None = None

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
        """
        self._configured = Configuration.from_proto(proto)

    def load(self, config: Any, hosts: Any, variables: Variables, table_config: Sequence[Any]) -> None:
        """Serves the loading of host variables into the TPU.

        The variables of the first `TPUEmbedding` since initialisation become the TPU's memory; those of another with
        tables of the same names are copied into it.
        """
        configured = self._require_configured("loading of embeddings")
        if configured.variables is not None:
            copy(variables, configured.variables)
        else:
            configured.load(variables, table_config)

    def retrieve(self, config: Any, hosts: Any, variables: Variables, table_config: Sequence[Any]) -> None:
        """Serves the retrieval of the TPU's memory into host variables; see `load`."""
        memory = self._require_configured("retrieval of embeddings").variables
        if memory is not None:
            copy(memory, variables)

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
                "a function that strategy.run is given can't enqueue inside a tf.function, as a TPU could not either"
            )
        replica = replicas.number() if by_replica else device_ordinal
        inputs = zip(described, sample_indices_or_row_splits, embedding_indices, aggregation_weights, strict=True)
        read = [features.read_input(*each) for each in inputs]
        kind = BatchKind(_EITHER if by_replica else _mode(mode_override), tuple(layout for layout, _ in read))
        return self._queues.put(kind, replica, [tensor for _, tensors in read for tensor in tensors])

    @without_autograph
    def receive(self, num_outputs: int, config: Any, name: str | None = None) -> list[Any]:
        """Serves `RecvTPUEmbeddingActivations`: the activations of this replica, by feature."""
        received: list[Any] = replicas.exchange("TPUEmbedding.dequeue", self._look_up, None)
        return received

    @without_autograph
    def send(
        self, inputs: Sequence[Any], config: Any, learning_rates: Sequence[Any] | None = None, name: str | None = None
    ) -> Any:
        """Serves `SendTPUEmbeddingGradients`: updates the rows with the gradients of all replicas together."""
        replicas.exchange("TPUEmbedding.apply_gradients", self._update, (list(inputs), list(learning_rates or [])))
        return tf.no_op()

    @without_autograph
    def replicate(self, computation: Callable[..., Any], inputs: Sequence[Sequence[Any]], **_: Any) -> list[Any]:
        """Serves `tpu.replicate`; ignores its options, which concern compilation for a TPU.

        Raises:
            RuntimeError: a batch that was enqueued for training gets no gradients.
        """
        outer, self._run = self._run, _Run()
        try:
            results = replicas.replicate(computation, inputs)
            self._check_applied(self._run)
            return results
        finally:
            self._run = outer

    def _require_configured(self, call: str) -> Configuration:
        if self._configured is None:
            raise RuntimeError(
                f"{call}: this simulated TPU has no TPUEmbedding; it was initialised again, or its block ended"
            )
        return self._configured

    def _look_up(self, _: list[Any]) -> list[list[Any]]:
        configured, run = self._require_configured("dequeue"), self._run
        assert run is not None  # replicas exchange values only inside one
        self._check_applied(run)
        kind = self._queues.kind_to_take()
        engine = RowEngine(
            dict[str, Any](configured.tables),
            {
                _input(one, replica): Feature(table=one.table)
                for replica in range(self._replica_count)
                for one in configured.described
            },
            configured.optimizers,
            step=None,
            total_steps=1,
        )
        read = {}
        for replica, queue in enumerate(self._queues.of_kind(kind)):
            batch = iter(queue.take())
            for number, (one, layout) in enumerate(zip(configured.described, kind.layouts, strict=True)):
                tensors = list(itertools.islice(batch, len(layout.dtypes())))
                read[_input(one, replica)] = features.to_occurrences(one, layout, tensors, (replica, number))
        engine.enqueue_occurrences(read, training=kind.mode != _INFERENCE)
        activations = engine.activations()
        run.engine, run.must_apply = None if kind.mode == _INFERENCE else engine, kind.mode == _TRAIN
        return [
            [activations[_input(one, replica)] for one in configured.described]
            for replica in range(self._replica_count)
        ]

    def _update(self, values: list[Any]) -> list[None]:
        configured, run = self._require_configured("apply_gradients"), self._run
        if run is None or run.engine is None:
            raise RuntimeError(
                "TPUEmbedding.apply_gradients: a TPU would wait forever, as nothing was dequeued before it in this "
                "strategy.run that was enqueued with training=True"
            )
        gradients = {
            _input(one, replica): gradient
            for replica, (inputs, _) in enumerate(values)
            for one, gradient in zip(configured.described, inputs, strict=True)
        }
        rates = {
            table: optimizers.learning_rate(parameters, values[0][1])
            for table, parameters in configured.parameters.items()
        }
        run.engine.apply_gradients(gradients, rates)
        run.engine = None
        return [None] * self._replica_count

    def _check_applied(self, run: _Run) -> None:
        if run.engine is not None and run.must_apply:
            raise RuntimeError(
                "a TPU would wait forever: embeddings were enqueued with training=True and dequeued, but no "
                "TPUEmbedding.apply_gradients follows in the same strategy.run; enqueue with training=False if none "
                "is meant to"
            )


def _input(feature: FeatureDescription, replica: int) -> str:
    return f"{feature.name} of replica {replica}"


def _mode(mode: Any) -> str:
    if mode not in (_TRAIN, _INFERENCE):
        raise NotImplementedError(f"TPUEmbedding.enqueue: training must be True or False while tracing, got {mode}")
    return str(mode)
