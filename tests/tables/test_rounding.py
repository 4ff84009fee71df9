"""16-bit rows: random bits by TensorFlow's own generator, and roundings by NumPy's neighbours of a number."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.tables.variables import Precision, random_bits, rounded

WORDS = st.integers(0, 2**32 - 1)
TYPES: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROW = 5


def neighbours(values: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The greatest number of 16 bits that is at most a value, and the least that is at least it, in float64."""
    near = values.astype(TYPES[kind])
    below, above = (np.nextafter(near, TYPES[kind](end)).astype(np.float64) for end in (-np.inf, np.inf))
    exact, at = values.astype(np.float64), near.astype(np.float64)
    return np.where(at > exact, below, at), np.where(at < exact, above, at)


def stochastic(values: np.ndarray, kind: str, steps: int) -> np.ndarray:
    """Many roundings of some values, float64 [steps, 1, n]."""

    @tf.function
    def once(step: Any) -> Any:
        precision = Precision(tf.as_dtype(kind), key=(1, 2))
        return rounded(
            tf.constant(values[None]), precision.rows, precision, ids=tf.constant([ROW]), variable=0, step=step
        )

    return np.stack([once(tf.constant(step, tf.int64)).numpy() for step in range(steps)]).astype(np.float64)


@given(key=st.tuples(WORDS, WORDS), row=st.integers(0, 2**40), step=WORDS, variable=st.integers(0, 3))
def test_random_bits_are_those_of_philox(key: tuple[int, int], row: int, step: int, variable: int) -> None:
    found = random_bits(key, tf.constant([row], tf.int64), variable, tf.constant(step, tf.int64), 13).numpy()[0]
    words = []
    for block in range(2):
        low, high = (block | variable << 24) | (row & 0xFFFFFFFF) << 32, (row >> 32) | step << 32
        state = np.array([low, high, key[0] | key[1] << 32], np.uint64).view(np.int64)
        generator = tf.random.Generator.from_state(state, alg="philox")
        words.append(generator.uniform_full_int([4], tf.uint32).numpy())
    expected = np.stack([np.concatenate(words) & 0xFFFF, np.concatenate(words) >> 16], 1).reshape(-1)
    np.testing.assert_array_equal(found, expected[:13])


@pytest.mark.parametrize("kind", TYPES)
def test_the_mean_of_roundings_is_the_number(kind: str) -> None:
    """Of large and small numbers, and of those below the normal range of float16."""
    generator = np.random.default_rng(0)
    sizes = np.float32(10.0) ** generator.integers(-6, 4, 40)
    values = (generator.standard_normal(40) * sizes).astype(np.float32)
    below, above = neighbours(values, kind)
    found = stochastic(values, kind, 2000)[:, 0]
    assert ((found == below) | (found == above)).all()
    share = (values - below) / np.where(above > below, above - below, 1)
    error = np.abs((found == above).mean(0) - share)
    assert (error[above > below] <= 5 * np.sqrt(0.25 / 2000)).all()
    assert (found[:, above == below] == values[above == below]).all()


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_of_16_bits_and_what_is_no_number_stay(kind: str) -> None:
    exact = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 2.0**-24, 65504.0], np.float32)
    exact = exact.astype(TYPES[kind]).astype(np.float32)
    found = stochastic(exact, kind, 50)[:, 0]
    np.testing.assert_array_equal(found, np.broadcast_to(exact.astype(np.float64), found.shape))
    assert np.signbit(found[:, 1]).all()
