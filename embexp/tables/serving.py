"""Tables that are only looked up: those of an exported model, and on a CPU those that a TPU trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from embexp.specs.tables import Combiner, Feature
from embexp.tables import graph, inputs
from embexp.tables.graph import TableShape
from embexp.tables.inputs import without_autograph
from embexp.tables.row_engine import EmbeddingBackend, RowEngine
from embexp.tables.tpu_backend import shard_initializer
from embexp.tables.tpu_tables import FROZEN_ROWS_OPTIMIZER, TPUTable


class ServingBackend:
    """An `EmbeddingBackend` that looks up, but trains nothing.

    It creates the variables of the tables' rows and slots and attaches them, so that a checkpoint of a TPU's tables can
    be restored into them. Until then they hold the tables' initial values.

    Attributes:
        embedding: the `tf.tpu.experimental.embedding.TPUEmbeddingForServing`.
    """

    def __init__(self, tables: Mapping[str, TPUTable], features: Mapping[str, Feature]) -> None:
        """Creates the variables.

        Args:
            tables: by name, each in one device table.

        Raises:
            ValueError: a table has two device tables, which only a TPU needs.
        """
        for name, table in tables.items():
            if table.index is not None:
                raise ValueError(f"table {name!r} has two device tables; on a CPU it must have one")
        self._tables, self._features = dict(tables), dict(features)
        shapes = {
            name: TableShape(
                table.rows,
                table.dim,
                table.combiner,
                shard_initializer(table.source, table.rows, table.dim, table.chunk_bytes),
            )
            for name, table in tables.items()
        }
        optimizers = {name: table.optimizer or FROZEN_ROWS_OPTIMIZER for name, table in tables.items()}
        # Nothing reads the learning rates, so they may be those of step 0.
        _, configs = graph.to_tensorflow(shapes, features, optimizers, step=0, total_steps=1)
        self.embedding = tf.tpu.experimental.embedding.TPUEmbeddingForServing(configs, optimizer=None)
        self.embedding.build()
        values = {
            config.name: {slot: [variable] for slot, variable in self.embedding.variables[config.name].items()}
            for config in self.embedding.embedding_tables
        }
        for table in tables.values():
            table.attach(values, lambda: None)
        self._enqueued: tuple[dict[str, Any], dict[str, Any]] | None = None

    @without_autograph
    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes ids to look up; see `EmbeddingBackend.enqueue`.

        Raises:
            RuntimeError: `training` is set.
            ValueError: `inputs` does not allow an input.
            tf.errors.InvalidArgumentError: an id is outside its vocabulary; `inputs.translated_errors` translates it.
        """
        if training:
            raise RuntimeError("the serving backend only looks rows up; they can't be trained")
        ids, weights = {}, {}
        for name, feature in self._features.items():
            table, value = self._tables[feature.table], features[name]
            read = inputs.occurrences(name, feature, table.combiner, value)
            own, weights[name] = value if isinstance(value, tuple) else (value, None)
            with tf.control_dependencies([inputs.check(name, table.name, table.rows, read.ids)]):
                ids[name] = tf.nest.map_structure(tf.identity, own, expand_composites=True)
        self._enqueued = ids, weights

    @without_autograph
    def activations(self) -> dict[str, Any]:
        """Looks up what was enqueued; see `EmbeddingBackend.activations`.

        Raises:
            RuntimeError: nothing was enqueued.
        """
        if self._enqueued is None:
            raise RuntimeError("activations() comes once after enqueue()")
        ids, weights = self._enqueued
        self._enqueued = None
        found = self.embedding(ids, weights if any(each is not None for each in weights.values()) else None)
        return {
            name: tf.ensure_shape(found[name], [*found[name].shape[:-1], self._tables[feature.table].dim])
            for name, feature in self._features.items()
        }

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Raises RuntimeError: a TPU's rows are looked up by steps only."""
        raise RuntimeError("a TPU's rows are looked up by steps only")

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Raises RuntimeError: this backend trains nothing."""
        raise RuntimeError("the serving backend only looks rows up; they can't be trained")


class ExportedTable:
    """A table for tracing lookups. Its variable is of any number of rows, and holds none.

    `RowEngine` sees a frozen table.

    Attributes:
        dim: width of a row.
        combiner: how several rows of one example become one vector.
        variable: float32 [any, dim], of no rows.
    """

    frozen = True

    def __init__(self, name: str, rows: int, dim: int, *, combiner: Combiner) -> None:
        self.name, self.rows, self.dim, self.combiner = name, rows, dim, combiner
        self.slots: dict[str, Any] = {}
        self.variable = tf.Variable(tf.zeros([0, dim]), shape=[None, dim], trainable=False, name=name)

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table: float32 [n, dim]; it has no slots."""
        if slot is not None:
            raise KeyError(slot)
        return tf.gather(self.variable, ids)


class ExportedLookup:
    """An `EmbeddingBackend` that looks up exported tables, for batches of any size; it trains nothing.

    An `output_shape` names the size of training batches. Here the rest of that shape holds for any batch.
    """

    def __init__(self, tables: Mapping[str, ExportedTable], features: Mapping[str, Feature]) -> None:
        """Creates no variables."""
        self._shapes = {
            name: feature.activation_shape(tables[feature.table].dim)
            for name, feature in features.items()
            if feature.output_shape is not None
        }
        free = {name: _of_any_batch(feature) for name, feature in features.items()}
        self._engine: EmbeddingBackend = RowEngine(
            tables,  # type: ignore[arg-type]  # what lookups need of a table
            free,
            {},
            step=None,
            total_steps=1,
        )

    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes ids to look up; see `EmbeddingBackend.enqueue`."""
        self._engine.enqueue(features, training=training)

    def activations(self) -> dict[str, Any]:
        """Looks up what was enqueued; see `EmbeddingBackend.activations`."""
        found = self._engine.activations()
        return found | {name: tf.reshape(found[name], [-1, *shape]) for name, shape in self._shapes.items()}

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Rows of a feature's table; see `EmbeddingBackend.rows`."""
        return self._engine.rows(feature, start, stop)

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Raises RuntimeError: this backend trains nothing."""
        raise RuntimeError("exported tables are only looked up; they can't be trained")


def _of_any_batch(feature: Feature) -> Feature:
    if feature.output_shape is None:
        return feature
    length = math.prod(feature.output_shape[1:])
    return feature.model_copy(update={"output_shape": None, "max_sequence_length": length if length > 1 else 0})
