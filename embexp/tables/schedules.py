"""Learning-rate schedules as tensors: a factor that follows a step counter while a traced step runs."""

from __future__ import annotations

import math
from typing import Any, assert_never

import tensorflow as tf

from embexp.specs.optimizers import ConstantSchedule, CosineSchedule, ExponentialSchedule, PiecewiseSchedule, Schedule
from embexp.tables.autograph import without_autograph


@without_autograph
def factor(schedule: Schedule, step: Any, *, total_steps: int) -> Any:
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
