"""Gradients and updates of selected rows of a variable, for your own training loops.

The gradient is taken with respect to the rows that were looked up, each once. The optimizer updates only these rows, as
in embexp's own runs. So time and memory do not depend on the size of the table. Everything works eagerly, inside a
`tf.function`, and in a TensorFlow 1 graph, with resource and reference variables, where `update` returns the operation
to run.

    found = embexp.rows.gradient(lambda looked_up: loss(looked_up), table, ids, frozen=frozen)
    embexp.rows.update(optimizer, table, slots, found)

To take other gradients with the same tape, call `gather` before it:

    chosen = embexp.rows.gather(table, ids)
    with tf.GradientTape() as tape:
        tape.watch(chosen.values)
        loss = model(chosen.lookup())
    found, *others = tape.gradient(loss, [chosen.values, *model.trainable_variables])
    embexp.rows.update(optimizer, table, slots, chosen.gradient(found))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.specs.optimizers import TableOptimizer
from embexp.tables import frozen_rows
from embexp.tables import optimizers as rules
from embexp.tables.frozen_rows import FrozenRows
from embexp.tables.inputs import without_autograph
from embexp.tables.variables import filled, gather_rows, in_keras, is_writable, scatter_rows

__all__ = ["FrozenRows", "Gathered", "RowGradient", "gather", "gradient", "of_slices", "slots", "update"]


@dataclass(frozen=True, eq=False)
class RowGradient:
    """A gradient with respect to some rows of a variable.

    Attributes:
        ids: int32 or int64 [u], the rows, each once.
        values: float32 [u, dim], summed over all lookups of each row.
        loss: the scalar whose gradient this is; None where only the gradient is known.
    """

    ids: Any
    values: Any
    loss: Any = None


@dataclass(frozen=True, eq=False)
class Gathered:
    """Some rows of a variable, each once.

    Attributes:
        ids: int32 or int64 [u], the numbers of the rows, in order of first occurrence.
        values: float32 [u, dim], the rows, for a tape to watch.
        positions: int32, in the shape of the gathered ids: the position of each in `ids`.
        rows: how many rows the variable has.
    """

    ids: Any
    values: Any
    positions: Any
    rows: int

    def lookup(self) -> Any:
        """The row of every gathered id, repetitions included: float32 [..., dim]."""
        return tf.gather(self.values, self.positions)

    @without_autograph
    def gradient(self, found: Any, *, frozen: Any = None, loss: Any = None) -> RowGradient:
        """The gradient that a tape computed for `values`, ready for `update`.

        Args:
            found: `tape.gradient(loss, gathered.values)`: float32 [u, dim], `tf.IndexedSlices`, or None for zero.
            frozen: rows to exclude, as in `embexp.rows.gradient`.
        """
        if found is None:
            found = tf.zeros_like(self.values)
        elif isinstance(found, tf.IndexedSlices):
            found = tf.math.unsorted_segment_sum(found.values, found.indices, tf.size(self.ids))
        return _without(frozen, RowGradient(self.ids, found, loss), self.rows)


@without_autograph
def gather(variable: Any, ids: Any) -> Gathered:
    """Gathers rows, each once.

    Args:
        variable: float32 [rows, dim], a `tf.Variable` or a Keras variable.
        ids: int32 or int64, of any shape; may repeat.

    Raises:
        ValueError: the variable is not a matrix of float32, or the ids are not integers.
        tf.errors.InvalidArgumentError: an id is outside the variable (on a CPU).
    """
    variable = _checked(variable)
    ids = _integers(ids)
    distinct, positions = tf.unique(tf.reshape(ids, [-1]))
    rows = int(variable.shape[0])
    return Gathered(distinct, gather_rows(variable, distinct), tf.reshape(positions, tf.shape(ids)), rows)


def gradient(loss: Callable[[Any], Any], variable: Any, ids: Any, *, frozen: Any = None) -> RowGradient:
    """The gradient of a loss with respect to only the rows that are looked up.

    Args:
        loss: from the looked-up rows, float32 [*shape of ids, dim], to a scalar.
        variable: float32 [rows, dim], a `tf.Variable` or a Keras variable.
        ids: int32 or int64, of any shape; may repeat.
        frozen: rows that are looked up but excluded from the gradient: a range, a slice, their numbers, integers [k],
            or a mask of all rows, booleans [rows]. None: no rows. Their number affects neither the size of a graph nor
            the time of a step, except for row numbers in an eager loop: prepare these once with `FrozenRows`.

    Returns:
        The gradient, summed over repetitions, and the loss.

    Raises:
        ValueError: an argument has the wrong type or shape, or a frozen row is not in the variable.
        tf.errors.InvalidArgumentError: an id is outside the variable (on a CPU), or a frozen row of a tensor.
    """
    chosen = gather(variable, ids)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(chosen.values)
        value = loss(chosen.lookup())
    return chosen.gradient(tape.gradient(value, chosen.values), frozen=frozen, loss=value)


@without_autograph
def of_slices(slices: Any, *, frozen: Any = None) -> RowGradient:
    """The gradient that a tape returned for a whole variable, with each row once.

    Args:
        slices: a `tf.IndexedSlices`, values float32 [n, dim].
        frozen: rows to exclude, as in `gradient`.
    """
    if not isinstance(slices, tf.IndexedSlices):
        raise ValueError(
            f"expected tf.IndexedSlices, the gradient of a variable that only tf.gather reads, got {type(slices)}"
        )
    ids, positions = tf.unique(slices.indices)
    found = RowGradient(ids, tf.math.unsorted_segment_sum(slices.values, positions, tf.size(ids)))
    known = slices.dense_shape is not None and slices.shape.rank is not None
    return _without(frozen, found, slices.shape.as_list()[0] if known else None)


def slots(optimizer: TableOptimizer, variable: Any) -> dict[str, Any]:
    """New variables for an optimizer's slots, with their initial values, by name; float32 [rows, dim].

    Slots in its `row_slots` are [rows, 1].
    """
    variable = _checked(variable)
    rows, dim = variable.shape.as_list()
    shapes = {name: [rows, 1 if name in optimizer.row_slots else dim] for name in rules.slots_of(optimizer)}
    return {
        name: tf.Variable(
            functools.partial(filled, shapes[name], value), trainable=False, shape=shapes[name], name=name
        )
        for name, value in rules.slots_of(optimizer).items()
    }


@without_autograph
def update(
    optimizer: TableOptimizer,
    variable: Any,
    slots: Mapping[str, Any],
    gradient: RowGradient,
    *,
    step: Any = None,
    total_steps: int | None = None,
) -> Any:
    """Applies one step of an optimizer to the rows of a gradient, and to no others.

    Args:
        optimizer: one of `embexp.specs.optimizers`.
        variable: float32 [rows, dim], a `tf.Variable` or a Keras variable.
        slots: the result of `slots` for this variable.
        gradient: the result of `gradient`, `Gathered.gradient` or `of_slices`.
        step: number of the step from 0, for an optimizer with a schedule: an int64 scalar, tensor or variable.
        total_steps: length of the training, for a schedule that ends with it.

    Returns:
        In a TensorFlow 1 graph, the update operation; otherwise None, and the update is already done.

    Raises:
        ValueError: an argument has the wrong type or shape, or does not fit the optimizer.
    """
    variable, slots = _checked(variable), {name: in_keras(slot) for name, slot in slots.items()}
    if optimizer.moves_every_row:
        raise ValueError(
            "adam with lazy_adam=False updates every row, not only the rows in the gradient; set lazy_adam=True"
        )
    if set(slots) != (expected := set(rules.slots_of(optimizer))):
        raise ValueError(f"{optimizer.kind} needs the slots {sorted(expected)}, got {sorted(slots)}")
    ids, rate = gradient.ids, tf.constant(optimizer.learning_rate, tf.float32)
    if not rules.is_constant(optimizer.schedule):
        if step is None or total_steps is None:
            raise ValueError(f"{optimizer.kind} has a schedule ({optimizer.schedule.kind}): pass step and total_steps")
        rate *= rules.schedule_factor(optimizer.schedule, step, total_steps=total_steps)
    before = {name: gather_rows(slot, ids) for name, slot in slots.items()}
    rows, after = rules.updated(optimizer, gather_rows(variable, ids), before, gradient.values, rate)
    done = [scatter_rows(slots[name], ids, values) for name, values in after.items()]
    return tf.group(*done, scatter_rows(variable, ids, rows))


def _without(frozen: Any, found: RowGradient, rows: int | None) -> RowGradient:
    if frozen is None:
        return found
    kept = tf.where(~frozen_rows.among(frozen, found.ids, rows))[:, 0]
    return RowGradient(tf.gather(found.ids, kept), tf.gather(found.values, kept), found.loss)


def _checked(variable: Any) -> Any:
    variable = in_keras(variable)
    if not is_writable(variable):
        raise ValueError(f"expected a tf.Variable or a Keras variable, got {type(variable).__name__}")
    if variable.dtype.base_dtype != tf.float32 or variable.shape.rank != 2:
        raise ValueError(
            f"expected a float32 variable [rows, dim], got {variable.dtype.name} of shape {variable.shape}"
        )
    return variable


def _integers(ids: Any) -> Any:
    ids = tf.convert_to_tensor(ids)
    if ids.dtype not in (tf.int32, tf.int64):
        if ids.shape.num_elements() == 0:
            return tf.cast(ids, tf.int64)  # an empty list, which TensorFlow calls float32
        raise ValueError(f"ids must be int32 or int64, got {ids.dtype.name}")
    return ids
