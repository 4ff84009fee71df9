"""An optimizer of Keras 3 with frozen rows, for `compile`, `fit` and own loops, compiled by XLA or not.

Keras' optimizers compute whole variables at each step. So frozen rows, of the variable and of all that the optimizer
keeps for it, are read before the update and put back after it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.freezing.optimizers.keeping import Kept, Report, reports
from embexp.tables.frozen_rows import FrozenRows

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
"""Settings of every Keras optimizer, which callbacks and other wrappers read and set."""


def _setting(name: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self.inner_optimizer, name)

    def set_(self: Any, value: Any) -> None:
        if "inner_optimizer" in self.__dict__:  # the base class sets its defaults before
            setattr(self.inner_optimizer, name, value)

    return property(get, set_)


class _AllKept:
    """What is kept; plain, so that Keras tracks nothing in it.

    Attributes:
        variables: those that are known.
        slots: of each, what the optimizer keeps for it, row by row.
        averages: of each, the optimizer's averages of the variable itself.
        awaited: layers, and places among the trained variables, whose variables may not exist yet, with frozen rows.
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
            # What stands still is its own average, to the bit; computed, it would not be.
            kept.put_back(averages, [rows[0]] * len(averages))

    def _find_slots(self, variables: Sequence[Any]) -> None:
        every = self._all_kept
        every.variables += [Kept(_named(key, variables), rows) for key, rows in every.awaited]
        every.awaited = []
        for kept in every.variables:
            if not any(kept.is_in(variable) for variable in variables):
                raise ValueError(
                    f"embexp.freeze: {kept.name} is not among the variables that the optimizer trains, so nothing moves"
                    " it; leave it out, or set trainable=True of its layer"
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
    """The variable of a layer, or at a place among those that an optimizer trains."""
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
    """What a Keras optimizer keeps for a variable, row by row; and its averages of the variable itself.

    An optimizer keeps a list for each slot, with an entry for each variable that it was built with.

    Raises:
        ValueError: something of the variable's length is elsewhere.
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
                    f"embexp.freeze: {kept.name} has as many rows as columns, so that rows and columns of"
                    f" {entry.path!r} can't be told apart; choose another optimizer than {type(each).__name__}"
                )
            elif len(entry.shape) and entry.shape[0] == rows:
                slots.append(entry)
    for variable in optimizer.variables:
        if id(variable) not in known and len(variable.shape) and variable.shape[0] == rows:
            raise ValueError(
                f"embexp.freeze: {type(optimizer).__name__} has a variable {variable.path!r} with {rows:,} rows, which"
                f" may belong to {kept.name}, but is in no list of one entry for each trained variable; keep it in such"
                " a list, as Keras' own optimizers do"
            )
    return slots, averages


def _with_inner(optimizer: Any) -> Iterator[Any]:
    """An optimizer, and those that it wraps."""
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
