"""Checkpoints as others write them: nothing of ours takes part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@cache
def trained_model() -> keras.Model:
    """Two dense layers, the first called `hidden`, after a step with Adam. It is not to be changed."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,), name="inputs")
    outputs = keras.layers.Dense(1, name="top")(keras.layers.Dense(4, activation="relu", name="hidden")(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    model.train_on_batch(np.ones((2, 3), np.float32), np.zeros((2, 1), np.float32))
    return model


def keras_checkpoint(folder: Path) -> Path:
    """A `tf.train.Checkpoint` of a Keras model and its optimizer."""
    model = trained_model()
    return Path(tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(folder / "model")))


def saved(prefix: Path, values: Mapping[str, Any]) -> Path:
    """A checkpoint with these keys."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(map(tf.constant, values.values())),
    )
    return prefix


def saver_checkpoint(prefix: Path, values: Mapping[str, np.ndarray], parts: Mapping[str, tuple[int, int]]) -> Path:
    """What `tf.compat.v1.train.Saver` writes.

    Args:
        prefix: of the checkpoint.
        values: of the variables, by name.
        parts: of partitioned variables, the dimension and the number of the parts.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in values.items():
            dimension, number = parts.get(name, (0, 1))
            partitioner = tf.compat.v1.fixed_size_partitioner(number, dimension) if name in parts else None
            tf.compat.v1.get_variable(
                name,
                shape=value.shape,
                dtype=tf.as_dtype(value.dtype) if value.dtype != object else tf.string,
                initializer=initializer(value),
                partitioner=partitioner,
            )
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(prefix), write_meta_graph=False)
    return prefix


def initializer(value: np.ndarray) -> Any:
    """Gives each part of a variable its part of a value."""

    def made(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        start = [0] * len(value.shape) if partition_info is None else partition_info.var_offset
        return tf.constant(value[tuple(slice(at, at + n) for at, n in zip(start, shape, strict=True))], dtype)

    return made


def tpu_embedding() -> Any:
    """TensorFlow's `TPUEmbedding` with a table of Adagrad and one of SGD, built without a TPU."""
    api = tf.tpu.experimental.embedding
    keras.utils.set_random_seed(1)
    tables = (
        api.TableConfig(5, 4, tf.random_normal_initializer(seed=1), api.Adagrad(0.1, 0.2), name="item"),
        api.TableConfig(3, 2, tf.random_normal_initializer(seed=2), api.SGD(0.1), name="a.b/c"),
    )
    made = api.TPUEmbedding(tuple(api.FeatureConfig(table) for table in tables), optimizer=None)
    made.build(8)
    return made


def change_byte(path: Path, at: int) -> None:
    """Damages a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
