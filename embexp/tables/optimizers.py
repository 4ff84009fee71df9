"""Update rules of embedding tables, as pure functions of gathered rows, and the learning rates of tables and rows.

The rules are those of a TPU, applied once per row and step: `g` is the sum of the row's gradients over the whole
batch. The order is: clip g (`clipvalue`, then `clipnorm`), decay the row, take the step, clip the row. Weight decay is
decoupled, w -= factor * w (times the learning rate if set so), before the step, and only on touched rows: TensorFlow's
documents contradict each other here; this follows its protocol buffer.

    SGD               w -= lr g
    Adagrad           a += g^2;  w -= lr g / sqrt(a)                                          (Duchi et al. 2011)
    RowwiseAdagrad    a += mean of g^2 over the row;  w -= lr g / (sqrt(a) + epsilon)      (Mudigere et al. 2022, 4.1)
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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import tensorflow as tf

from embexp.specs.base import implementation
from embexp.specs.optimizers import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    ConstantSchedule,
    CosineSchedule,
    CustomTableOptimizer,
    ExponentialSchedule,
    PiecewiseSchedule,
    RowwiseAdagrad,
    Schedule,
    TableOptimizer,
    slots_of,
)
from embexp.system import arrays
from embexp.system.user_code import NamedFunction, kind_of
from embexp.tables.inputs import without_autograph
from embexp.tables.variables import variable_over

__all__ = [
    "DecayShares",
    "Moving",
    "RowGroups",
    "gradient_bounds",
    "is_constant",
    "schedule_factor",
    "slots_of",
    "updated",
]


def updated(
    optimizer: TableOptimizer,
    rows: Any,
    slots: Mapping[str, Any],
    gradient: Any,
    learning_rate: Any,
    shares: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """One application of an optimizer's rule.

    Args:
        optimizer: the rule and its constants; its `learning_rate` and `schedule` are ignored.
        rows: float32 [n, dim], the rows before the step.
        slots: for each name in `slots_of(optimizer)` float32 [n, dim], or [n, 1] of its `row_slots`.
        gradient: float32 [n, dim], summed over all occurrences of each row; None for zero.
        learning_rate: float32 scalar, the learning rate at this step.
        shares: float32 [n, 1], factors of the weight decay, see `DecayShares`; None: all 1.

    Returns:
        The rows and slots after the step.
    """
    gradient = _zeros(rows) if gradient is None else gradient
    gradient = _clipped(gradient, *gradient_bounds(optimizer))
    if optimizer.clipnorm is not None:
        longest = _opaque(tf.constant(optimizer.clipnorm, tf.float32))  # 1 / x would be another function
        norm = _opaque(tf.sqrt(_row_sums(gradient * gradient)))
        gradient = _opaque(gradient * (longest / tf.maximum(norm, longest)))
    if optimizer.weight_decay_factor:
        decay = optimizer.weight_decay_factor
        if optimizer.multiply_weight_decay_factor_by_learning_rate:
            decay = decay * learning_rate
        if shares is not None:  # no row decays by more than all that it is
            decay = _opaque(tf.minimum(_opaque(decay * tf.ones_like(shares)) * shares, 1.0))
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


def rowwise_adagrad(
    optimizer: RowwiseAdagrad, w: Any, slots: Mapping[str, Any], g: Any, lr: Any
) -> tuple[Any, dict[str, Any]]:
    """The rule `RowwiseAdagrad`."""
    a = slots["row_accumulators"] + _row_sums(g * g) * np.float32(1 / g.shape[1])
    rate = _opaque(tf.convert_to_tensor(lr)) / (_opaque(tf.sqrt(a)) + optimizer.epsilon)
    return w - rate * g, {"row_accumulators": a}


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
        delta = _opaque(tf.pow(before, p) * tf.math.expm1(p * tf.math.log1p(squared / before)))
    if optimizer.multiply_linear_by_learning_rate:
        linear = slots["linears"] + lr * g - delta * w
        bound, denominator = lr * l1, power + (beta + 2.0 * lr * l2)
    elif not tf.executing_eagerly() and (rate := tf.get_static_value(lr)) is not None:
        # What TensorFlow's graph optimizer makes of a division by a constant, with the products in one order.
        inverse = tf.constant(np.float32(1.0) / rate)
        linear = slots["linears"] + g - _opaque(inverse * delta) * w
        bound, denominator = tf.constant(l1, tf.float32), (power + beta) * inverse + 2.0 * l2
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
    return _opaque(tf.zeros_like(rows))


def _opaque(value: Any) -> Any:
    """The same, which TensorFlow's graph optimizer does not look into."""
    return tf.raw_ops.PlaceholderWithDefault(input=value, shape=value.shape)


