"""Tables are written to a checkpoint or a SavedModel, and read, in blocks, so memory never holds a second copy.

TensorFlow writes and reads everything else, and the object graph. The tables' rows are in one more data file, under the
keys that TensorFlow would use, so that it can read them like any others.

Writing SavedModels whose tables are written in blocks, so memory never holds a table. TensorFlow writes a SavedModel's
variables like a checkpoint, `variables/variables`, from values in memory. Here it writes tables of no rows, and their
rows are added to the checkpoint afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import fingerprinting_utils

from embexp.checkpoints.paths import plain_path
from embexp.errors import CheckpointError, RunError
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, quiet
from embexp.tables.reading import Bypass, StreamedTable, bypass
from embexp.tensor_bundle.increments import Matrices
from embexp.tensor_bundle.index import read_index
from embexp.tensor_bundle.rekeying import KEY_END
from embexp.tensor_bundle.writer import BundleWriter

TABLES = "tables"
"""The attribute of the module with its tables by name."""
_BLOCK_BYTES = 1 << 24
_OF_THIS_PROCESS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Operations that call Python functions."""


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


def write_saved_model(
    module: Any,
    signatures: Mapping[str, Any],
    tables: Mapping[str, Rows],
    directory: Path,
    *,
    progress: Progress = quiet,
) -> None:
    """Writes a SavedModel into an empty directory; the files are whole only at the end.

    Args:
        module: a `tf.Module` whose attribute `tables` has for each table a variable float32 [any, dim] of no rows.
        tables: the rows of these tables.
        progress: called as rows are written.

    Raises:
        RunError: the model can't leave this process: it calls Python functions, or uses what it does not own.
    """
    _check_operations(signatures)
    with plain_path(directory) as path:
        try:
            tf.saved_model.save(module, str(path), signatures=dict(signatures))
        except AssertionError as error:  # what TensorFlow raises where it finds an "untracked" resource
            first = str(error).partition(". ")[0]
            raise RunError(
                f"the model can't be exported: {first}. Keep variables and lookup tables that it uses as attributes of"
                " its layers"
            ) from error
        except tf.errors.OpError as error:
            raise RunError(f"TensorFlow can't write the model: {error.message}") from error
        prefix = path / "variables" / "variables"
        _add_rows(prefix, tables, progress)
        # It has a hash of the checkpoint's index.
        fingerprinting_utils.write_fingerprint(str(path))


def _add_rows(prefix: Path, tables: Mapping[str, Rows], progress: Progress) -> None:
    stored = read_index(prefix.with_name(f"{prefix.name}.index"))
    with contextlib.closing(BundleWriter(prefix, adding=True)) as writer:
        for name, rows in tables.items():
            key = f"{TABLES}/{name}{KEY_END}"
            if stored[key].shape != (0, rows.dim):
                raise ValueError(f"{key} is {stored[key].shape}, expected no rows of {rows.dim}")
            writer.add(key, (rows.rows, rows.dim), _blocks(rows, f"writing table {name}", progress))
        writer.finish()


def _blocks(rows: Rows, doing: str, progress: Progress) -> Iterator[Any]:
    step = max(1, _BLOCK_BYTES // (4 * rows.dim))
    for start in range(0, rows.rows, step):
        stop = min(rows.rows, start + step)
        yield rows.read(start, stop)
        progress(doing, stop / rows.rows)


def _check_operations(signatures: Mapping[str, Any]) -> None:
    """Raises RunError for a model that calls Python functions."""
    for function in signatures.values():
        graph = function.graph.as_graph_def()
        nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
        if found := [node.name for node in nodes if node.op in _OF_THIS_PROCESS]:
            raise RunError(
                f"the model can't be exported: its operation {found[0]} calls a Python function (tf.py_function,"
                " tf.numpy_function), which a SavedModel can't hold; use TensorFlow's operations"
            )
