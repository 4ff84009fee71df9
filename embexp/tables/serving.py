"""Tables of an exported model, which are only looked up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from embexp.specs.tables import Combiner, Feature
from embexp.tables.row_engine import EmbeddingBackend, RowEngine


class ExportedTable:
    """A table for tracing lookups. Its variable is of any number of rows, and holds none.

    `RowEngine` sees a frozen table.

    Attributes:
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
