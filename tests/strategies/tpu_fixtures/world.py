"""Tables, features, ids and data sets which all cases share, as facts of tpu_embedding_base_test.py.

Two tables, both filled with 0, 1, 2, … in row order: `video` (8 × 4, combiner sum) is read by the features
`watched` and `favorited`, `user` (16 × 2, combiner mean) by `friends`. A global batch has four examples, two per core.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

api = tf.tpu.experimental.embedding

CORES = 2
PER_CORE = 2
BATCH = 4
RATE = 0.1

VIDEO = np.arange(32.0).reshape(8, 4)
USER = np.arange(32.0).reshape(16, 2)
TABLE_OF = {"watched": "video", "favorited": "video", "friends": "user"}
COMBINER_OF = {"video": "sum", "user": "mean"}

WATCHED = ((0,), (0, 1), (0, 1), (1,))
FAVORITED = ((0, 1), (1,), (0,), (0, 1))
FRIENDS = ((3,), (0, 1, 2), (3,), (0, 1, 2))
IDS = {"watched": WATCHED, "favorited": FAVORITED, "friends": FRIENDS}
WIDTH = {"watched": 2, "favorited": 2, "friends": 3}


def tables() -> dict[str, Any]:
    """New TableConfigs (TPUEmbedding writes into those it gets)."""
    values = tf.constant_initializer(np.arange(32.0))
    return {
        "video": api.TableConfig(8, 4, initializer=values, combiner="sum", name="video"),
        "user": api.TableConfig(16, 2, initializer=values, combiner="mean", name="user"),
    }


def features(lengths: tuple[int, int, int] = (0, 0, 0), output_shape: Any = None) -> tuple[Any, ...]:
    """The three features in their order, each with its `max_sequence_length`, all with one `output_shape`."""
    made = tables()
    return tuple(
        api.FeatureConfig(made[table], max_sequence_length=length, output_shape=output_shape, name=name)
        for (name, table), length in zip(TABLE_OF.items(), lengths, strict=True)
    )


def optimizer(name: str) -> Any:
    """The optimizers of the cases; what is not set here is TensorFlow's default."""
    match name:
        case "sgd":
            return api.SGD(RATE)
        case "adagrad":
            return api.Adagrad(RATE)
        case "adam":
            return api.Adam(RATE)
        case "ftrl":
            return api.FTRL(RATE)
        case "adagrad_momentum":
            return api.AdagradMomentum(RATE, momentum=0.9, use_nesterov=True, exponent=3.0, epsilon=0.1, beta2=0.9)
        case _:
            raise ValueError(name)


def embedding(strategy: tf.distribute.Strategy, name: str = "sgd", **rest: Any) -> Any:
    """A TPUEmbedding of the three features, made in the strategy's scope."""
    with strategy.scope():
        return api.TPUEmbedding(features(**rest), optimizer(name))


def _indices(rows: tuple[tuple[int, ...], ...], high_dimensional: bool) -> tuple[list[list[int]], list[int]]:
    flat = [[row, place] for row, ids in enumerate(rows) for place in range(len(ids))]
    values = [identifier for ids in rows for identifier in ids]
    if not high_dimensional:
        return flat, values
    return [[example, *index] for example in range(BATCH) for index in flat], values * BATCH


def sparse(feature: str, high_dimensional: bool = False) -> tf.SparseTensor:
    """[4, width]; high-dimensional: [4, 4, width], where each example holds the whole flat batch."""
    indices, values = _indices(IDS[feature], high_dimensional)
    shape = [BATCH, BATCH, WIDTH[feature]] if high_dimensional else [BATCH, WIDTH[feature]]
    return tf.SparseTensor(indices, values, shape)


def ragged(feature: str, high_dimensional: bool = False) -> tf.RaggedTensor:
    """Four rows; high-dimensional: the same four rows four times, one below the other."""
    rows = IDS[feature] * (BATCH if high_dimensional else 1)
    return tf.RaggedTensor.from_row_lengths(
        [identifier for ids in rows for identifier in ids], [len(ids) for ids in rows]
    )


def dense(feature: str, high_dimensional: bool = False) -> tf.Tensor:
    """The first ids in their order: [4]; high-dimensional: [4, 4, 1]."""
    values = _indices(IDS[feature], high_dimensional)[1]
    if not high_dimensional:
        return tf.constant(values[:BATCH], tf.int32)
    return tf.constant(values[: BATCH * BATCH], tf.int32, shape=(BATCH, BATCH, 1))


def dataset(kind: str, high_dimensional: bool = False, weight: float | None = None) -> tf.data.Dataset:
    """Global batches of four examples, endlessly: features, or (features, weights) where a weight is given."""
    make = {"sparse": sparse, "ragged": ragged, "dense": dense}[kind]
    ids = tuple(make(feature, high_dimensional) for feature in IDS)
    if weight is None:
        return batches(ids)
    weights = tuple(
        tensor.with_values(tf.fill(tf.shape(tensor.values), weight))
        if kind != "dense"
        else tf.fill(tf.shape(tensor), weight)
        for tensor in ids
    )
    return batches((ids, weights))


def batches(tensors: Any, size: int = PER_CORE * CORES) -> tf.data.Dataset:
    """Global batches of `size` examples of the tensors, endlessly.

    Without tf.data's tuning, whose thread sleeps ever longer and holds up the end of the iterator meanwhile.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    data = tf.data.Dataset.from_tensors(tensors).unbatch().repeat().batch(size, drop_remainder=True)
    return data.with_options(options)


def distributed(strategy: tf.distribute.Strategy, data: tf.data.Dataset, to_device: bool = False) -> Iterator[Any]:
    """The data set's batches, one share per core; on the host unless `to_device`."""
    if to_device:
        return iter(strategy.experimental_distribute_dataset(data))
    options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    return iter(strategy.experimental_distribute_dataset(data, options=options))


def on_core(strategy: tf.distribute.Strategy, structure: Any, core: int = 0) -> Any:
    """What `strategy.run` returned, as arrays of one core."""
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[core].numpy(), structure)


def of_all_cores(strategy: tf.distribute.Strategy, value: Any) -> np.ndarray:
    """What `strategy.run` returned, joined over the cores along the first axis."""
    return np.concatenate([part.numpy() for part in strategy.experimental_local_results(value)])


def flat_shapes() -> list[tf.TensorShape]:
    """What one core's share of the flat sparse batch measures."""
    return [tf.TensorShape([PER_CORE, width]) for width in WIDTH.values()]


def slots(embedding: Any, table: str) -> dict[str, np.ndarray]:
    """Rows (`parameters`) and slots of a table, fetched from the TPU first."""
    embedding._retrieve_variables()
    return {name: variable.variables[0].numpy() for name, variable in embedding._variables[table].items()}
