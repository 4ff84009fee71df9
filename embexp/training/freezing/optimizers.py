"""`embexp.freeze`: an optimizer of TensorFlow 1 or Keras 3 that leaves some rows of variables as they are.

The rows, and their rows in the optimizer's slots, keep every bit, whatever the optimizer does: momentum, Adam's state,
weight decay, averages, clipping.

In `tf.compat.v1.train`, in a graph, in an Estimator's `model_fn`, or eagerly: where an optimizer is known to touch only
the rows of a sparse gradient, frozen rows are left out of that gradient, and the cost of a step stays that of its
batch. Otherwise, the frozen rows are read before the update and put back after it.

In Keras 3, for `compile`, `fit` and own loops, compiled by XLA or not: Keras' optimizers compute whole variables at
each step. So frozen rows, of the variable and of all that the optimizer keeps for it, are read before the update and
put back after it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.tables.frozen_rows import FrozenRows
from embexp.tables.variables import in_keras, is_writable
from embexp.training.freezing.watching import Cause, by_cause, row_hashes

__all__ = ["Report", "RowReport", "freeze"]

_BLOCK_BYTES = 16 * 1024 * 1024
_EXPLANATIONS = {
    Cause.NEVER_MET: "were never looked up",
    Cause.NO_GRADIENT: "were looked up, but their gradient was 0, or too small to change a bit",
}
_OF_DENSE = "got no gradient: they were not looked up, or it was 0 or too small (dense gradients can't tell which)"
Values = Callable[[Any], np.ndarray]
"""The values of a variable."""
_SETTINGS = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "ema_momentum",
    "ema_overwrite_frequency",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)
"""Settings of every Keras optimizer that callbacks and other wrappers read and set."""
_train = tf.compat.v1.train
ROW_WISE = frozenset(
    {
        _train.AdadeltaOptimizer,
        _train.AdagradOptimizer,
        _train.FtrlOptimizer,
        _train.GradientDescentOptimizer,
        _train.MomentumOptimizer,
        _train.ProximalAdagradOptimizer,
        _train.ProximalGradientDescentOptimizer,
        _train.RMSPropOptimizer,
    }
)
"""Optimizers that change only the rows of a sparse gradient, and their rows of the slots. A subclass may do more."""


@dataclass(frozen=True, eq=False)
class RowReport:
    """What happened to the rows of a variable.

    Attributes:
        rows: number of rows.
        frozen: number of frozen rows.
        frozen_changed: number of frozen rows whose bits changed since the beginning: 0, unless the program assigned
            them.
        moved: number of other rows whose bits changed.
        never_moved: other rows that never moved, bool [rows], by cause; only causes that occur.
        dense: whether a step had a dense gradient, which doesn't show which rows were looked up.
    """

    name: str
    rows: int
    frozen: int
    frozen_changed: int
    moved: int
    never_moved: dict[Cause, np.ndarray]
    dense: bool

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.rows:,} rows, {self.frozen:,} frozen ({self.frozen_changed:,} of them changed),"
            f" {self.moved:,} of {self.rows - self.frozen:,} trainable rows moved"
        ]
        for cause, mask in self.never_moved.items():
            numbers = np.flatnonzero(mask)
            shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
            why = _OF_DENSE if self.dense else _EXPLANATIONS[cause]
            lines.append(
                f"  {len(numbers):,} never moved: they {why} ({'row' if len(numbers) == 1 else 'rows'} {shown})"
            )
        return "\n".join(lines)


class Report(dict[str, RowReport]):
    """Row reports by variable name. It prints as a few lines per variable."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))


