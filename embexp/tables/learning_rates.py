"""Learning rates: schedules as tensors, and multipliers of groups of rows, which at 0 don't move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import tensorflow as tf

from embexp.specs.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    PiecewiseSchedule,
    Schedule,
)
from embexp.system import arrays
from embexp.tables.bounds import without_autograph
from embexp.tables.variables import variable_over


@without_autograph
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


class RowGroups:
    """The group of each row of a table, and the learning-rate multipliers of the groups."""

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
            raise ValueError(f"table {name!r}: groups are bytes, and multipliers finite numbers of 0 or more")
        if len(groups) and int(groups.max()) >= multipliers.shape[1]:
            raise ValueError(
                f"table {name!r}: there is a group {groups.max()}, but {multipliers.shape[1]} groups have multipliers"
            )
        self._values = arrays.empty(groups.shape, np.uint8)
        self._values[:] = groups
        self._multipliers, self._starts = multipliers.astype(np.float32), tuple(starts)
        self._variable = variable_over(f"{name}/groups", self._values)

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
        return [(self._variable, self._values)]

    def moving(self, ids: Any, step: Any) -> Moving:
        """Which rows of a batch move at a step.

        Args:
            ids: int32 or int64 [n], the batch's rows.
            step: number of the step from 0, int64 scalar, tensor or variable.
        """
        now = tf.constant(self._multipliers[0])
        if len(self._starts) > 1:
            begun = tf.cast(tf.convert_to_tensor(step) >= tf.constant(self._starts, tf.int64), tf.int32)
            now = tf.gather(tf.constant(self._multipliers), tf.reduce_sum(begun) - 1)
        own = tf.gather(now, tf.cast(tf.gather(self._variable.read_value(), ids), tf.int32))
        places = tf.cast(tf.where(own > 0)[:, 0], tf.int32)
        return Moving(places, tf.gather(own, places)[:, None] if self.scaled else None)
