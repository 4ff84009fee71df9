"""Values that wait: restored when their variables are created, also while Keras builds a model by tracing its call.

TensorFlow leaves a position of the checkpoint at every object that lacks a part which the checkpoint has. Two things go
wrong with Keras 3. A model without a `build` of its own is built by tracing `call`: its variables have no value until
the trace ends, TensorFlow's restore raises, Keras catches that and makes the layer's variables again, when nothing
waits any more. So the positions here give a variable without a value another initializer. And an optimizer, when it is
built, puts another list in the place of an empty one, which would have been restored. That one is hidden before.

A variable that turns out to have another shape or type keeps what it has, as those do that exist before.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.checkpoint import restore as tensorflow_restore

from embexp.checkpoints.matching import Matching
from embexp.checkpoints.object_graph import TRAINABLE
from embexp.checkpoints.objects import VARIABLE

_NOTHING: tuple[Any, ...] = ((), {}, (), {})
"""What TensorFlow is to restore for an object: operations, tensors, states of Python, registered savers."""


class Deferred:
    """What still waits after TensorFlow has restored all that exists."""

    def __init__(self, coordinator: Any, matching: Matching) -> None:
        """Takes the place of TensorFlow's own positions.

        Args:
            coordinator: TensorFlow's record of the restore.
        """
        self.matching = matching
        self._without_value: list[_Position] = []
        for trackable in list(coordinator.all_python_objects):
            for positions in trackable._deferred_dependencies.values():
                positions[:] = [
                    _Position(coordinator, each.proto_id, self) if each.checkpoint is coordinator else each
                    for each in positions
                ]

    def add(self, position: _Position) -> None:
        """Takes a variable of a graph that has no value yet, so that no operation can restore it."""
        self._without_value.append(position)

    def catch_up(self) -> None:
        """Adds the operations that restore variables of a graph which had no value when they were bound."""
        for position in self._without_value:
            position.restore_now()
        self._without_value.clear()


def hide_lists(root: Any) -> None:
    """Hides the empty lists of optimizers that are not built, so that what they should hold waits for those to come."""
    for each in tf.train.TrackableView(root).descendants():
        if isinstance(each, keras.optimizers.Optimizer) and not each.built:
            each._delete_tracking(TRAINABLE)


class _Position(tensorflow_restore.CheckpointPosition):  # type: ignore[misc]  # TensorFlow is untyped
    """A part of an object that the checkpoint has, by the name of the edge to it."""

    __slots__ = ("_deferred",)

    def __init__(self, checkpoint: Any, proto_id: int, deferred: Deferred) -> None:
        super().__init__(checkpoint=checkpoint, proto_id=proto_id)
        self._deferred = deferred

    def create_child_position(self, node_id: int) -> _Position:
        return _Position(self.checkpoint, node_id, self._deferred)

    def restore_now(self) -> None:
        with tf.init_scope():
            self.checkpoint.new_restore_ops(self._restore_descendants())

    def _single_restore(self) -> Any:
        trackable, uid = self.trackable, self.checkpoint.restore_uid
        trackable._maybe_initialize_trackable()
        if uid > trackable._update_uid:
            if self._deferred.matching.is_mismatch(self.proto_id, trackable):
                for slot in self.checkpoint.slot_restorations.get(self.proto_id, ()):
                    # TensorFlow would create the slot variable by its value.
                    del self.checkpoint.object_graph_proto.nodes[slot.slot_variable_id].attributes[:]
                trackable._update_uid = uid
                return _NOTHING
            if isinstance(trackable, keras.Variable) and trackable._value is None:
                if tf.executing_eagerly():
                    trackable._initializer = _initializer(self, trackable._initializer)
                    trackable._update_uid = uid
                else:
                    self._deferred.add(self)
                return _NOTHING
        return super()._single_restore()


def _initializer(position: _Position, initializer: Any) -> Any:
    """Reads the value of a Keras variable when it gets one; in the trace before, a placeholder is made."""

    def restored(shape: Any, dtype: Any = None) -> Any:
        if tf.executing_eagerly():
            return position.value_tensors()[VARIABLE]
        return initializer(shape, dtype=dtype)

    return restored