def _row_sums(x: Any) -> Any:
    """Sums of rows, [n, dim] -> [n, 1]: the second half is added to the first, until one number is left.

    The order is fixed, unlike that of `tf.reduce_sum`, so that fused operations have the same bits.
    """
    width = x.shape[1]
    while width > 1:
        half = 1 << ((width - 1).bit_length() - 1)
        rest = tf.pad(x[:, half:], [[0, 0], [0, 2 * half - width]])
        x, width = x[:, :half] + rest, half
    return x


def gradient_bounds(optimizer: TableOptimizer) -> tuple[float | None, float | None]:
    """Least and greatest element of a row's summed gradient; None: no bound."""
    bounds = optimizer.clipvalue
    if bounds is None or isinstance(bounds, tuple):
        return bounds or (None, None)
    return -bounds, bounds


def _clipped(x: Any, low: float | None, high: float | None) -> Any:
    x = x if low is None else tf.maximum(x, low)
    return x if high is None else tf.minimum(x, high)


@without_autograph
@dataclass(frozen=True)
class StepsInAll:
    """The number of a step, counted from the beginning of an earlier run that this one goes on from.

    TensorFlow takes it wherever it takes the variable.

    Attributes:
        counter: int64 variable, the steps of this run.
        before: the steps of earlier ones.
    """

    counter: Any
    before: int

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        """An int64 scalar, or of `dtype`."""
        found = tf.convert_to_tensor(self.counter) + self.before
        return found if dtype is None else tf.cast(found, dtype)


def schedule_factor(schedule: Schedule, step: Any, *, total_steps: int) -> Any:
    """Factor on the learning rate at a step; the formulas are those of `embexp.specs.optimizers`.

    Args:
        schedule: the kind of schedule and its settings.
        step: number of the step from 0: an int64 scalar, tensor or variable, or several of them. A variable is read
            each time the traced step runs, so tracing does not fix the factor.
        total_steps: length of the run in steps, where a cosine without `decay_steps` ends.

    Returns:
        A float32 tensor, of the shape of `step`. It is computed in float64, which holds every step number exactly.
    """
    since_start = tf.cast(tf.convert_to_tensor(step), tf.float64)
    warmup = schedule.warmup_steps
    shaped = _shape(schedule, tf.maximum(since_start - warmup, 0.0), max(total_steps - warmup, 1))
    if warmup:
        shaped = tf.where(since_start < warmup, (since_start + 1.0) / warmup, shaped)
    return tf.cast(shaped, tf.float32)


def is_constant(schedule: Schedule) -> bool:
    """Whether the factor is 1 at every step."""
    return isinstance(schedule, ConstantSchedule) and not schedule.warmup_steps


def _shape(schedule: Schedule, t: Any, steps_left: int) -> Any:
    match schedule:
        case ConstantSchedule():
            return tf.ones_like(t)
        case ExponentialSchedule():
            exponent = t / schedule.decay_steps
            return tf.pow(
                tf.constant(schedule.decay_rate, tf.float64), tf.floor(exponent) if schedule.staircase else exponent
            )
        case CosineSchedule():
            progress = tf.minimum(t / (schedule.decay_steps or steps_left), 1.0)
            return schedule.alpha + (1.0 - schedule.alpha) * 0.5 * (1.0 + tf.cos(math.pi * progress))
        case PiecewiseSchedule():
            passed = tf.reduce_sum(tf.cast(t[..., None] >= tf.constant(schedule.boundaries, tf.float64), tf.int32), -1)
            return tf.gather(tf.constant(schedule.values, tf.float64), passed)
        case _:
            assert_never(schedule)


@dataclass(frozen=True, eq=False)
class Moving:
    """Which rows of a batch move at a step.

    Attributes:
        places: int32 [k], rising, their positions in the batch.
        multipliers: float32 [k, 1], of their learning rates; None: all 1.
    """

    places: Any
    multipliers: Any


