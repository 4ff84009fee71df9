"""Measures one way to get a mapped matrix into a table. `bench.load` runs it in its own process.

    python -m bench.load_methods METHOD FILE.npy

Prints seconds and peak anonymous memory as JSON, then keeps the table in memory until its input is closed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.initialization.method import AssignInSession, as_rows, assign_rows
from embexp.specs.optimizers import Adagrad, Adam
from embexp.system.machine import PeakMemory
from embexp.tables import optimizers
from embexp.tables.table import EmbeddingTable, MappedTable
from embexp.tables.variables import scatter_rows

IDS = 4096
"""Number of rows that are looked up at the end, so that the time includes making the table usable."""


def numpy_copy(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """A plain copy: the lower bound for every method that copies."""
    copied = matrix.copy()
    return copied, copied[ids]


def assign(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """`init=assign`."""
    table = EmbeddingTable("item", *matrix.shape, frozen=True)
    assign_rows(table, as_rows(matrix))
    return table, table.gather(ids)


def memory_map(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """`init=memory_map`."""
    table = MappedTable("item", matrix, None, as_rows(matrix))
    return table, table.gather(ids)


def _in_session(matrix: np.ndarray, ids: np.ndarray, optimizer: str) -> Any:
    """A table and its slots in a session, filled in chunks, until both have been updated once."""
    rule: Adagrad | Adam = Adagrad() if optimizer == "adagrad" else Adam()
    with tf.Graph().as_default():
        table = EmbeddingTable("item", *matrix.shape, slots=optimizers.slots_of(rule))
        fill = AssignInSession({table.variable: matrix}).fill
        looked_up = table.gather(tf.constant(ids))
        with tf.control_dependencies([looked_up]):
            updates = [
                scatter_rows(each, np.unique(ids), tf.gather(each, np.unique(ids))) for each in table.slots.values()
            ]
        session = tf.compat.v1.Session()
        session.run(tf.compat.v1.variables_initializer([table.variable, *table.slots.values()]))
        fill(session)
        found, _ = session.run([looked_up, updates])
        return session, found


def keras_constant(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """A Keras layer with the matrix as a constant initializer."""
    layer = keras.layers.Embedding(*matrix.shape, embeddings_initializer=keras.initializers.Constant(matrix))
    return layer, layer(ids)


def keras_set_weights(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """A Keras layer that starts from zeros, the cheapest initializer, and whose weights are then set."""
    layer = keras.layers.Embedding(*matrix.shape, embeddings_initializer="zeros")
    layer.build()
    layer.set_weights([matrix])
    return layer, layer(ids)


WAYS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "numpy_copy": numpy_copy,
    "assign": assign,
    "memory_map": memory_map,
    "session_adagrad": partial(_in_session, optimizer="adagrad"),
    "session_adam": partial(_in_session, optimizer="adam"),
    "keras_constant": keras_constant,
    "keras_set_weights": keras_set_weights,
}


def measure(way: str, path: str) -> None:
    """Measures one way, prints its cost, and waits."""
    matrix = np.asarray(np.load(path, mmap_mode="c"))
    ids = np.random.default_rng(0).integers(0, len(matrix), IDS)
    tf.constant(0)  # initializes TensorFlow, so that this is not measured
    with PeakMemory() as memory:
        began = time.perf_counter()
        made = WAYS[way](matrix, ids)
        seconds = time.perf_counter() - began
    if not np.array_equal(np.asarray(made[1]), matrix[ids]):
        raise RuntimeError(f"{way}: the table's rows differ from those of {path}")
    print(json.dumps({"seconds": seconds, "anonymous": memory.added}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    measure(*sys.argv[1:])
