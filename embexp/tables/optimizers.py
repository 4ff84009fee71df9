"""Update rules of embedding tables, as pure functions of gathered rows.

The rules are those of a TPU, applied once per row and step: `g` is the sum of the row's gradients over the whole
batch. The order is: clip g (`clipvalue`), decay the row, take the step, clip the row. Weight decay is decoupled,
w -= factor * w (times the learning rate if set so), before the step, and only on touched rows: TensorFlow's documents
contradict each other here; this follows its protocol buffer.

    SGD               w -= lr g
    Adagrad           a += g^2;  w -= lr g / sqrt(a)                                          (Duchi et al. 2011)
    AdagradMomentum   a = a + g^2, or beta2 a + (1 - beta2) g^2 if beta2 < 1
                      s = (a + epsilon)^(-1/exponent) g;  m = momentum m + s
                      w -= lr (momentum m + s if Nesterov, else m)
    Adam              m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2             (Kingma & Ba 2015,
                      w -= lr m / sqrt(v + epsilon^2), or lr m / (sqrt(v) + epsilon)       no bias correction)
    FTRL              a' = a + g^2;  p = -learning_rate_power;  d = a'^p - a^p           (McMahan et al. 2013)
                      l += g - d w / lr;  w = (clip(l, l1) - l) / ((a'^p + beta) / lr + 2 l2)
                      with the linear term times lr:
                      l += lr g - d w;  w = (clip(l, lr l1) - l) / (a'^p + beta + 2 lr l2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from embexp.specs.base import implementation
from embexp.specs.optimizers import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    CustomTableOptimizer,
    TableOptimizer,
    slots_of,
)
from embexp.system.user_code import NamedFunction, kind_of

__all__ = ["slots_of", "updated"]


def updated(
    optimizer: TableOptimizer, rows: Any, slots: Mapping[str, Any], gradient: Any, learning_rate: Any
) -> tuple[Any, dict[str, Any]]:
    """One application of an optimizer's rule.

    Args:
        optimizer: the rule and its constants; its `learning_rate` and `schedule` are ignored.
        rows: float32 [n, dim], the rows before the step.
        slots: for each name in `slots_of(optimizer)` float32 [n, dim].
        gradient: float32 [n, dim], summed over all occurrences of each row; None for zero.
        learning_rate: float32 scalar, the learning rate at this step.

    Returns:
        The rows and slots after the step.
    """
    gradient = _zeros(rows) if gradient is None else gradient
    gradient = _clipped(gradient, *_bounds(optimizer.clipvalue))
    if optimizer.weight_decay_factor:
        decay = optimizer.weight_decay_factor
        if optimizer.multiply_weight_decay_factor_by_learning_rate:
            decay = decay * learning_rate
        rows = rows - decay * rows
    rows, new_slots = implementation(optimizer)(rows, slots, gradient, learning_rate)
    return _clipped(rows, optimizer.clip_weight_min, optimizer.clip_weight_max), new_slots


def sgd(optimizer: SGD, w: Any, slots: Mapping[str, Any], g: Any, lr: Any) -> tuple[Any, dict[str, Any]]:
    """The rule `SGD` above, as the others are."""
    return w - lr * g, {}


def adagrad(optimizer: Adagrad, w: Any, slots: Mapping[str, Any], g: Any, lr: Any) -> tuple[Any, dict[str, Any]]:
    """The rule `Adagrad`."""
    a = slots["accumulators"] + g * g
    return w - lr * g * tf.math.rsqrt(a), {"accumulators": a}


def adagrad_momentum(
    optimizer: AdagradMomentum, w: Any, slots: Mapping[str, Any], g: Any, lr: Any
) -> tuple[Any, dict[str, Any]]:
    """The rule `AdagradMomentum`."""
    beta2, mu = optimizer.beta2, optimizer.momentum
    a = slots["accumulators"]
    a = a + g * g if beta2 == 1.0 else beta2 * a + (1.0 - beta2) * (g * g)
    base, exponent = a + optimizer.epsilon, optimizer.exponent
    s = (tf.math.rsqrt(base) if exponent == 2.0 else tf.pow(base, -1.0 / exponent)) * g
    m = mu * slots["momenta"] + s if mu else s
    step = mu * m + s if optimizer.use_nesterov else m
    return w - lr * step, {"accumulators": a, "momenta": m}


def adam(optimizer: Adam, w: Any, slots: Mapping[str, Any], g: Any, lr: Any) -> tuple[Any, dict[str, Any]]:
    """The rule `Adam`."""
    beta1, beta2, epsilon = optimizer.beta_1, optimizer.beta_2, optimizer.epsilon
    m = beta1 * slots["momenta"] + (1.0 - beta1) * g
    # Products in the order in which TensorFlow's graph optimizer puts them if all factors are constants or have known
    # shapes, so that the bits are the same everywhere.
    v = beta2 * slots["velocities"] + (1.0 - beta2) * g * g
    if optimizer.sum_inside_sqrt:
        step = lr * m * tf.math.rsqrt(v + epsilon * epsilon)
    else:
        step = lr * (m / (tf.sqrt(v) + epsilon))
    return w - step, {"momenta": m, "velocities": v}


def ftrl(optimizer: FTRL, w: Any, slots: Mapping[str, Any], g: Any, lr: Any) -> tuple[Any, dict[str, Any]]:
    """The rule `FTRL`."""
    l1, l2, beta = (
        optimizer.l1_regularization_strength,
        optimizer.l2_regularization_strength,
        optimizer.beta,
    )
    before, squared = slots["accumulators"], g * g
    a = before + squared
    # a'^p - a^p, written so that it keeps its digits where g is small.
    if optimizer.learning_rate_power == -0.5:
        power = tf.sqrt(a)
        delta = squared / (power + tf.sqrt(before))
    else:
        p = -optimizer.learning_rate_power
        power = tf.pow(a, p)
        delta = tf.pow(before, p) * tf.math.expm1(p * tf.math.log1p(squared / before))
    if optimizer.multiply_linear_by_learning_rate:
        linear = slots["linears"] + lr * g - delta * w
        bound, denominator = lr * l1, power + (beta + 2.0 * lr * l2)
    else:
        linear = slots["linears"] + g - delta * w / lr
        bound, denominator = tf.constant(l1, tf.float32), (power + beta) / lr + 2.0 * l2
    numerator = tf.clip_by_value(linear, -bound, bound) - linear if l1 else -linear
    return numerator / denominator, {"accumulators": a, "linears": linear}


def custom(
    optimizer: CustomTableOptimizer, w: Any, slots: Mapping[str, Any], g: Any, lr: Any
) -> tuple[Any, dict[str, Any]]:
    """The user's own rule."""
    function = NamedFunction("optimizer", optimizer.function, optimizer.args, "rows, slots, gradients, learning_rate")
    found = function(w, dict(slots), g, lr)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], dict):
        raise function.fault(f"it must return rows and a dict of slots, but returned {kind_of(found)}")
    rows, after = found
    if set(after) != set(slots):
        rule = f"it must return the slots {', '.join(slots) or '{}'}, but returned {', '.join(after) or '{}'}"
        raise function.fault(rule, "name them in optimizer.slots, with their initial values")
    for name, value in {"the rows": rows, **after}.items():
        if not tf.is_tensor(value) or value.dtype != tf.float32 or not value.shape.is_compatible_with(w.shape):
            is_one = f"{value.dtype.name} {value.shape}" if tf.is_tensor(value) else kind_of(value)
            raise function.fault(f"it must return float32 {w.shape} for {name}, but returned {is_one}")
    return rows, after


def _zeros(rows: Any) -> Any:
    """Zeros that TensorFlow's graph optimizer does not recognise as zeros.

    It removes known zeros if it can prove that shapes agree, and then reorders products: the bits would depend on how
    the rows were looked up.
    """
    return tf.raw_ops.PlaceholderWithDefault(input=tf.zeros_like(rows), shape=rows.shape)


def _bounds(clipvalue: float | tuple[float, float] | None) -> tuple[float | None, float | None]:
    if clipvalue is None or isinstance(clipvalue, tuple):
        return clipvalue or (None, None)
    return -clipvalue, clipvalue


def _clipped(x: Any, low: float | None, high: float | None) -> Any:
    x = x if low is None else tf.maximum(x, low)
    return x if high is None else tf.minimum(x, high)
