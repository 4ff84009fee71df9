"""Rows are assigned in chunks, in a session: one copy of the table in memory, and one chunk in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.initialization.whole import Fills, pairs
from embexp.system.rows import Rows

_BYTES_PER_VALUE = 4
_ALIGNED_ROWS = 16
"""So many rows of any width are a multiple of 64 bytes: chunks of a mapped file are then used where they lie."""


class InSession:
    """Fills variables of a graph chunk by chunk, in any of its sessions, any number of times."""

    def __init__(self, fills: Fills, chunk_bytes: int = 64 * 1024 * 1024) -> None:
        """Adds what it needs to the variables' graph, which must be the current one and not be finalized.

        Args:
            fills: variables, and for each a matrix, the path of a `.npy` file, or rows; see `whole.Source`.
            chunk_bytes: largest chunk, in bytes; a single row may be larger.

        Raises:
            DataError: a file is not what it should be.
            ValueError: a source doesn't have its variable's shape, or a variable is not float32.
        """
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes is {chunk_bytes}, expected at least 1")
        self._assignments = [_assignment(variable, rows, chunk_bytes) for variable, rows in pairs(fills)]

    def fill(self, session: Any) -> None:
        """Assigns every row.

        Args:
            session: a `tf.compat.v1.Session`, or a monitored one. The variables must be initialized; one whose
                initial value is `tf.raw_ops.Empty` takes no memory for that.
        """
        for each in self._assignments:
            for start in range(0, each.rows.rows, each.step):
                stop = min(start + each.step, each.rows.rows)
                feeds = {each.numbers: np.arange(start, stop), each.values: np.asarray(each.rows.read(start, stop))}
                session.run(each.operation, feeds)


@dataclass(frozen=True)
class _Assignment:
    rows: Rows
    step: int
    numbers: Any
    values: Any
    operation: Any


def _assignment(variable: Any, rows: Rows, chunk_bytes: int) -> _Assignment:
    with tf.name_scope("assign_rows"):
        numbers = tf.compat.v1.placeholder(tf.int64, [None], "numbers")
        values = tf.compat.v1.placeholder(tf.float32, [None, rows.dim], "values")
        if hasattr(variable, "handle"):
            operation = tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=numbers, updates=values)
        else:
            # What it returns is the whole variable, so only the operation is run.
            operation = tf.compat.v1.scatter_update(variable, numbers, values).op
    step = max(chunk_bytes // (_BYTES_PER_VALUE * rows.dim), 1)
    if step > _ALIGNED_ROWS:
        step -= step % _ALIGNED_ROWS
    return _Assignment(rows, step, numbers, values, operation)
