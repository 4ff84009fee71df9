"""Checkpoints of a run, eager or in a session of TensorFlow 1, and SavedModels: their tables are written in blocks.

So memory never holds a second copy of a table. TensorFlow writes everything else, and the object graph, from tables of
no rows. Their rows are in one more data file, or in one of each process that has some of them, under the keys that
TensorFlow would use, so that it can read them like any others. `restoring` reads them in blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import graph_view, save_util_v1
from tensorflow.python.saved_model import fingerprinting_utils, save_context

from embexp.checkpoints import restoring
from embexp.checkpoints.store import CHECKPOINT_NAME, follows_step, plain_path
from embexp.errors import CheckpointError, RunError
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, part, quiet, reported
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle.increments import SomeRows
from embexp.system.tensor_bundle.index import index_of, read_index
from embexp.system.tensor_bundle.tensor import INT64
from embexp.system.tensor_bundle.writer import KEY_END, BundleWriter
from embexp.tables.checkpointing import StreamedTable, TableCheckpoint, rows_per_block, without_rows
from embexp.tables.variables import ReadableTable, gather_rows, scatter_rows

WRITING = "writing the checkpoint"
"""The stage that writing a checkpoint is."""
TABLES = "tables"
"""The attribute of the module with its tables by name."""
_NUMBERS, _ROWS = "increment_numbers/", "increment/"
"""How the keys of changed rows' numbers, by table, and of the rows, by the matrix' key, begin."""
_BLOCK_BYTES = 1 << 24
_OF_THIS_PROCESS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Operations that call Python functions."""
_SAVED = tf.saved_model.SaveOptions()


def write(
    checkpoint: Any,
    prefix: str,
    *,
    base: str | None = None,
    changed: Mapping[str, np.ndarray] | None = None,
    progress: Progress = quiet,
) -> None:
    """Writes a `tf.train.Checkpoint`, of its tables all rows or those that changed; whole only at the end.

    A table is whole if all its rows changed; if all are, the checkpoint is a whole one.

    Args:
        base: prefix of the checkpoint since which the rows changed; the path to it from the new one is recorded.
        changed: by table, bool [rows]; tables that are left out are written whole.
        progress: called as rows are written.
    """
    tables = streamed_in(checkpoint)
    with without_rows(tables):
        checkpoint.write(prefix)
    if not tables:
        return
    view = tf.train.CheckpointView(prefix)
    nodes = view._object_graph_proto.nodes
    by_key = {
        nodes[node].attributes[0].checkpoint_key: each
        for node, each in view.match(checkpoint).items()
        if isinstance(each, StreamedTable) and nodes[node].attributes
    }
    matrices = _add(prefix, by_key, changed or {}, progress)
    if matrices and base is not None:
        increments.describe(Path(prefix), Path(base), matrices)


def streamed_in(checkpoint: Any) -> list[StreamedTable]:
    """The tables and slots of a `tf.train.Checkpoint` whose rows are written and read in blocks."""
    return [
        descendant
        for descendant in tf.train.TrackableView(checkpoint).descendants()
        if isinstance(descendant, StreamedTable)
    ]