class DecayShares:
    """What part of the weight decay each row of a table gets, where all rows decay alike in an epoch.

    Of n occurrences in an epoch of S steps, a row is expected in S (1 - exp(-n / S)) steps, and gets the inverse of
    that; one that is expected in less than one step gets 1.

    Attributes:
        variable: float32 [rows].
    """

    def __init__(self, name: str, occurrences: np.ndarray, steps_per_epoch: float) -> None:
        """Creates a variable in the current graph; see `variable_over` for TensorFlow 1.

        Args:
            occurrences: [rows], of each row in an epoch.
            steps_per_epoch: may be a fraction.
        """
        steps = max(1.0, steps_per_epoch)
        self._values = arrays.empty(occurrences.shape, np.float32)
        self._values[:] = 1 / np.maximum(1.0, steps * -np.expm1(-occurrences / steps))
        self.variable = variable_over(f"{name}/decay_shares", self._values)

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """Variables and values to feed each new session of a graph of TensorFlow 1; see `MappedTable.feeds`."""
        return [(self.variable, self._values)]

    def of(self, ids: Any) -> Any:
        """Those of rows [n], float32 [n, 1]."""
        return tf.gather(self.variable.read_value(), ids)[:, None]


class RowGroups:
    """The group of each row of a table, and the learning-rate multipliers of the groups.

    Attributes:
        variable: the groups, uint8 [rows].
    """

    def __init__(self, name: str, groups: np.ndarray, multipliers: np.ndarray, starts: Sequence[int]) -> None:
        """Creates a variable of one byte per row in the current graph; see `variable_over` for TensorFlow 1.

        Args:
            groups: uint8 [rows].
            multipliers: float32 [phases, groups]; 0: the rows do not move.
            starts: the first step of each phase, rising from 0.

        Raises:
            ValueError: the arguments contradict each other.
        """
        if len(starts) != len(multipliers) or list(starts) != sorted(set(starts)) or starts[0] != 0:
            raise ValueError(
                f"table {name!r}: phases begin at {list(starts)}, expected {len(multipliers)}, rising from 0"
            )
        if groups.dtype != np.uint8 or (multipliers < 0).any() or not np.isfinite(multipliers).all():
            raise ValueError(f"table {name!r}: groups are bytes, and multipliers are finite numbers of at least 0")
        if len(groups) and int(groups.max()) >= multipliers.shape[1]:
            raise ValueError(
                f"table {name!r}: there is a group {groups.max()}, but only {multipliers.shape[1]} groups have "
                f"multipliers"
            )
        self._values = arrays.empty(groups.shape, np.uint8)
        self._values[:] = groups
        self._multipliers, self._starts = multipliers.astype(np.float32), tuple(starts)
        self.variable = variable_over(f"{name}/groups", self._values)

    def frozen_rows(self) -> np.ndarray:
        """Bool [rows]: which rows never move."""
        frozen: np.ndarray = (self._multipliers == 0).all(0)[self._values]
        return frozen

    @property
    def scaled(self) -> bool:
        """Whether a moving row can have another learning rate than its table."""
        return bool(((self._multipliers != 0) & (self._multipliers != 1)).any())

    def feeds(self) -> list[tuple[Any, np.ndarray]]:
        """Variables and values to feed each new session of a graph of TensorFlow 1; see `MappedTable.feeds`."""
        return [(self.variable, self._values)]

    def multipliers_at(self, step: Any) -> Any:
        """The multiplier of each group at a step, float32 [groups]; see `moving`."""
        if len(self._starts) == 1:
            return tf.constant(self._multipliers[0])
        begun = tf.cast(tf.convert_to_tensor(step) >= tf.constant(self._starts, tf.int64), tf.int32)
        return tf.gather(tf.constant(self._multipliers), tf.reduce_sum(begun) - 1)

    def moving(self, ids: Any, step: Any) -> Moving:
        """Which rows of a batch move at a step.

        Args:
            ids: int32 or int64 [n], the batch's rows.
            step: number of the step from 0, int64 scalar, tensor or variable.
        """
        own = tf.gather(self.multipliers_at(step), tf.cast(tf.gather(self.variable.read_value(), ids), tf.int32))
        places = tf.cast(tf.where(own > 0)[:, 0], tf.int32)
        return Moving(places, tf.gather(own, places)[:, None] if self.scaled else None)
