"""`embexp.freeze`: an optimizer of TensorFlow 1 or Keras 3 that leaves some rows of variables as they are.

The rows, and their rows in the optimizer's slots, keep every bit, whatever the optimizer does: momentum, Adam's state,
weight decay, averages, clipping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from embexp.freezing.optimizers.keeping import Kept, Report

__all__ = ["Report", "freeze"]


def freeze(optimizer: Any, frozen: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Any:
    """An optimizer in which some rows are frozen, to be used in the place of the given one.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`, or a `keras.optimizers.Optimizer` of Keras 3; a Keras one may be
            built already, with slots from an earlier training.
        frozen: variables [rows, …], each with its frozen rows: a range, a slice, row numbers, or a mask of all rows.
            Eager variables can't be keys of a dictionary, so pass them as pairs: `[(layer.embeddings, range(500))]`.
            With Keras, a layer of one variable, built or not, or the path of a variable may stand for the variable.

    Returns:
        An optimizer of the same library, whose `minimize` and `apply_gradients`, and `compile` and `fit` with it, are
        used as before. Gradients of frozen rows are left out before anything is computed from them, such as a norm to
        clip by. Its `report` says which rows never moved, and why.

    Raises:
        ValueError: the optimizer is of another library or wraps one that should be frozen instead, several replicas
            share the variables, a row is not in its variable, or nothing is frozen.
    """
    if (replicas := tf.distribute.get_strategy().num_replicas_in_sync) > 1:
        raise ValueError(
            f"embexp.freeze works on one device, but {type(tf.distribute.get_strategy()).__name__} has {replicas}"
            " replicas: train without the strategy, or use freeze= of an embexp run, which works with all strategies"
        )
    pairs = list(frozen.items() if isinstance(frozen, Mapping) else frozen)
    if not pairs:
        raise ValueError("embexp.freeze: no variable is named; pass {variable: rows}, such as {table: range(500)}")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from embexp.freezing.optimizers.tensorflow_1 import FrozenRowsOptimizer

        return FrozenRowsOptimizer(optimizer, [Kept(variable, rows) for variable, rows in pairs])
    if isinstance(optimizer, keras.optimizers.Optimizer):
        from embexp.freezing.optimizers.keras_3 import FrozenRowsOptimizer as OfKeras

        return OfKeras(optimizer, pairs)
    raise ValueError(
        f"embexp.freeze: expected an optimizer of tf.compat.v1.train or of Keras 3, found {type(optimizer).__module__}."
        f"{type(optimizer).__name__}; with another library, use embexp.rows.gradient(frozen=…) and embexp.rows.update"
    )
