"""What a TPU trained, looked up on a processor: TensorFlow's own `TPUEmbeddingForServing`, from the same config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tensorflow as tf

from embexp.specs.tables import Feature
from embexp.tables import bounds, graph, inputs
from embexp.tables.graph import TableShape
from embexp.tables.tpu_backend import first_values
from embexp.tables.tpu_tables import STILL, TPUTable

_F = TypeVar("_F", bound=Callable[..., Any])
_as_written: Callable[[_F], _F] = tf.autograph.experimental.do_not_convert


class ServingBackend:
    """An `EmbeddingBackend` that looks up and trains nothing.

    It makes the tables' variables, rows and slots, and attaches them, so that a checkpoint of a TPU's tables restores
    them; its rows are the tables' first values until then.

    Attributes:
        embedding: the `tf.tpu.experimental.embedding.TPUEmbeddingForServing`.
    """

    def __init__(self, tables: Mapping[str, TPUTable], features: Mapping[str, Feature]) -> None:
        """Makes the variables.

        Args:
            tables: by name, each in one part.
            features: by name.

        Raises:
            ValueError: a table is in two parts, which only a TPU needs.
        """
        for name, table in tables.items():
            if table.index is not None:
                raise ValueError(f"table {name!r} is in two parts; on a processor it is to be whole")
        self._tables, self._features = dict(tables), dict(features)
        shapes = {
            name: TableShape(
                table.rows,
                table.dim,
                table.combiner,
                first_values(table.source, table.rows, table.dim, table.chunk_bytes),
            )
            for name, table in tables.items()
        }
        still = dict.fromkeys(tables, STILL)
        optimizers = still | {name: table.optimizer for name, table in tables.items() if table.optimizer is not None}
        # The learning rates are never asked for, so they may be those of step 0.
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

    @_as_written
    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes ids to be looked up; see `EmbeddingBackend.enqueue`.

        Raises:
            RuntimeError: it is for training.
            ValueError: an input is none that `inputs` allows.
            tf.errors.InvalidArgumentError: an id is outside its vocabulary; `bounds.readable` translates it.
        """
        if training:
            raise RuntimeError("rows that are looked up for serving can't be trained")
        ids, weights = {}, {}
        for name, feature in self._features.items():
            table, value = self._tables[feature.table], features[name]
            read = inputs.occurrences(name, feature, table.combiner, value)
            own, weights[name] = value if isinstance(value, tuple) else (value, None)
            with tf.control_dependencies([bounds.check(name, table.name, table.rows, read.ids)]):
                ids[name] = tf.nest.map_structure(tf.identity, own, expand_composites=True)
        self._enqueued = ids, weights

    @_as_written
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

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Refuses; see `enqueue`."""
        raise RuntimeError("rows that are looked up for serving can't be trained")