def _add(
    prefix: str, tables: Mapping[str, Any], changed: Mapping[str, np.ndarray], progress: Progress
) -> dict[str, SomeRows]:
    """Adds the rows of tables to a checkpoint that has only their keys; returns those of which it has some rows."""
    some = {name: np.flatnonzero(mask) for name, mask in changed.items() if not mask.all()}
    matrices: dict[str, SomeRows] = {}
    shared = {key: table for key, table in tables.items() if table.together is not None and table.table not in some}
    together = next((table.together for table in shared.values()), None)
    if together is not None and together.write(Path(prefix), shared, progress):
        tables = {key: table for key, table in tables.items() if key not in shared}
    if not tables:
        return {}
    counts = {key: len(some.get(table.table, range(table.shape[0]))) for key, table in tables.items()}
    sizes = {key: counts[key] * int(table.shape[1]) for key, table in tables.items()}
    done, total = 0, max(1, sum(sizes.values()))
    with contextlib.closing(BundleWriter(Path(prefix), adding=True)) as writer:
        for name in sorted({table.table for table in tables.values()} & some.keys()):
            writer.add_bytes(f"{_NUMBERS}{name}", INT64, some[name].shape, some[name])
        for key, table in tables.items():
            (rows, dim), kind = table.shape.as_list(), table.dtype.as_datatype_enum
            of_table = part(progress, done / total, (done + sizes[key]) / total)
            done, count = done + sizes[key], -(-counts[key] // table.rows_per_block)
            if table.table in some:
                numbers = some[table.table]
                blocks = reported(table.some_blocks(numbers), count, WRITING, of_table)
                writer.add(f"{_ROWS}{key}", (len(numbers), dim), blocks, kind)
                matrices[key] = SomeRows((rows, dim), f"{_NUMBERS}{table.table}", f"{_ROWS}{key}")
            else:
                blocks = reported(table.blocks(), count, WRITING, of_table)
                writer.add(key, (rows, dim), blocks, kind)
        writer.finish()
    return matrices


@dataclass(frozen=True)
class GraphSaver:
    """Saves and restores all that a checkpoint object of a graph reaches.

    Attributes:
        saver: a `tf.compat.v1.train.Saver`, without the rows of `tables`.
        others: a `Saver` of everything but `tables` and `variables`.
        tables: tables whose rows are saved and restored in blocks, by key.
        variables: tables and slots that are one variable, by key. They are saved and restored in blocks, too:
            TensorFlow would copy a whole variable to save it, and hold the old values beside those that it restores.
    """

    saver: Any
    others: Any
    tables: Mapping[str, StreamedTable]
    variables: Mapping[str, VariableInBlocks]
    checkpoint: Any

    def complete_saver(self) -> Any:
        """The `Saver`, if it saves everything.

        Raises:
            ValueError: it lacks the rows of `tables`.
        """
        if self.tables:
            raise ValueError(f"a Saver alone would leave rows out: {', '.join(self.tables)}")
        return self.saver

    def save(self, session: Any, prefix: str, progress: Progress = quiet) -> None:
        """Writes the variables of a session; the files are whole only at the end."""
        # The name of a file that is not written; the default would clash with our prefix.
        self.others.save(session, prefix, write_meta_graph=False, write_state=False, latest_filename="none")
        if in_blocks := {**self.tables, **self.variables}:
            with session.as_default():
                _add(prefix, in_blocks, {}, progress)

    def restore(self, session: Any, prefix: str) -> None:
        """Restores the variables of a session from a whole checkpoint of either kind.

        Raises:
            CheckpointError: a variable is missing, extra, or of another shape; or the checkpoint is incremental.
            DataError: its rows are damaged.
        """
        if increments.is_incremental(Path(prefix)):
            raise CheckpointError(
                f"{Path(prefix).parent} is an incremental checkpoint, which sessions can't restore. Restore it "
                f"with runtime=function, or give a full one"
            )
        index, tables = index_of(Path(prefix)), {**self.tables, **self.variables}
        found = restoring.matched_run(self.checkpoint, index, index.parent)
        with restoring.temporary(index) as folder:
            self.others.restore(session, found.write_view(folder, tables))
        with session.as_default():
            for key, table in tables.items():
                restoring.assign_rows(table, found.tensors[key])


def saver_of(checkpoint: Any) -> GraphSaver:
    """A saver of all that a `tf.train.Checkpoint` of this graph reaches.

    Its files hold the keys and the object graph of an object-based checkpoint, so that they can be restored into the
    same objects made eagerly, and the other way round. TensorFlow makes its own savers of SavedModels this way, but
    has no public name for it.

    Raises:
        ValueError: the checkpoint does not reach some global variable, so a session could not initialize it from there.
    """
    with tf.device("/cpu:0"), without_rows(streamed_in(checkpoint)):
        saveables, _ = save_util_v1.frozen_saveables_and_savers(graph_view.ObjectGraphView(checkpoint))
    objects = [saveable.op for saveable in saveables]
    reached = {id(each.value if isinstance(each, keras.Variable) else each) for each in objects}
    # A saveable that writes several variables as one lists them.
    reached |= {id(part) for each in objects for part in getattr(each, "covered", ())}
    if missing := [variable.name for variable in tf.compat.v1.global_variables() if id(variable) not in reached]:
        raise ValueError(f"not part of the checkpoint: {', '.join(missing)}")
    reached_parts = tf.train.TrackableView(checkpoint).descendants()
    own = [part for part in reached_parts if isinstance(part, TableCheckpoint)]
    whole = {id(variable) for part in own for variable in part.whole_variables()}
    tables, variables, others = {}, {}, []
    for saveable in saveables:
        if isinstance(saveable.op, StreamedTable):
            tables[saveable.specs[0].name] = saveable.op
        elif id(saveable.op) in whole:
            variables[saveable.specs[0].name] = VariableInBlocks(saveable.op)
        else:
            others.append(saveable)
    saver, of_others = (tf.compat.v1.train.Saver(parts, max_to_keep=1) for parts in (saveables, others))
    return GraphSaver(saver, of_others, tables, variables, checkpoint)


class VariableInBlocks:
    """A table or slot that is one variable of a graph, saved and restored in blocks of rows in the default session.

    Attributes:
        shape: [rows, dim].
        rows_per_block: rows in a block of a few megabytes.
    """

    together = None

    def __init__(self, variable: Any) -> None:
        """Adds the operations to the variable's graph, which must be the current one."""
        self.table, self.shape, self.dtype = variable.name, variable.shape, variable.dtype
        self.rows_per_block = rows_per_block(int(variable.shape[1]))
        with tf.name_scope("rows_in_blocks"):
            self._numbers = tf.compat.v1.placeholder(tf.int64, [None], "numbers")
            self._values = tf.compat.v1.placeholder(tf.float32, [None, variable.shape[1]], "values")
            self._rows = gather_rows(variable, self._numbers)
            self._assign = scatter_rows(variable, self._numbers, self._values)

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in order, float32 [n, dim], one block at a time in memory."""
        session, rows = tf.compat.v1.get_default_session(), int(self.shape[0])
        for start in range(0, rows, self.rows_per_block):
            numbers = np.arange(start, min(start + self.rows_per_block, rows))
            yield session.run(self._rows, {self._numbers: numbers})

    def restore(self, blocks: Iterable[np.ndarray]) -> None:
        """Assigns all rows, given in order, float32 [n, dim] each; the variable must be initialized."""
        session, start = tf.compat.v1.get_default_session(), 0
        for block in blocks:
            numbers = np.arange(start, start + len(block))
            session.run(self._assign, {self._numbers: numbers, self._values: block})
            start += len(block)


def traced_for_saving() -> Any:
    """A block whose functions `write_saved_model` takes as they are: it traces those from elsewhere a second time."""
    return save_context.save_context(_SAVED)


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
        tables: the rows of these tables; those that are left out are added later, see `add_tables`.
        progress: called as rows are written.

    Raises:
        RunError: the model can't leave this process: it calls Python functions, or uses what it does not own.
    """
    _check_operations(signatures)
    with plain_path(directory) as path:
        try:
            tf.saved_model.save(module, str(path), signatures=dict(signatures), options=_SAVED)
        except AssertionError as error:  # what TensorFlow raises where it finds an "untracked" resource
            first = str(error).partition(". ")[0]
            raise RunError(
                f"the model can't be exported: {first}. Keep variables and lookup tables that it uses as attributes of"
                " its layers"
            ) from error
        except tf.errors.OpError as error:
            raise RunError(f"TensorFlow can't write the model: {error.message}") from error
        add_tables(path, tables, progress=progress)


def add_tables(directory: Path, tables: Mapping[str, Rows], *, progress: Progress = quiet) -> None:
    """Adds the rows of tables to a SavedModel that lacks them.

    Args:
        directory: of the SavedModel, which is changed.
        tables: by name; the SavedModel has a variable float32 [0, dim] for each.
        progress: called as rows are written.
    """
    if tables:
        _add_rows(directory / "variables" / "variables", tables, progress)
    with plain_path(directory) as path:  # the fingerprint has a hash of the checkpoint's index
        fingerprinting_utils.write_fingerprint(str(path))


def _add_rows(prefix: Path, tables: Mapping[str, Rows], progress: Progress) -> None:
    stored = read_index(index_of(prefix))
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


class Changes:
    """The rows of a run's tables that changed since its last checkpoint that is on disk."""

    def __init__(self, tables: Mapping[str, ReadableTable], every_row: Collection[str] = ()) -> None:
        """Counts from now on.

        Args:
            every_row: tables whose optimizer moves every row in each step: `adam` with `lazy_adam: false`.
        """
        self._tables = {name: table for name, table in tables.items() if name not in every_row}
        self._masks: dict[str, np.ndarray] = {}
        self.collect()
        self.saved()

    def collect(self) -> dict[str, np.ndarray]:
        """The rows that changed, bool [rows], by table; without tables of which every row may have changed.

        They are collected again next time, unless `saved` is called in between. Call it only when it is known whether
        the save before went well.
        """
        for name, table in self._tables.items():
            touched = np.zeros(table.rows, np.bool_) if table.frozen else table.take_touched()
            if touched is not None:
                self._masks[name] = touched | self._masks.get(name, np.False_)
        return dict(self._masks)

    def saved(self) -> None:
        """The checkpoint with the rows last collected is on disk."""
        self._masks.clear()


class IncrementalSaves:
    """The saves of a training: a whole checkpoint every so many, and between them what changed since the one before."""

    def __init__(
        self,
        tables: Mapping[str, ReadableTable],
        *,
        whole_every: int,
        every_row: Collection[str] = (),
        restored: Path | None = None,
        write_whole: Callable[..., object] | None = None,
    ) -> None:
        """Counts changes from now on.

        Args:
            whole_every: 1: every checkpoint is whole.
            write_whole: gets prefix and progress, and writes one that needs no other of this training.
            every_row: see `Changes`.
            restored: directory of the checkpoint that the tables were just restored from; None: the first is whole.

        Raises:
            CheckpointError: the chain of `restored` is broken.
        """
        self._changes, self._whole_every = Changes(tables, every_row), whole_every
        self._base, self._write_whole = restored, write_whole
        links = [] if restored is None else increments.chain(restored / CHECKPOINT_NAME)
        self._since_whole = sum(follows_step(each.prefix.parent) for each in links)

    def write(self, checkpoint: Any, prefix: str, *, progress: Progress = quiet) -> None:
        """Writes the next checkpoint, once it is known whether the save before went well; see `write`.

        It is whole if the one before is gone.
        """
        changed, base = self._changes.collect(), None if self._base is None else self._base / CHECKPOINT_NAME
        if base is None or not index_of(base).is_file() or self._since_whole + 1 >= self._whole_every:
            (self._write_whole or partial(write, checkpoint))(prefix, progress=progress)
        else:
            write(checkpoint, prefix, base=str(base), changed=changed, progress=progress)

    def saved(self, directory: Path) -> None:
        """The checkpoint last written is on disk, in this directory beside that of the one before."""
        self._changes.saved()
        self._base = directory
        self._since_whole = self._since_whole + 1 if follows_step(directory) else 0