class Kept:
    """A variable with its frozen rows.

    Attributes:
        variable: the `tf.Variable`, or reference variable of TensorFlow 1.
        name: its path in Keras, or its name.
        frozen: the frozen rows.
    """

    def __init__(self, variable: Any, frozen: Any) -> None:
        """Reads no row: the first step hashes them.

        Raises:
            ValueError: it is no variable with rows, or a row is not in it.
        """
        self.variable = in_keras(variable)
        if not is_writable(self.variable) or not self.variable.shape.rank:
            raise ValueError(
                "embexp.freeze: expected a variable [rows, …] of TensorFlow or Keras, found"
                f" {type(variable).__name__}{'' if not is_writable(self.variable) else ' of no dimension'}"
            )
        self.name = str(getattr(variable, "path", None) or self.variable.name.removesuffix(":0"))
        if isinstance(frozen, FrozenRows) and frozen.rows != self.variable.shape[0]:
            raise ValueError(f"{self.name}: frozen was prepared for a variable of {frozen.rows:,} rows")
        try:
            self.frozen = frozen if isinstance(frozen, FrozenRows) else FrozenRows(frozen, self.variable)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        self._dense = False
        self._hashes: np.ndarray | None = None  # 8 bytes for each row
        with tf.init_scope():
            self._in_session = not tf.executing_eagerly()
            self._looked_up: Any = np.zeros(self.frozen.rows, np.bool_)
            if not self._in_session:
                self._looked_up = tf.Variable(tf.zeros([self.frozen.rows], tf.uint8), trainable=False)

    def is_in(self, variable: Any) -> bool:
        """Whether it is this variable."""
        return in_keras(variable) is self.variable

    def without_frozen(self, gradient: Any, *, fewer: bool = False) -> Any:
        """The gradient, of which frozen rows are 0.

        Args:
            gradient: dense or `tf.IndexedSlices`.
            fewer: leave frozen rows of slices out, which changes their number.
        """
        if isinstance(gradient, tf.IndexedSlices):
            frozen = self.frozen.among(gradient.indices)
            if fewer:
                kept = tf.where(~frozen)[:, 0]
                values, indices = tf.gather(gradient.values, kept), tf.gather(gradient.indices, kept)
                return tf.IndexedSlices(values, indices, gradient.dense_shape)
            values = tf.where(self._along_rows(frozen), tf.zeros([], gradient.values.dtype), gradient.values)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        frozen = self.frozen.among(tf.range(self.frozen.rows, dtype=tf.int64))
        return tf.where(self._along_rows(frozen), tf.zeros([], gradient.dtype), gradient)

    def noted(self, gradient: Any) -> list[Any]:
        """Notes for the report what a step is about to do; returns the operations that must come before it."""
        self._dense |= not isinstance(gradient, tf.IndexedSlices)
        if not self._in_session:
            if self._hashes is None:
                with tf.init_scope():  # a function is traced just before its first step
                    self._hashes = _hashed(self.variable)
            if isinstance(gradient, tf.IndexedSlices):
                ones = tf.ones_like(gradient.indices, tf.uint8)
                self._looked_up.scatter_update(tf.IndexedSlices(ones, gradient.indices))
            return []

        def note(ids: np.ndarray) -> np.int32:
            self._looked_up[ids] = True
            return np.int32(0)

        def hash_all(values: np.ndarray) -> np.int32:
            self._hashes = _hashed(values)
            return np.int32(0)

        first = tf.numpy_function(lambda: np.bool_(self._hashes is None), [], tf.bool)
        first.set_shape([])
        hashed = tf.cond(
            first,
            lambda: tf.numpy_function(hash_all, [tf.convert_to_tensor(self.variable)], tf.int32),
            lambda: tf.constant(0),
        )
        if not isinstance(gradient, tf.IndexedSlices):
            return [hashed]
        return [hashed, tf.numpy_function(note, [gradient.indices], tf.int32)]

    def rows_of(self, variables: Sequence[Any]) -> list[Any]:
        """The frozen rows of the variable, or of some of its slots, as they are now."""
        numbers = self.frozen.numbers()
        return [tf.gather(in_keras(variable), numbers) for variable in variables]

    def put_back(self, variables: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """Gives their frozen rows earlier values; returns the operations that do."""
        numbers = self.frozen.numbers()
        done = []
        for variable, values in zip(map(in_keras, variables), rows, strict=True):
            if hasattr(variable, "handle"):
                done.append(tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=numbers, updates=values))
            else:
                done.append(tf.compat.v1.scatter_update(variable, numbers, values).op)
        return done

    def report(self, values: Values) -> RowReport:
        """What became of its rows."""
        if self._hashes is None:
            raise ValueError(f"{self.name}: no training step was run, so there is nothing to report")
        changed = self._hashes != _hashed(values(self.variable))
        looked_up = self._looked_up if self._in_session else self._looked_up.numpy() != 0
        if self._dense:
            looked_up = np.ones(self.frozen.rows, np.bool_)
        found = by_cause(
            changed, frozen=self.frozen.mask, looked_up=looked_up, idle=None, special=np.zeros(0, np.int64)
        )
        frozen_changed = int(np.count_nonzero(changed & self.frozen.mask))
        return RowReport(
            self.name, self.frozen.rows, self.frozen.count, frozen_changed, found.moved, found.rows, self._dense
        )

    def _along_rows(self, mask: Any) -> Any:
        return tf.reshape(mask, [-1, *[1] * (self.variable.shape.rank - 1)])


