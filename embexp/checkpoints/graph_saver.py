"""Checkpoints of a graph of TensorFlow 1: a `Saver` that writes what `tf.train.Checkpoint` would write eagerly."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.checkpoint import graph_view, save_util_v1


def saver_of(checkpoint: Any) -> Any:
    """A `tf.compat.v1.train.Saver` of all that a `tf.train.Checkpoint` of this graph reaches.

    Its files hold the keys and the object graph of an object-based checkpoint, so that they can be restored into the
    same objects made eagerly, and the other way round. TensorFlow makes its own savers of SavedModels this way, but
    has no public name for it.

    Raises:
        ValueError: there is a global variable that the checkpoint does not reach: a session that starts from it would
            find that variable without a value.
    """
    with tf.device("/cpu:0"):
        saveables, _ = save_util_v1.frozen_saveables_and_savers(graph_view.ObjectGraphView(checkpoint))
    objects = [each.op for each in saveables]
    reached = {id(each.value if isinstance(each, keras.Variable) else each) for each in objects}
    # What writes several variables as one names them.
    reached |= {id(part) for each in objects for part in getattr(each, "covered", ())}
    if missing := [each.name for each in tf.compat.v1.global_variables() if id(each) not in reached]:
        raise ValueError(f"no part of the checkpoint: {', '.join(missing)}")
    return tf.compat.v1.train.Saver(saveables, max_to_keep=1)
