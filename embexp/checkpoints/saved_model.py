"""Writing SavedModels whose tables are written in blocks, so memory never holds a table.

TensorFlow writes a SavedModel's variables like a checkpoint, `variables/variables`, from values in memory. Here it
writes tables of no rows, and their rows are added to the checkpoint afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import fingerprinting_utils

from embexp.checkpoints.plain_paths import plain_path
from embexp.errors import RunError
from embexp.system.progress import Progress, quiet
from embexp.system.rows import Rows
from embexp.tensor_bundle.index import read_index
from embexp.tensor_bundle.rekeying import KEY_END
from embexp.tensor_bundle.writer import BundleWriter

TABLES = "tables"
"""The attribute of the module with its tables by name."""
_BLOCK_BYTES = 1 << 24
_OF_THIS_PROCESS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Operations that call Python functions."""


def write(
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
        signatures: concrete functions, by name.
        tables: the rows of these tables.
        directory: where to.
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