def reports(kept: Sequence[Kept], values: Any) -> Report:
    """What became of the rows of variables.

    Args:
        values: the session that has the variables, a monitored one, a mapping or function from a variable's name to its
            values, such as `estimator.get_variable_value`, or None for eager variables.
    """
    return Report({each.name: each.report(partial(_value, each.name, values)) for each in kept})


def _value(name: str, values: Any, variable: Any) -> Any:
    if values is None:
        with tf.init_scope():
            if not tf.executing_eagerly():
                raise ValueError("report: in a TensorFlow 1 graph, pass the session that holds the variables")
        return variable
    if isinstance(values, Mapping):
        return values[name]
    if callable(values):
        return values(name)
    if hasattr(values, "run_step_fn"):  # a monitored session, whose hooks must not count this as a step
        return values.run_step_fn(lambda context: context.session.run(variable))
    return values.run(variable)


def _hashed(values: Any) -> np.ndarray:
    """A hash of the bits of each row of a variable or an array, uint64 [rows]. Reads in blocks."""
    rows = int(values.shape[0])
    step = max(_BLOCK_BYTES // (4 * max(int(np.prod(values.shape[1:])), 1)), 1)
    hashes = np.empty(rows, np.uint64)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        block = tf.gather(values, tf.range(start, stop)).numpy() if is_writable(values) else values[start:stop]
        block = np.ascontiguousarray(block).reshape(stop - start, -1)
        if block.dtype.itemsize < 4:
            block = block.view(f"u{block.dtype.itemsize}").astype(np.uint32)
        hashes[start:stop] = row_hashes(block.view(np.float32))
    return hashes


def _setting(name: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self.inner_optimizer, name)

    def set_(self: Any, value: Any) -> None:
        if "inner_optimizer" in self.__dict__:  # the base class has set its defaults before
            setattr(self.inner_optimizer, name, value)

    return property(get, set_)


class _AllKept:
    """The variables with frozen rows. It is a plain class, so that Keras tracks nothing in it.

    Attributes:
        variables: the known variables.
        slots: for each variable, the optimizer's slots, row by row.
        averages: for each variable, the optimizer's averages of the variable itself.
        awaited: frozen rows of variables that may not exist yet, by layer or by place among the trained variables.
    """

    def __init__(self, frozen: Iterable[tuple[Any, Any]]) -> None:
        pairs = list(frozen)
        self.awaited = [pair for pair in pairs if isinstance(pair[0], int | keras.Layer)]
        self.variables = [Kept(*pair) for pair in pairs if not isinstance(pair[0], int | keras.Layer)]
        self.slots: list[list[Any]] = []
        self.averages: list[list[Any]] = []


@keras.saving.register_keras_serializable(package="embexp")
class FrozenRowsOptimizer(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras is untyped
    """What `embexp.freeze` makes of an optimizer of Keras 3; settings and variables are the optimizer's own.

    A model is saved with its frozen rows, and they are frozen again when it is loaded.
    """

    def __init__(self, inner_optimizer: Any, frozen: Iterable[tuple[Any, Any]], name: str | None = None) -> None:
        """Takes over the optimizer, built or not.

        Args:
            frozen: variables, layers of one variable, or places among the trained variables, each with its frozen rows.

        Raises:
            ValueError: it is built, for other variables.
        """
        super().__init__(learning_rate=0.0, name=name or inner_optimizer.name)
        self._all_kept = _AllKept(frozen)
        self.inner_optimizer = inner_optimizer
        self._iterations = inner_optimizer._iterations
        if inner_optimizer.built:
            self._find_slots(inner_optimizer._trainable_variables)
            self.built = True

    def report(self) -> Report:
        """Which rows never moved since the first step, and why: by the path of the variable."""
        return reports(self._all_kept.variables, None)

    def build(self, variables: Any) -> None:
        """Builds the optimizer, and finds the slots of the frozen rows.

        Raises:
            ValueError: a variable with frozen rows is not among these, or the optimizer keeps something for it that
                can't be found.
        """
        if self.built:
            return
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(variables)
        self._find_slots(variables)
        self.built = True

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """The optimizer's, after which the frozen rows are as before."""
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError("embexp.freeze works on one device: train without a distribution strategy")
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            self.build(trainable_variables)
        variables = trainable_variables or self.inner_optimizer._trainable_variables
        for place, (gradient, variable) in enumerate(zip(grads, variables, strict=False)):
            for kept in self._all_kept.variables:
                if gradient is not None and kept.is_in(variable):
                    kept.noted(gradient)
                    grads[place] = kept.without_frozen(gradient)
        with self._kept_still():
            self.inner_optimizer.apply(grads, trainable_variables)

    def finalize_variable_values(self, var_list: Any) -> None:
        """The optimizer's, after which the frozen rows are as before."""
        with self._kept_still():
            self.inner_optimizer.finalize_variable_values(var_list)

    @contextmanager
    def _kept_still(self) -> Iterator[None]:
        every = self._all_kept
        states = [[kept.variable, *slots] for kept, slots in zip(every.variables, every.slots, strict=True)]
        before = [kept.rows_of(some) for kept, some in zip(every.variables, states, strict=True)]
        yield
        for kept, some, rows, averages in zip(every.variables, states, before, every.averages, strict=True):
            kept.put_back(some, rows)
            # A row that stands still is its own average, to the bit. A computed average would not be.
            kept.put_back(averages, [rows[0]] * len(averages))

    def _find_slots(self, variables: Sequence[Any]) -> None:
        every = self._all_kept
        every.variables += [Kept(_named(key, variables), rows) for key, rows in every.awaited]
        every.awaited = []
        for kept in every.variables:
            if not any(kept.is_in(variable) for variable in variables):
                raise ValueError(
                    f"embexp.freeze: {kept.name} is not among the variables that the optimizer trains, so "
                    f"nothing moves it; remove it, or set trainable=True on its layer"
                )
            slots, averages = _state_of(kept, self.inner_optimizer)
            every.slots.append(slots)
            every.averages.append(averages)

    @property
    def variables(self) -> list[Any]:
        """The optimizer's."""
        variables: list[Any] = self.inner_optimizer.variables
        return variables

    @property
    def learning_rate(self) -> Any:
        """The optimizer's."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self) -> Any:
        """The optimizer's."""
        return self.inner_optimizer.iterations

    def scale_loss(self, loss: Any) -> Any:
        """The optimizer's."""
        return self.inner_optimizer.scale_loss(loss)

    def exclude_from_weight_decay(self, *args: Any, **kwargs: Any) -> None:
        """The optimizer's."""
        self.inner_optimizer.exclude_from_weight_decay(*args, **kwargs)

    def set_weights(self, weights: Any) -> None:
        """The optimizer's."""
        self.inner_optimizer.set_weights(weights)

    def save_own_variables(self, store: Any) -> None:
        """Saves nothing: the optimizer saves its own."""

    def load_own_variables(self, store: Any) -> None:
        """Loads nothing: the optimizer loads its own."""

    def get_config(self) -> dict[str, Any]:
        """The optimizer's, and the frozen rows by the places of their variables: a loaded model may have other paths.

        Raises:
            ValueError: it is not built.
        """
        if not self.built:
            raise ValueError(
                "embexp.freeze: the optimizer is not built, so its frozen rows can't be saved; call"
                " optimizer.build(model.trainable_variables) first"
            )
        own = self.inner_optimizer._trainable_variables
        return {
            "name": self.name,
            "inner_optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            "frozen": [
                {"place": place, **_as_json(kept.frozen)}
                for place, variable in enumerate(own)
                for kept in self._all_kept.variables
                if kept.is_in(variable)
            ],
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> FrozenRowsOptimizer:
        """An optimizer that waits for its variables."""
        inner = keras.saving.deserialize_keras_object(config["inner_optimizer"], custom_objects=custom_objects)
        return cls(inner, [(each["place"], _from_json(each)) for each in config["frozen"]], config["name"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "inner_optimizer" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)


for _name in _SETTINGS:
    setattr(FrozenRowsOptimizer, _name, _setting(_name))


def _named(key: Any, variables: Sequence[Any]) -> Any:
    """The variable of a layer, or the one at a place among those that an optimizer trains."""
    if isinstance(key, int):
        if key >= len(variables):
            raise ValueError(
                f"embexp.freeze: the saved optimizer freezes rows of trained variable {key}, but the model has"
                f" {len(variables)}; load it with compile=False, and compile it with embexp.freeze"
            )
        return variables[key]
    if len(key.weights) != 1:
        raise ValueError(
            f"embexp.freeze: layer {key.name!r} has {len(key.weights)} variables, expected one; pass the variable, as a"
            " pair: embexp.freeze(optimizer, [(layer.embeddings, rows)])"
        )
    return key.weights[0]


def _state_of(kept: Kept, optimizer: Any) -> tuple[list[Any], list[Any]]:
    """The slots that a Keras optimizer keeps for a variable, row by row, and its averages of the variable itself.

    An optimizer has a list for each slot, with an entry for each variable that it was built with.

    Raises:
        ValueError: the optimizer keeps something of the variable's length elsewhere.
    """
    slots, averages, known, rows = [], [], set(), kept.frozen.rows
    for each in _with_inner(optimizer):
        own = each._trainable_variables
        place = next((at for at, variable in enumerate(own) if kept.is_in(variable)), None)
        for entries in vars(each).values():
            if not isinstance(entries, list | tuple) or len(entries) != len(own) or entries is own:
                continue
            states = [entry for entry in entries if isinstance(entry, keras.Variable)]
            known |= {id(entry) for entry in states if not any(entry is variable for variable in own)}
            entry = None if place is None else entries[place]
            if not isinstance(entry, keras.Variable) or kept.is_in(entry):
                continue
            if each.use_ema and entry is each._model_variables_moving_average[place]:
                averages.append(entry)
            elif entry.shape == (rows,) and kept.variable.shape[1:] == [rows]:
                raise ValueError(
                    f"embexp.freeze: {kept.name} has as many rows as columns, so rows and columns of"
                    f" {entry.path!r} can't be told apart; choose a different optimizer than {type(each).__name__}"
                )
            elif len(entry.shape) and entry.shape[0] == rows:
                slots.append(entry)
    for variable in optimizer.variables:
        if id(variable) not in known and len(variable.shape) and variable.shape[0] == rows:
            raise ValueError(
                f"embexp.freeze: {type(optimizer).__name__} has a variable {variable.path!r} with {rows:,} rows, which"
                f" may belong to {kept.name}, but is not in a list with one entry per trained variable; keep it "
                f"in such a list, as Keras' own optimizers do"
            )
    return slots, averages


def _with_inner(optimizer: Any) -> Iterator[Any]:
    """An optimizer, and the optimizers that it wraps."""
    yield optimizer
    for value in list(vars(optimizer).values()):
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, keras.optimizers.Optimizer):
                yield from _with_inner(each)


def _as_json(frozen: FrozenRows) -> dict[str, Any]:
    packed = zlib.compress(np.packbits(frozen.mask).tobytes())
    return {"rows": frozen.rows, "mask": base64.b64encode(packed).decode()}


def _from_json(saved: Mapping[str, Any]) -> FrozenRows:
    bits = np.frombuffer(zlib.decompress(base64.b64decode(saved["mask"])), np.uint8)
    return FrozenRows(np.unpackbits(bits, count=saved["rows"]).astype(np.bool_), int(saved["rows"]))


class FrozenRowsOptimizerV1(tf.compat.v1.train.Optimizer):  # type: ignore[misc]  # TensorFlow is untyped
    """What `embexp.freeze` makes of an optimizer of TensorFlow 1; its slots are the optimizer's own."""

    def __init__(self, optimizer: Any, kept: Sequence[Kept]) -> None:
        """Takes over the optimizer's slots.

        Raises:
            ValueError: it wraps another optimizer.
        """
        for inner in vars(optimizer).values():
            if isinstance(inner, _train.Optimizer):
                raise ValueError(
                    f"embexp.freeze can't see the slots inside a {type(optimizer).__name__}: freeze the optimizer that"
                    f" it wraps, and wrap the result: {type(optimizer).__name__}(embexp.freeze(…), …)"
                )
        super().__init__(optimizer._use_locking, optimizer.get_name())
        self._optimizer, self._kept = optimizer, kept
        # So that whoever looks for slots, such as checkpoints, finds them here, too.
        self._slots, self._non_slot_dict = optimizer._slots, optimizer._non_slot_dict
        self._deferred_slot_restorations = optimizer._deferred_slot_restorations

    def report(self, values: Any = None) -> Report:
        """Which rows never moved since the first step, and why: by the name of the variable.

        Args:
            values: of a graph: the session, or a function from the name of a variable to its values, such as
                `estimator.get_variable_value`. None: the variables are eager.

        Raises:
            ValueError: no step was done, or a session is needed.
        """
        return reports(self._kept, values)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The optimizer's, without the frozen rows, which so don't count for a norm."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        return [(self._without_frozen(gradient, variable), variable) for gradient, variable in pairs]

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None, **kwargs: Any
    ) -> Any:
        """The optimizer's, after which the frozen rows are as before."""
        pairs = [(self._without_frozen(gradient, variable), variable) for gradient, variable in grads_and_vars]
        trained = [variable for gradient, variable in pairs if gradient is not None]
        if trained:
            with tf.init_scope():
                self._optimizer._create_slots(trained)
        first, states = [], []
        for gradient, variable in pairs:
            kept = self._of(variable)
            if kept is None or gradient is None:
                continue
            first += kept.noted(gradient)
            if not self._is_row_wise(gradient):
                slots = [self._optimizer.get_slot(variable, slot) for slot in self._optimizer.get_slot_names()]
                rows = kept.frozen.rows
                some = [
                    variable,
                    *(slot for slot in slots if slot is not None and slot.shape.rank and slot.shape[0] == rows),
                ]
                states.append((kept, some, kept.rows_of(some)))
        with tf.control_dependencies([*first, *(rows for _, _, before in states for rows in before)]):
            done = self._optimizer.apply_gradients(pairs, global_step, name, **kwargs)
        if not states:
            return done
        with tf.control_dependencies([] if done is None else [done]):
            restored = [operation for kept, some, before in states for operation in kept.put_back(some, before)]
        if tf.executing_eagerly():
            return done
        complete = tf.group(*([] if done is None else [done]), *restored)
        operations = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
        operations[:] = [complete if operation is done else operation for operation in operations]
        return complete

    def get_slot(self, var: Any, name: str) -> Any:
        """The optimizer's."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """The optimizer's."""
        names: list[str] = self._optimizer.get_slot_names()
        return names

    def variables(self) -> list[Any]:
        """The optimizer's."""
        variables: list[Any] = self._optimizer.variables()
        return variables

    def _of(self, variable: Any) -> Kept | None:
        return next((kept for kept in self._kept if kept.is_in(variable)), None)

    def _is_row_wise(self, gradient: Any) -> bool:
        return type(self._optimizer) in ROW_WISE and isinstance(gradient, tf.IndexedSlices)

    def _without_frozen(self, gradient: Any, variable: Any) -> Any:
        kept = self._of(variable)
        if kept is None or gradient is None:
            return gradient
        return kept.without_frozen(gradient, fewer=self._is_row_wise(gradient))


def freeze(optimizer: Any, frozen: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Any:
    """Wraps an optimizer so that some rows stay frozen. Use the result in place of the given optimizer.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`, or a `keras.optimizers.Optimizer` of Keras 3; a Keras optimizer may
            already be built, with slots from earlier training.
        frozen: variables [rows, …], each with its frozen rows: a range, a slice, row numbers, or a mask of all rows.
            Eager variables can't be keys of a dictionary, so pass them as pairs: `[(layer.embeddings, range(500))]`.
            With Keras, you can also pass a layer with a single variable, built or not, or the path of a variable.

    Returns:
        An optimizer of the same library. Use it as before, with `minimize`, `apply_gradients`, `compile` and `fit`.
        Gradients of frozen rows are dropped before anything is computed from them, such as a clipping norm. Its
        `report` says which rows never moved and why.

    Raises:
        ValueError: the optimizer is from another library or wraps one that should be frozen instead, several replicas
            share the variables, a row is not in its variable, or nothing is frozen.
    """
    if (replicas := tf.distribute.get_strategy().num_replicas_in_sync) > 1:
        raise ValueError(
            f"embexp.freeze works on one device, but {type(tf.distribute.get_strategy()).__name__} has {replicas}"
            " replicas: train without the strategy, or use freeze= of an embexp run, which works with all strategies"
        )
    pairs = list(frozen.items() if isinstance(frozen, Mapping) else frozen)
    if not pairs:
        raise ValueError("embexp.freeze: no variable is given; pass {variable: rows}, such as {table: range(500)}")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return FrozenRowsOptimizerV1(optimizer, [Kept(variable, rows) for variable, rows in pairs])
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return FrozenRowsOptimizer(optimizer, pairs)
    raise ValueError(
        f"embexp.freeze: expected an optimizer of tf.compat.v1.train or of Keras 3, found {type(optimizer).__module__}."
        f"{type(optimizer).__name__}; with another library, use embexp.rows.gradient(frozen=…) and embexp.rows.update"
    )
