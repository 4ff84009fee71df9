"""Checkpoints of a graph of TensorFlow 1: a `Saver` that writes what `tf.train.Checkpoint` would write eagerly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import graph_view, save_util_v1

from embexp.checkpoints import streaming
from embexp.checkpoints.naming import as_objects
from embexp.errors import CheckpointError
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.reading import Bypass, StreamedTable, bypass, rows_per_block
from embexp.tables.variables import scatter_rows
from embexp.tensor_bundle import increments


@dataclass(frozen=True)
class GraphSaver:
    """Saves and restores all that a checkpoint object of a graph reaches.

    Attributes:
        saver: a `tf.compat.v1.train.Saver`, without the rows of `tables`.
        others: a `Saver` of everything but `tables` and `variables`.
        tables: tables whose rows are saved and restored in blocks, by key.
        variables: tables and slots that are one variable, which TensorFlow saves, by key. They are restored in blocks:
            TensorFlow would hold the old values and the new ones at the same time.
    """

    saver: Any
    others: Any
    tables: Mapping[str, StreamedTable]
    variables: Mapping[str, RestoredVariable]
    checkpoint: Any

    def complete_saver(self) -> Any:
        """The `Saver`, if it saves everything.

        Raises:
            ValueError: it lacks the rows of `tables`.
        """
        if self.tables:
            raise ValueError(f"a Saver alone would leave rows out: {', '.join(self.tables)}")
        return self.saver

    def save(self, session: Any, prefix: str) -> None:
        """Writes the variables of a session; the files are whole only at the end."""
        # The name of a file that is not written; the default would clash with our prefix.
        self.saver.save(session, prefix, write_meta_graph=False, write_state=False, latest_filename="none")
        if self.tables:
            with session.as_default():
                streaming.add(prefix, self.tables)

    def restore(self, session: Any, prefix: str) -> None:
        """Restores the variables of a session from a whole checkpoint of either kind.

        Raises:
            CheckpointError: a table does not fit, or the checkpoint is incremental; or, matched by name, a variable is
                missing or extra.
            DataError: its rows are damaged.
        """
        if increments.is_incremental(Path(prefix)):
            raise CheckpointError(
                f"{Path(prefix).parent} is an incremental checkpoint, which sessions can't restore. Restore it with"
                " runtime=function, or give a whole one"
            )
        with as_objects(self.checkpoint, Path(f"{prefix}.index")) as objects:
            self.others.restore(session, objects)
            with session.as_default():
                streaming.restore(objects, {**self.tables, **self.variables})


def saver_of(checkpoint: Any) -> GraphSaver:
    """A saver of all that a `tf.train.Checkpoint` of this graph reaches.

    Its files hold the keys and the object graph of an object-based checkpoint, so that they can be restored into the
    same objects made eagerly, and the other way round. TensorFlow makes its own savers of SavedModels this way, but
    has no public name for it.

    Raises:
        ValueError: the checkpoint does not reach some global variable, so a session could not initialize it from there.
    """
    with tf.device("/cpu:0"), bypass(streaming.streamed_in(checkpoint), Bypass.SAVING):
        saveables, _ = save_util_v1.frozen_saveables_and_savers(graph_view.ObjectGraphView(checkpoint))
    objects = [each.op for each in saveables]
    reached = {id(each.value if isinstance(each, keras.Variable) else each) for each in objects}
    # A saveable that writes several variables as one lists them.
    reached |= {id(part) for each in objects for part in getattr(each, "covered", ())}
    if missing := [each.name for each in tf.compat.v1.global_variables() if id(each) not in reached]:
        raise ValueError(f"no part of the checkpoint: {', '.join(missing)}")
    whole = {id(each) for each in _variables_of_tables(checkpoint)}
    tables, variables, others = {}, {}, []
    for each in saveables:
        if isinstance(each.op, StreamedTable):
            tables[each.specs[0].name] = each.op
        elif id(each.op) in whole:
            variables[each.specs[0].name] = RestoredVariable(each.op)
        else:
            others.append(each)
    saver, of_others = (tf.compat.v1.train.Saver(parts, max_to_keep=1) for parts in (saveables, others))
    return GraphSaver(saver, of_others, tables, variables, checkpoint)


class RestoredVariable:
    """A table or slot that is one variable of a graph, restored in blocks of rows in the default session."""

    def __init__(self, variable: Any) -> None:
        """Adds the operation to the variable's graph, which must be the current one."""
        self._name, self._shape = str(variable.op.name), variable.shape
        with tf.name_scope("restore_rows"):
            self._numbers = tf.compat.v1.placeholder(tf.int64, [None], "numbers")
            self._values = tf.compat.v1.placeholder(tf.float32, [None, self._shape[1]], "values")
            self._assign = scatter_rows(variable, self._numbers, self._values)

    @property
    def name(self) -> str:
        """Name of the variable."""
        return self._name

    @property
    def shape(self) -> Any:
        """[rows, dim], a `tf.TensorShape`."""
        return self._shape

    @property
    def rows_per_block(self) -> int:
        """Rows in a block of a few megabytes."""
        return rows_per_block(int(self._shape[1]))

    def restore(self, blocks: Iterable[np.ndarray]) -> None:
        """Assigns all rows, given in order, float32 [n, dim] each; the variable must be initialized."""
        session, start = tf.compat.v1.get_default_session(), 0
        for block in blocks:
            numbers = np.arange(start, start + len(block))
            session.run(self._assign, {self._numbers: numbers, self._values: block})
            start += len(block)


def _variables_of_tables(checkpoint: Any) -> list[Any]:
    reached = tf.train.TrackableView(checkpoint).descendants()
    return [each for part in reached if isinstance(part, TableCheckpoint) for each in part.whole_variables()]
