"""The dense part of an earlier checkpoint, restored into another experiment: weights and optimizer slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.checkpoints import objects, store
from embexp.checkpoints.paths import plain_path
from embexp.checkpoints.restoring import assign
from embexp.errors import CheckpointError
from embexp.tensor_bundle import increments
from embexp.tensor_bundle.increments import Values
from embexp.tensor_bundle.index import prefix_of
from embexp.tensor_bundle.rekeying import KEY_END

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
        """Assigns the values to eager variables, or in the default session."""
        for variable, value in self.values:
            assign(variable, value)

    def fill(self, session: Any) -> None:
        """Assigns the values to variables of a graph, in a session."""
        with session.as_default():
            self.assign()


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
        key.removesuffix(KEY_END): values
        for key, values in increments.tensors(increments.chain(prefix_of(index))).items()
        if not key.startswith(_OTHER_PARTS)
    }
    stored_slots = {
        key: values
        for key, values in stored.items()
        if key.startswith(_OPTIMIZER) and not key.startswith(_WEIGHTS_OF_OPTIMIZER)
    }
    stored_weights = {key: values for key, values in stored.items() if key not in stored_slots}
    if faults := [*_faults(weights, stored_weights)]:
        raise CheckpointError(
            f"the dense part of {index.parent} does not fit this experiment's: {'; '.join(faults)}. Use the same model"
            " again, or set pretrained.dense=false to begin with a new dense part"
        )
    values = [(variable, _checked(stored_weights[key])) for key, variable in weights.items()]
    fresh = [key for key in slots if key not in stored_slots or _shape(slots[key]) != stored_slots[key].entry.shape]
    if not slots or not weights:
        return DenseValues(values)
    if not same_optimizer or fresh:
        why = "differ in number or shape" if same_optimizer else "are of another kind of optimizer"
        return DenseValues(values, (f"dense_optimizer: begins afresh, as the checkpoint's slots {why}",))
    values += [(variable, _checked(stored_slots[key])) for key, variable in slots.items()]
    if extra := len(stored_slots.keys() - slots.keys()):
        return DenseValues(
            values, (f"dense_optimizer: {extra} slots of the checkpoint are ignored: it has no such slots",)
        )
    return DenseValues(values)


def _checked(values: Values) -> np.ndarray:
    values.verify()
    return values.value()


def _variables(parts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """By key, the model's variables and those of the optimizer alone."""
    # Without the tables.
    seen = tf.train.Checkpoint(model=parts.model, optimizer=parts.optimizer, random=parts.random, step=parts.step)
    model_weights = {id(variable.value) for variable in parts.model.weights}
    weights, slots = {}, {}
    for each in objects.graph_of(seen).values:
        variable = each.object.value if isinstance(each.object, keras.Variable) else each.object
        if id(variable) in model_weights:
            weights[each.path] = variable
        elif each.path.startswith(_OPTIMIZER):
            slots[each.path] = variable
    return weights, slots


def _faults(weights: Mapping[str, Any], stored: Mapping[str, Values]) -> list[str]:
    faults = []
    for key, variable in weights.items():
        if key not in stored:
            faults.append(f"it lacks {_name(variable)} {_shape(variable)}")
        elif stored[key].entry.shape != _shape(variable):
            faults.append(f"{_name(variable)} is {_shape(variable)} and was {stored[key].entry.shape}")
    return faults + [
        f"it has {key} {values.entry.shape} too many" for key, values in stored.items() if key not in weights
    ]


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
