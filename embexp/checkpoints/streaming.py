"""Tables are written to a checkpoint and read from it in blocks, so memory never holds a second copy.

TensorFlow writes and reads everything else, and the object graph. The tables' rows are in one more data file, under the
keys that TensorFlow would use, so that it can read them like any others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.errors import CheckpointError
from embexp.tables.reading import Bypass, StreamedTable, bypass
from embexp.tensor_bundle.increments import Matrices
from embexp.tensor_bundle.writer import BundleWriter


def streamed_in(checkpoint: Any) -> list[StreamedTable]:
    """All tables that a checkpoint object reaches, and their slots: their rows are written in blocks."""
    return [each for each in tf.train.TrackableView(checkpoint).descendants() if isinstance(each, StreamedTable)]


def write(checkpoint: Any, prefix: str) -> None:
    """Writes a `tf.train.Checkpoint`; the files are whole only at the end."""
    tables = streamed_in(checkpoint)
    with bypass(tables, Bypass.SAVING):
        checkpoint.write(prefix)
    if tables:
        add(prefix, keys(tf.train.CheckpointView(prefix), checkpoint))


def read(checkpoint: Any, prefix: str) -> None:
    """Restores a `tf.train.Checkpoint`.

    Raises:
        CheckpointError: a table does not fit.
        DataError: its rows are damaged.
        ValueError, AssertionError, tf.errors.OpError: TensorFlow can't restore the rest.
    """
    tables = streamed_in(checkpoint)
    with bypass(tables, Bypass.RESTORING):
        checkpoint.read(prefix).assert_existing_objects_matched().expect_partial()
    if tables:
        restore(prefix, keys(tf.train.CheckpointView(prefix), checkpoint))


def keys(view: Any, checkpoint: Any) -> dict[str, StreamedTable]:
    """The tables by their keys in the checkpoint of a `tf.train.CheckpointView`."""
    nodes = view._object_graph_proto.nodes
    return {
        nodes[node].attributes[0].checkpoint_key: each
        for node, each in view.match(checkpoint).items()
        if isinstance(each, StreamedTable) and nodes[node].attributes
    }


def add(prefix: str, tables: Mapping[str, StreamedTable]) -> None:
    """Adds the rows of tables to a checkpoint that has only their keys."""
    with contextlib.closing(BundleWriter(Path(prefix), adding=True)) as writer:
        for key, table in tables.items():
            rows, dim = table.shape.as_list()
            writer.add(key, (rows, dim), table.blocks())
        writer.finish()


class RestoredRows(Protocol):
    """Rows that are restored in blocks: those of a table, or of one of its slots."""

    @property
    def name(self) -> str:
        """Name of the variable, for errors."""
        ...

    @property
    def shape(self) -> Any:
        """[rows, dim], a `tf.TensorShape`."""
        ...

    @property
    def rows_per_block(self) -> int:
        """Rows in a block of a few megabytes."""
        ...

    def restore(self, blocks: Iterable[np.ndarray]) -> None:
        """Assigns all rows, given in order, float32 [n, dim] each."""
        ...


def restore(prefix: str, tables: Mapping[str, RestoredRows]) -> None:
    """Restores the rows of tables from a checkpoint, whole or incremental.

    Raises:
        CheckpointError: a table is missing or has another shape, or differs in rows that come from its file; or the
            checkpoint is incremental, and a base is missing or has changed.
        DataError: stored rows are damaged.
    """
    stored = Matrices(Path(prefix))
    shapes = {key: list(shape) for key, shape in stored.shapes().items()}
    faults = [
        f"{table.name} is {table.shape.as_list()}, the checkpoint's {shapes.get(key)}"
        for key, table in tables.items()
        if shapes.get(key) != table.shape.as_list()
    ]
    if faults:
        raise _unfit(prefix, "; ".join(faults))
    for key, table in tables.items():
        try:
            table.restore(stored.blocks(key, table.rows_per_block))
        except ValueError as error:
            raise _unfit(prefix, error) from error


def _unfit(prefix: str, why: object) -> CheckpointError:
    return CheckpointError(f"{Path(prefix).parent} does not fit what it is restored into: {why}")
