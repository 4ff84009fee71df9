"""`init=assign`: rows are assigned chunk by chunk, with one copy of the table in memory and one chunk in flight."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.initialization.method import Fills, InitMethod, Pairs, SessionFills, pairs
from embexp.specs.inits import CHUNK_BYTES, Assign, MemoryMap
from embexp.system import arrays
from embexp.system.arrays import Rows
from embexp.system.parallel import ahead
from embexp.tables.variables import WritableRows, scatter_rows

_BYTES_PER_VALUE = 4


def method(init: Assign | MemoryMap, path: str) -> InitMethod:
    """Eagerly and in sessions, in chunks of at most `chunk_bytes`; a single row may be larger."""
    chunk_bytes = init.chunk_bytes

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        fills.add(AssignInSession(variables, chunk_bytes).fill, always=always)

    return InitMethod(
        eagerly=partial(assign_rows, chunk_bytes=chunk_bytes), in_session=in_session, chunk_bytes=chunk_bytes
    )


def chunks(rows: int, dim: int, chunk_bytes: int) -> tuple[range, ...]:
    """The ranges of rows that are assigned one after the other."""
    size = max(chunk_bytes // (_BYTES_PER_VALUE * dim), 1)
    # Chunks of an aligned mapping are aligned too, so TensorFlow uses them in place, without another copy.
    aligned = arrays.ALIGNMENT // math.gcd(arrays.ALIGNMENT, _BYTES_PER_VALUE * dim)
    if size > aligned:
        size -= size % aligned
    return tuple(range(start, min(start + size, rows)) for start in range(0, rows, size))


def assign_rows(table: WritableRows, source: Rows, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Reads rows from the source and assigns them, until the table is full; what is next is read meanwhile.

    Args:
        chunk_bytes: most bytes of rows that are in flight; a single row may be larger.

    Raises:
        ValueError: the source's shape is not the table's.
    """
    if (source.rows, source.dim) != (table.rows, table.dim):
        raise ValueError(
            f"table {table.name!r} is {table.rows} × {table.dim}, its source of rows is {source.rows} × {source.dim}"
        )
    runs = source.runs() if isinstance(source, arrays.InRuns) else [range(table.rows)]
    halves = (  # one is read while the other is assigned
        range(run.start + each.start, run.start + each.stop)
        for run in runs
        for each in chunks(len(run), table.dim, chunk_bytes // 2)
    )
    with closing(ahead(((each.start, source.read(each.start, each.stop)) for each in halves), depth=1)) as parts:
        for start, values in parts:
            table.write(start, values)


class AssignInSession:
    """Fills variables of a graph chunk by chunk, in any of its sessions, any number of times."""

    def __init__(self, fills: Fills, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Adds operations to the variables' graph, which must be the current one and not be finalized.

        Args:
            fills: variables, each with its values, see `Source`; a partitioned variable stands for its parts.
            chunk_bytes: most bytes of rows that are in flight; a single row may be larger.

        Raises:
            DataError: a file is missing, or is no file of vectors.
            ValueError: a source doesn't have its variable's shape, or a variable has another type.
        """
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes is {chunk_bytes}, expected at least 1")
        self._chunk_bytes = chunk_bytes
        self._assignments = [_assignment(variable, rows) for variable, rows in pairs(fills)]

    def fill(self, session: Any) -> None:
        """Assigns every row.

        Args:
            session: a `tf.compat.v1.Session`, or a monitored one. The variables must be initialized; one whose
                initial value is `tf.raw_ops.Empty` takes no memory for that.
        """
        for assignment in self._assignments:
            # Half as much at once: of most arrays, TensorFlow makes a copy. None is kept while the next is read.
            for chunk in chunks(assignment.rows.rows, assignment.rows.dim, self._chunk_bytes // 2):
                session.run(
                    assignment.operation,
                    {
                        assignment.numbers: np.arange(chunk.start, chunk.stop),
                        assignment.values: np.asarray(assignment.rows.read(chunk.start, chunk.stop)),
                    },
                )


@dataclass(frozen=True)
class _Assignment:
    rows: Rows
    numbers: Any
    values: Any
    operation: Any


def _assignment(variable: Any, rows: Rows) -> _Assignment:
    with tf.name_scope("assign_rows"):
        numbers = tf.compat.v1.placeholder(tf.int64, [None], "numbers")
        values = tf.compat.v1.placeholder(tf.float32, [None, rows.dim], "values")
        operation = scatter_rows(variable, numbers, values)
    return _Assignment(rows, numbers, values, operation)
