"""Learning-rate schedules against NumPy formulas and against Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp.specs.optimizers import ConstantSchedule, CosineSchedule, ExponentialSchedule, PiecewiseSchedule
from embexp.tables import optimizers

TOTAL = 50
CASES = {
    "constant": (ConstantSchedule(), lambda t: 1.0),
    "warm-up": (ConstantSchedule(warmup_steps=4), lambda t: min((t + 1) / 4, 1)),
    "exponential": (ExponentialSchedule(decay_steps=10, decay_rate=0.5), lambda t: 0.5 ** (t / 10)),
    "staircase": (
        ExponentialSchedule(decay_steps=10, decay_rate=0.5, staircase=True),
        lambda t: 0.5 ** (t // 10),
    ),
    "warm exponential": (
        ExponentialSchedule(decay_steps=10, decay_rate=0.5, warmup_steps=5),
        lambda t: (t + 1) / 5 if t < 5 else 0.5 ** ((t - 5) / 10),
    ),
    "cosine": (CosineSchedule(decay_steps=20), lambda t: (1 + np.cos(np.pi * min(t / 20, 1))) / 2),
    "cosine with a floor": (
        CosineSchedule(decay_steps=20, alpha=0.1),
        lambda t: 0.1 + 0.9 * (1 + np.cos(np.pi * min(t / 20, 1))) / 2,
    ),
    "cosine to the end": (CosineSchedule(), lambda t: (1 + np.cos(np.pi * min(t / TOTAL, 1))) / 2),
    "warm cosine to the end": (
        CosineSchedule(warmup_steps=10),
        lambda t: (t + 1) / 10 if t < 10 else (1 + np.cos(np.pi * min((t - 10) / (TOTAL - 10), 1))) / 2,
    ),
    "piecewise": (
        PiecewiseSchedule(boundaries=(5, 12), values=(1.0, 0.25, 0.0)),
        lambda t: 1.0 if t < 5 else 0.25 if t < 12 else 0.0,
    ),
    "all warm-up": (CosineSchedule(warmup_steps=200), lambda t: (t + 1) / 200),
}


@pytest.mark.parametrize("name", CASES)
def test_factors_are_those_of_the_formula(name: str) -> None:
    schedule, formula = CASES[name]
    step = tf.Variable(0, dtype=tf.int64)
    factor = tf.function(lambda: optimizers.schedule_factor(schedule, step, total_steps=TOTAL))
    for t in range(TOTAL + 10):
        step.assign(t)
        found = factor()  # traced once, so a factor that froze would show
        assert found.dtype == tf.float32
        assert found.shape == ()
        np.testing.assert_allclose(found, formula(t), rtol=2e-7, atol=1e-16)
    assert factor.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (ExponentialSchedule(decay_steps=7, decay_rate=0.9), keras.optimizers.schedules.ExponentialDecay(1.0, 7, 0.9)),
        (CosineSchedule(decay_steps=30, alpha=0.25), keras.optimizers.schedules.CosineDecay(1.0, 30, 0.25)),
        (
            # A boundary of Keras' belongs to the value before it.
            PiecewiseSchedule(boundaries=(4, 9), values=(1.0, 0.5, 0.25)),
            keras.optimizers.schedules.PiecewiseConstantDecay([3, 8], [1.0, 0.5, 0.25]),
        ),
    ],
)
def test_factors_are_those_of_keras(schedule: Any, theirs: Any) -> None:
    for t in range(40):
        ours = optimizers.schedule_factor(schedule, tf.constant(t, tf.int64), total_steps=TOTAL)
        np.testing.assert_allclose(ours, theirs(t), rtol=1e-5)


def test_steps_beyond_the_precision_of_float32_differ() -> None:
    schedule = PiecewiseSchedule(boundaries=(2**24 + 1,), values=(1.0, 0.5))
    found = [
        float(optimizers.schedule_factor(schedule, tf.constant(2**24 + d, tf.int64), total_steps=1)) for d in (0, 1)
    ]
    assert found == [1.0, 0.5]


def test_only_a_cold_constant_is_constant() -> None:
    assert [name for name, (schedule, _) in CASES.items() if optimizers.is_constant(schedule)] == ["constant"]
