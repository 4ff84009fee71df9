"""Converts tables and features to TensorFlow's own objects, `tf.tpu.experimental.embedding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Combiner, Feature
from embexp.tables import optimizers as rules


@dataclass(frozen=True)
class TableShape:
    """Size, combiner and initializer of a table.

    Attributes:
        initializer: callable `(shape, dtype) -> tensor` with which a `TPUEmbedding` fills the table;
            None: TensorFlow's default, truncated normal of 1/sqrt(dim).
    """

    rows: int
    dim: int
    combiner: Combiner = Combiner.MEAN
    initializer: Callable[..., Any] | None = None


def to_tensorflow(
    tables: Mapping[str, TableShape],
    features: Mapping[str, Feature],
    optimizers: Mapping[str, TableOptimizer],
    *,
    step: Any = None,
    total_steps: int | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Builds fresh `TableConfig` and `FeatureConfig` objects.

    Each call builds new ones, because the constructor of `TPUEmbedding` changes its arguments.

    Args:
        features: by name; features of one table share its `TableConfig` object.
        step: int64 variable with the number of the step; needed if any learning rate changes over time.
        total_steps: length of the run; needed if any learning rate changes over time.

    Returns:
        TableConfig by table name and FeatureConfig by feature name.

    Raises:
        ValueError: a learning rate changes over time, but `step` or `total_steps` is missing.
    """
    embedding = tf.tpu.experimental.embedding
    rates: dict[Any, Any] = {}
    table_configs = {
        name: embedding.TableConfig(
            vocabulary_size=table.rows,
            dim=table.dim,
            initializer=table.initializer,
            optimizer=_optimizer(optimizers[name], _learning_rate(name, optimizers[name], step, total_steps, rates)),
            combiner=table.combiner.value,
            name=name,
        )
        for name, table in tables.items()
    }
    feature_configs = {
        name: embedding.FeatureConfig(
            table=table_configs[feature.table],
            max_sequence_length=feature.max_sequence_length,
            validate_weights_and_indices=feature.validate_weights_and_indices,
            output_shape=None if feature.output_shape is None else list(feature.output_shape),
            name=name,
        )
        for name, feature in features.items()
    }
    return table_configs, feature_configs


def _optimizer(optimizer: TableOptimizer, learning_rate: Any) -> Any:
    if optimizer.tensorflow is None:
        raise ValueError(f"TPUEmbedding has no optimizer {optimizer.kind}")
    if optimizer.clipnorm is not None:
        raise ValueError("TPUEmbedding does not clip the norm of a row's gradient")
    if optimizer.decays_per_epoch:
        raise ValueError("TPUEmbedding decays a row in each step that looks it up")
    settings = {name: getattr(optimizer, name) for name in type(optimizer).model_fields}
    for name in ("kind", "schedule", "clipnorm", "weight_decay_per"):
        del settings[name]
    for name in ("weight_decay_factor", "multiply_weight_decay_factor_by_learning_rate"):
        settings[name] = settings[name] or None
    return getattr(tf.tpu.experimental.embedding, optimizer.tensorflow)(**settings | {"learning_rate": learning_rate})


def _learning_rate(
    table: str, optimizer: TableOptimizer, step: Any, total_steps: int | None, known: dict[Any, Any]
) -> Any:
    """A number, or a function that computes it at each step.

    Tables with the same rate share one function: a TPU is sent one number per function, and more of them cost time.
    """
    schedule, rate = optimizer.schedule, optimizer.learning_rate
    if rules.is_constant(schedule):
        return rate
    if step is None or total_steps is None:
        raise ValueError(f"the learning rate of table {table!r} changes over time: step and total_steps are needed")
    return known.setdefault(
        (rate, schedule), lambda: rate * rules.schedule_factor(schedule, step, total_steps=total_steps)
    )
