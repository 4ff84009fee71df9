"""One way of getting a mapped matrix into a table, in a process of its own; see `bench.load`.

    python -m bench.load_ways WAY FILE.npy

Prints seconds and peak anonymous memory as JSON, and then holds what it has made until its input is closed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.initialization.assign import Assign
from embexp.system.memory import PeakMemory
from embexp.tables.mapped import MappedTable
from embexp.tables.table import EmbeddingTable

IDS = 4096
"""Rows that are looked up at the end, for no way is done before its table can be used."""


class Mapped:
    """The rows of a matrix, as a source."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix, (self.rows, self.dim) = matrix, matrix.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop)."""
        return self.matrix[start:stop]

    def memory_map(self) -> np.ndarray:
        """All rows."""
        return self.matrix


def numpy_copy(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """What any way that copies costs at least."""
    copied = matrix.copy()
    return copied, copied[ids]


def assign(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """`init=assign`."""
    table = EmbeddingTable("item", *matrix.shape, track_touched=False)
    Assign().apply(table, Mapped(matrix))
    return table, table.gather(ids)


def memory_map(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """`init=memory_map`."""
    table = MappedTable("item", matrix, None, Mapped(matrix))
    return table, table.gather(ids)


def keras_constant(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """A layer whose initializer is the matrix."""
    layer = keras.layers.Embedding(*matrix.shape, embeddings_initializer=keras.initializers.Constant(matrix))
    return layer, layer(ids)


def keras_set_weights(matrix: np.ndarray, ids: np.ndarray) -> Any:
    """A layer of zeros, the cheapest initializer there is, and then the matrix."""
    layer = keras.layers.Embedding(*matrix.shape, embeddings_initializer="zeros")
    layer.build()
    layer.set_weights([matrix])
    return layer, layer(ids)


WAYS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "numpy_copy": numpy_copy,
    "assign": assign,
    "memory_map": memory_map,
    "keras_constant": keras_constant,
    "keras_set_weights": keras_set_weights,
}


def measure(way: str, path: str) -> None:
    """Goes one way, prints what it took, and waits."""
    matrix = np.asarray(np.load(path, mmap_mode="c"))
    ids = np.random.default_rng(0).integers(0, len(matrix), IDS)
    tf.constant(0)  # TensorFlow gets ready, which no way is to blame for
    with PeakMemory() as memory:
        began = time.perf_counter()
        made = WAYS[way](matrix, ids)
        seconds = time.perf_counter() - began
    if not np.array_equal(np.asarray(made[1]), matrix[ids]):
        raise RuntimeError(f"{way}: found other rows than those of {path}")
    print(json.dumps({"seconds": seconds, "anonymous": memory.added}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    measure(*sys.argv[1:])
