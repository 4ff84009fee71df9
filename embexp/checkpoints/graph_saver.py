"""Checkpoints of a graph of TensorFlow 1: a `Saver` that writes what `tf.train.Checkpoint` would write eagerly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.checkpoint import graph_view, save_util_v1

from embexp.checkpoints import streaming
from embexp.checkpoints.by_name import as_objects
from embexp.errors import CheckpointError
from embexp.tables.streamed import Bypass, StreamedTable, bypass
from embexp.tensor_bundle import increments


@dataclass(frozen=True)
class GraphSaver:
    """Saves and restores all that a checkpoint object of a graph reaches.

    Attributes:
        saver: a `tf.compat.v1.train.Saver`, without the rows of `tables`.
        others: a `Saver` of everything but `tables`.
        tables: tables whose rows are saved and restored in blocks, by key.
        checkpoint: the object.
    """

    saver: Any
    others: Any
    tables: Mapping[str, StreamedTable]
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
            if self.tables:
                with session.as_default():
                    streaming.restore(objects, self.tables)


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
    tables = {each.specs[0].name: each.op for each in saveables if isinstance(each.op, StreamedTable)}
    saver = tf.compat.v1.train.Saver(saveables, max_to_keep=1)
    if not tables:
        return GraphSaver(saver, saver, tables, checkpoint)
    others = [each for each in saveables if not isinstance(each.op, StreamedTable)]
    return GraphSaver(saver, tf.compat.v1.train.Saver(others, max_to_keep=1), tables, checkpoint)
