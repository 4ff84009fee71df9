"""Large variables, assigned from a checkpoint in blocks of rows, so that memory never holds a second copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from embexp.checkpoints.matching import Matching
from embexp.checkpoints.partitioned import part_of
from embexp.errors import CheckpointError
from embexp.tables.reading import StreamedTable
from embexp.tensor_bundle.index import Entry
from embexp.tensor_bundle.tensor import read_blocks, read_content

_BLOCK_BYTES = 1 << 22


def assignable(found: Matching, entries: Mapping[str, Entry], tensor_of: Mapping[str, str]) -> dict[str, Any]:
    """What is assigned row by row, by the key of its value: tables of runs; eagerly, variables larger than a block."""
    chosen = {}
    unused = found.unused
    for stored in found.stored:
        if stored.node is None or stored.key not in tensor_of or stored.key in unused:
            continue
        variable: Any = found.objects.get(stored.node)
        if found.by_name and part_of(variable) is not None:
            continue  # restored by slices
        if isinstance(variable, StreamedTable):
            chosen[stored.key] = variable
        elif not tf.executing_eagerly():
            continue  # a variable that is not initialized takes the tensor over, so there is no second copy
        elif (
            _parts(variable)
            and _in_rows(entries[tensor_of[stored.key]])
            and not found.proto.nodes[stored.node].children
        ):
            chosen[stored.key] = variable
    return chosen


def assign(variable: Any, key: str, entry: Entry) -> None:
    """Assigns the rows of a tensor; to a table of a graph, in the default session.

    Raises:
        CheckpointError: rows that can't be assigned would change.
        DataError: a data file is damaged or cut short; rows may be assigned then.
    """
    if isinstance(variable, StreamedTable):
        try:
            variable.restore(read_blocks(key, entry, variable.rows_per_block))
        except ValueError as error:
            raise CheckpointError(f"{entry.pieces[0].path}: {key} does not fit: {error}") from error
        return
    parts = _parts(variable)
    for start, block in _blocks(key, entry, parts[0].dtype.base_dtype.as_numpy_dtype):
        rows = tf.range(start, start + len(block), dtype=tf.int64)
        for part in parts:
            part.scatter_update(tf.IndexedSlices(block, rows))


def _parts(variable: Any) -> list[Any]:
    """The variables of resource type that make up a variable: itself, or its copies; none if it is of another kind."""
    if isinstance(variable, keras.Variable):
        variable = variable.value
    if isinstance(variable, resource_variable_ops.ResourceVariable):
        return [variable]
    copies = getattr(variable, "values", ())
    if isinstance(variable, tf.distribute.DistributedValues) and isinstance(variable, tf.Variable):
        return [each for each in copies if isinstance(each, resource_variable_ops.ResourceVariable)]
    return []


def _in_rows(entry: Entry) -> bool:
    dtype = tf.dtypes.as_dtype(entry.kind)
    if dtype in (tf.string, tf.resource, tf.variant) or len(entry.shape) == 0:
        return False
    sliced = all(piece.shape[1:] == entry.shape[1:] for piece in entry.pieces)
    return sliced and int(np.prod(entry.shape, dtype=np.int64)) * dtype.size > _BLOCK_BYTES


def _blocks(key: str, entry: Entry, dtype: Any) -> Iterator[tuple[int, np.ndarray]]:
    row_bytes = int(np.prod(entry.shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
    size = max(1, _BLOCK_BYTES // row_bytes) * row_bytes
    start = 0
    for piece in entry.pieces:
        for data in read_content(key, piece, size):
            block = np.frombuffer(data, dtype).reshape(-1, *entry.shape[1:])
            yield start, block
            start += len(block)
