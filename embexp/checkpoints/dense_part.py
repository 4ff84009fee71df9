"""The dense part of an earlier checkpoint, restored into another experiment: weights and optimizer slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import graph_view, save_util_v1

from embexp.checkpoints import store
from embexp.checkpoints.paths import plain_path
from embexp.errors import CheckpointError
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.rekeying import KEY_END
from embexp.tensor_bundle.tensor import read_content

_CHUNK_BYTES = 1 << 24
_OPTIMIZER = "optimizer/"
_WEIGHTS_OF_OPTIMIZER = "optimizer/_trainable_variables/"
"""The optimizer's children that are the model's weights: the shortest way to them, so that it is their key."""
_OTHER_PARTS = ("embedding/", "random/", "step", "save_counter", "_CHECKPOINTABLE_OBJECT_GRAPH")


@dataclass(frozen=True)
class DenseValues:
    """Values to restore into a dense part.

    Attributes:
        notes: what is not restored, and why.
    """

    values: list[tuple[Any, np.ndarray]]
    notes: tuple[str, ...] = ()

    def assign(self) -> None:
        """Assigns the values to eager variables."""
        for variable, value in self.values:
            variable.assign(value)

    def fill(self, session: Any) -> None:
        """Assigns the values to variables of a graph, in a session."""
        for variable, value in self.values:
            session.run(variable.initializer, {variable.initializer.inputs[1]: value})


def read(parts: Any, index: Path, *, same_optimizer: bool) -> DenseValues:
    """Reads the values of a dense part from an earlier checkpoint, matched by their place in model and optimizer.

    Args:
        parts: a `tf.train.Checkpoint` with model, optimizer, random and step, all of whose variables exist.
        index: the `.index` file of the earlier checkpoint.
        same_optimizer: whether the optimizers are of the same kind, so that slots can be restored.

    Raises:
        CheckpointError: weights differ in number or shape; the message lists them all.
        DataError: the checkpoint is damaged.
    """
    weights, slots = _variables(parts)
    stored = {
        key.removesuffix(KEY_END): entry for key, entry in read_index(index).items() if not key.startswith(_OTHER_PARTS)
    }
    stored_slots = {
        key: entry
        for key, entry in stored.items()
        if key.startswith(_OPTIMIZER) and not key.startswith(_WEIGHTS_OF_OPTIMIZER)
    }
    stored_weights = {key: entry for key, entry in stored.items() if key not in stored_slots}
    if faults := [*_faults(weights, stored_weights)]:
        raise CheckpointError(
            f"the dense part of {index.parent} does not fit this experiment's: {'; '.join(faults)}. Use the same model"
            " again, or set pretrained.dense=false to begin with a new dense part"
        )
    values = [(variable, tensor(key, stored_weights[key])) for key, variable in weights.items()]
    fresh = [key for key in slots if key not in stored_slots or _shape(slots[key]) != stored_slots[key].shape]
    if not slots or not weights:
        return DenseValues(values)
    if not same_optimizer or fresh:
        why = "differ in number or shape" if same_optimizer else "are of another kind of optimizer"
        return DenseValues(values, (f"dense_optimizer: begins afresh, as the checkpoint's slots {why}",))
    values += [(variable, tensor(key, stored_slots[key])) for key, variable in slots.items()]
    if extra := len(stored_slots.keys() - slots.keys()):
        return DenseValues(
            values, (f"dense_optimizer: {extra} slots of the checkpoint are ignored: it has no such slots",)
        )
    return DenseValues(values)


def tensor(key: str, entry: Entry) -> np.ndarray:
    """A tensor that is stored in one piece.

    Raises:
        CheckpointError: it is not, or its type has no counterpart in NumPy.
        DataError: its file is damaged or cut short.
    """
    (piece, *more) = entry.pieces
    dtype = tf.dtypes.as_dtype(entry.kind)
    if more or dtype.as_numpy_dtype is object:
        raise CheckpointError(f"{piece.path}: found a tensor of {dtype.name} in {1 + len(more)} pieces, expected one")
    return np.frombuffer(b"".join(read_content(key, piece, _CHUNK_BYTES)), dtype.as_numpy_dtype).reshape(entry.shape)


def _variables(parts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """By key, the model's variables and those of the optimizer alone."""
    # Without the tables, which would be read whole.
    seen = tf.train.Checkpoint(model=parts.model, optimizer=parts.optimizer, random=parts.random, step=parts.step)
    with tf.device("/cpu:0"):
        saveables, _ = save_util_v1.frozen_saveables_and_savers(graph_view.ObjectGraphView(seen))
    model_weights = {id(variable.value) for variable in parts.model.weights}
    weights, slots = {}, {}
    for each in saveables:
        variable = each.op.value if isinstance(each.op, keras.Variable) else each.op
        key = each.name.removesuffix("/.ATTRIBUTES/")
        if id(variable) in model_weights:
            weights[key] = variable
        elif key.startswith(_OPTIMIZER):
            slots[key] = variable
    return weights, slots


def _faults(weights: Mapping[str, Any], stored: Mapping[str, Entry]) -> list[str]:
    faults = []
    for key, variable in weights.items():
        if key not in stored:
            faults.append(f"it lacks {_name(variable)} {_shape(variable)}")
        elif stored[key].shape != _shape(variable):
            faults.append(f"{_name(variable)} is {_shape(variable)} and was {stored[key].shape}")
    return faults + [f"it has {key} {entry.shape} too many" for key, entry in stored.items() if key not in weights]


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.shape.as_list())


def _name(variable: Any) -> str:
    return str(variable.name).split(":")[0]


def restore_weights(model: Any, directory: Path) -> None:
    """Restores all weights of a Keras model from a run's checkpoint.

    Raises:
        CheckpointError: a weight is missing or of another shape.
    """
    store.prefix_in(directory)  # raises if there is none, with the directory's own name
    like = tf.train.Checkpoint(model=model)
    with plain_path(directory) as path:
        try:
            like.read(store.prefix_in(path)).expect_partial().assert_existing_objects_matched()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            raise CheckpointError(f"{directory} does not fit the model: {error}") from error
