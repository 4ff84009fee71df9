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
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import restore as tensorflow_restore

from embexp.checkpoints.account import Mismatch
from embexp.checkpoints.growing import RowMap
from embexp.checkpoints.matching import Matching
from embexp.checkpoints.object_graph import TRAINABLE
from embexp.checkpoints.objects import VARIABLE, assign, part_of, resource_variables
from embexp.system.tensor_bundle.increments import Values

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
            self.adopt_slots(trackable, coordinator)

    def adopt_slots(self, optimizer: Any, coordinator: Any) -> None:
        """Takes the place of positions of slot variables that an optimizer of TensorFlow 1 has yet to make."""
        for by_variable in getattr(optimizer, "_deferred_slot_restorations", {}).values():
            for positions in by_variable.values():
                positions[:] = [
                    _Position(coordinator, each.proto_id, self)
                    if each.checkpoint is coordinator and not isinstance(each, _Position)
                    else each
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

    def create_slot_variable_position(self, optimizer_object: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().create_slot_variable_position(optimizer_object, *args, **kwargs)
        self._deferred.adopt_slots(optimizer_object, self.checkpoint)
        return found

    def _single_restore(self) -> Any:
        trackable, uid, matching = self.trackable, self.checkpoint.restore_uid, self._deferred.matching
        trackable._maybe_initialize_trackable()
        if uid <= trackable._update_uid:
            return super()._single_restore()
        unlike = matching.settle_late(self.proto_id, trackable)
        if unlike is not None:
            for slot in self.checkpoint.slot_restorations.get(self.proto_id, ()):
                # TensorFlow would create the slot variable by its value.
                del self.checkpoint.object_graph_proto.nodes[slot.slot_variable_id].attributes[:]
        without_value = isinstance(trackable, keras.Variable) and trackable._value is None
        if not isinstance(unlike, Mismatch) and without_value and not tf.executing_eagerly():
            self._deferred.add(self)
            return _NOTHING
        if isinstance(unlike, RowMap):
            key = next(each.key for each in matching.stored if each.node == self.proto_id)
            if without_value:
                trackable._initializer = _grown_initializer(matching.tensors[key], unlike, trackable._initializer)
            elif tf.executing_eagerly():
                assign_grown(trackable, matching.tensors[key], unlike)
        elif unlike is None and not without_value:
            return super()._single_restore()
        elif unlike is None:
            trackable._initializer = _initializer(self, trackable._initializer)
        trackable._update_uid = uid
        return _NOTHING


def _initializer(position: _Position, initializer: Any) -> Any:
    """Reads the value of a Keras variable when it gets one; in the trace before, a placeholder is made."""

    def restored(shape: Any, dtype: Any = None) -> Any:
        if tf.executing_eagerly():
            return position.value_tensors()[VARIABLE]
        return initializer(shape, dtype=dtype)

    return restored


def _grown_initializer(values: Values, rows: RowMap, initializer: Any) -> Any:
    def restored(shape: Any, dtype: Any = None) -> Any:
        initial = initializer(shape, dtype=dtype)
        if not tf.executing_eagerly():
            return initial
        value = np.array(initial)
        rows.assign(values, value.__setitem__)
        return tf.constant(value)

    return restored


def assign_grown(variable: Any, values: Values, rows: RowMap) -> None:
    """Assigns the rows of a value that a variable has, in the default session if it is one of a graph.

    A variable of a graph that has no value yet is initialized.

    Raises:
        DataError: a data file is damaged or cut short; rows may be assigned then.
    """
    if tf.executing_eagerly() and (parts := resource_variables(variable)):

        def scatter(numbers: np.ndarray, block: np.ndarray) -> None:
            for each in parts:
                each.scatter_update(tf.IndexedSlices(block, numbers))

        rows.assign(values, scatter)
        return
    part, session = part_of(variable), tf.compat.v1.get_default_session()
    variable = variable.value if isinstance(variable, keras.Variable) else variable
    if tf.executing_eagerly():
        value = np.array(variable)
    else:
        try:
            value = np.array(session.run(variable))
        except tf.errors.FailedPreconditionError:
            session.run(variable.initializer)
            value = np.array(session.run(variable))
    columns: tuple[slice, ...] = ()
    if part is not None:
        rows = RowMap(rows.before, rows.places[part.start[0] : part.start[0] + part.shape[0]])
        columns = tuple(slice(at, at + size) for at, size in zip(part.start[1:], part.shape[1:], strict=True))
    rows.assign(values, lambda numbers, block: value.__setitem__(numbers, block[(slice(None), *columns)]))
    assign(variable, value)
