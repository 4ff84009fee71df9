"""One call of strategy.run, while it is traced: the lookup of a batch, and the update with its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from embexp.simulation import features, optimizers
from embexp.simulation.configuration import Configuration
from embexp.simulation.features import FeatureDescription
from embexp.simulation.queues import INFERENCE, TRAIN, BatchKind, BatchQueues
from embexp.specs.tables import Feature
from embexp.tables.row_engine import RowEngine


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
        cores: numbers of the cores, by replica.
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
            kind: of batch.
            queues: of all cores.

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
                occurrences = features.to_occurrences(one, layout, tensors, (place.core, number))
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
                "TPUEmbedding.apply_gradients: a TPU would wait forever, as nothing was dequeued before it in this "
                "strategy.run that was enqueued with training=True"
            )
        gradients = {
            place.input_of(one): part
            for mine, (whole, _) in zip(self._by_replica(), values, strict=True)
            for one, gradient in zip(configured.described, whole, strict=True)
            for place, part in zip(mine, _parts(gradient, len(mine)), strict=True)
        }
        rates = {
            table: optimizers.learning_rate(parameters, values[0][1])
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
                "TPUEmbedding.apply_gradients follows in the same strategy.run; enqueue with training=False if none "
                "is meant to"
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
