"""Update rules against float64 formulas and against TensorFlow's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, RowwiseAdagrad
from embexp.tables import optimizers
from tests.exact_rules import Course

ROWS, DIM, STEPS = 6, 4, 8


def single(value: float) -> float:
    """The float32 nearest to a value: constants enter both computations as the same number."""
    return float(np.float32(value))


RULES = {
    "sgd": SGD(learning_rate=single(0.1)),
    "adagrad": Adagrad(learning_rate=single(0.1)),
    "adagrad momentum": AdagradMomentum(learning_rate=single(0.05), momentum=single(0.9)),
    "adagrad nesterov": AdagradMomentum(learning_rate=single(0.05), momentum=single(0.8), use_nesterov=True),
    "adagrad averaged": AdagradMomentum(learning_rate=single(0.01), beta2=single(0.95), exponent=3.0, epsilon=0.125),
    "adam": Adam(learning_rate=single(0.01)),
    "adam outside": Adam(learning_rate=single(0.01), sum_inside_sqrt=False, epsilon=single(1e-3)),
    "adam without memory": Adam(learning_rate=single(0.01), beta_1=0.0, beta_2=0.5, epsilon=0.25),
    "ftrl": FTRL(learning_rate=single(0.1)),
    "ftrl regularised": FTRL(
        learning_rate=single(0.1), l1_regularization_strength=0.25, l2_regularization_strength=0.5, beta=0.75
    ),
    "ftrl times learning rate": FTRL(
        learning_rate=single(0.1),
        l1_regularization_strength=0.25,
        l2_regularization_strength=0.5,
        beta=0.75,
        multiply_linear_by_learning_rate=True,
    ),
    "ftrl of another power": FTRL(learning_rate=single(0.1), learning_rate_power=-0.75),
    "rowwise adagrad": RowwiseAdagrad(learning_rate=single(0.1)),
    "rowwise adagrad from above": RowwiseAdagrad(learning_rate=1.0, initial_accumulator_value=0.5, epsilon=0.25),
    "gradient of a norm": Adam(learning_rate=single(0.01), clipnorm=0.5),
    "gradient clipped twice": SGD(learning_rate=single(0.1), clipvalue=0.5, clipnorm=1.0),
    "clipped gradient": Adagrad(learning_rate=single(0.1), clipvalue=0.5),
    "lopsidedly clipped gradient": SGD(learning_rate=single(0.1), clipvalue=(-0.25, 1.0)),
    "clipped weights": Adam(learning_rate=0.25, clip_weight_min=-0.5, clip_weight_max=0.75),
    "weights clipped below": FTRL(learning_rate=0.25, clip_weight_min=-0.125),
    "decay": SGD(learning_rate=0.125, weight_decay_factor=0.0625),
    "decay times learning rate": Adagrad(
        learning_rate=0.125, weight_decay_factor=0.5, multiply_weight_decay_factor_by_learning_rate=True
    ),
    "decay before ftrl": FTRL(learning_rate=0.125, weight_decay_factor=0.0625),
}


def slot_shape(rule: Any, slot: str) -> list[int]:
    return [ROWS, 1 if slot in rule.row_slots else DIM]


def steps(rule: Any, weights: np.ndarray, gradients: list[np.ndarray], rates: list[float]) -> None:
    """Runs both computations side by side and holds them to 2e-6 * (|w0| + sum |dw|), slots likewise."""
    initial = optimizers.slots_of(rule)
    found, found_slots = (
        tf.constant(weights),
        {s: tf.fill(slot_shape(rule, s), np.float32(v)) for s, v in initial.items()},
    )
    course = Course(rule, {None: weights})
    for gradient, rate in zip(gradients, rates, strict=True):
        found, found_slots = optimizers.updated(rule, found, found_slots, tf.constant(gradient), tf.constant(rate))
        course.step(gradient.astype(np.float64), np.ones(len(weights), bool), rate=single(rate))
        assert set(found_slots) == set(initial)
    errors = course.errors({None: found.numpy(), **{slot: each.numpy() for slot, each in found_slots.items()}})
    assert all((error <= 1).all() for error in errors.values()), errors


@pytest.mark.parametrize("name", RULES)
@given(seed=st.integers(0, 2**32), spread=st.sampled_from([0.01, 1.0]))
def test_rules_are_the_published_formulas(name: str, seed: int, spread: float) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((ROWS, DIM)).astype(np.float32)
    gradients = [(spread * generator.standard_normal((ROWS, DIM))).astype(np.float32) for _ in range(STEPS)]
    gradients[2][:] = 0
    rule = RULES[name]
    steps(rule, weights, gradients, [rule.learning_rate * (1 - step / (2 * STEPS)) for step in range(STEPS)])


@pytest.mark.parametrize("name", RULES)
def test_no_gradient_is_a_gradient_of_zero(name: str) -> None:
    rows = tf.constant(np.random.default_rng(0).standard_normal((ROWS, DIM)), tf.float32)
    rule = RULES[name]
    slots = {slot: tf.fill(slot_shape(rule, slot), np.float32(0.5)) for slot in optimizers.slots_of(rule)}
    without, slots_without = optimizers.updated(RULES[name], rows, slots, None, tf.constant(0.1))
    zero, slots_zero = optimizers.updated(RULES[name], rows, slots, tf.zeros_like(rows), tf.constant(0.1))
    np.testing.assert_array_equal(without, zero)
    for slot in slots:
        np.testing.assert_array_equal(slots_without[slot], slots_zero[slot])


def test_the_moments_of_adam_decay_without_a_gradient() -> None:
    rows, slots = tf.zeros([1, 1]), {"momenta": tf.constant([[1.0]]), "velocities": tf.constant([[4.0]])}
    moved, slots = optimizers.updated(Adam(beta_1=0.5, beta_2=0.25), rows, slots, None, tf.constant(0.5))
    assert (float(slots["momenta"][0, 0]), float(slots["velocities"][0, 0])) == (0.5, 1.0)
    assert float(moved[0, 0]) == pytest.approx(-0.5 * 0.5 / 1.0)


def kernel_inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    table = generator.standard_normal((ROWS, DIM)).astype(np.float32)
    return table, np.array([4, 0, 3]), generator.standard_normal((3, DIM)).astype(np.float32)


def assert_near(found: Any, kernel: Any, start: Any) -> None:
    found, kernel, start = (np.asarray(x, np.float64) for x in (found, kernel, start))
    assert (np.abs(found - kernel) <= 2e-6 * (np.abs(start) + np.abs(kernel - start))).all()


def test_adagrad_is_that_of_the_kernel() -> None:
    table, ids, gradient = kernel_inputs()
    variable, accumulator = tf.Variable(table), tf.Variable(tf.fill(table.shape, 0.1))
    tf.raw_ops.ResourceSparseApplyAdagrad(
        var=variable.handle, accum=accumulator.handle, lr=0.3, grad=gradient, indices=ids, update_slots=True
    )
    slots = {"accumulators": tf.fill([3, DIM], 0.1)}
    rows, slots = optimizers.updated(Adagrad(), tf.constant(table[ids]), slots, tf.constant(gradient), tf.constant(0.3))
    assert_near(rows, tf.gather(variable, ids), table[ids])
    assert_near(slots["accumulators"], tf.gather(accumulator, ids), np.full((3, DIM), 0.1))


@pytest.mark.parametrize("times_rate", [False, True])
def test_ftrl_is_that_of_the_kernel(times_rate: bool) -> None:
    table, ids, gradient = kernel_inputs()
    l1, l2, beta, lr = 0.2, 0.3, 0.4, 0.5
    variable, accumulator = tf.Variable(table), tf.Variable(tf.fill(table.shape, 0.1))
    linear = tf.Variable(tf.zeros_like(variable))
    # The kernel has no beta; in its denominator it is one with l2. With the linear term times the learning rate its
    # l2 and the bound l1 count lr times as much, as ours do.
    tf.raw_ops.ResourceSparseApplyFtrlV2(
        var=variable.handle,
        accum=accumulator.handle,
        linear=linear.handle,
        grad=gradient,
        indices=ids,
        lr=lr,
        l1=l1,
        l2=l2 + beta / (2 * lr),
        l2_shrinkage=0.0,
        lr_power=-0.5,
        multiply_linear_by_lr=times_rate,
    )
    rule = FTRL(
        l1_regularization_strength=l1,
        l2_regularization_strength=l2,
        beta=beta,
        multiply_linear_by_learning_rate=times_rate,
    )
    slots = {"accumulators": tf.fill([3, DIM], 0.1), "linears": tf.zeros([3, DIM])}
    rows, slots = optimizers.updated(rule, tf.constant(table[ids]), slots, tf.constant(gradient), tf.constant(lr))
    assert_near(rows, tf.gather(variable, ids), table[ids])
    assert_near(slots["linears"], tf.gather(linear, ids), np.zeros((3, DIM)))


def test_slots_are_those_of_tensorflow() -> None:
    embedding = tf.tpu.experimental.embedding
    theirs = {
        "sgd": embedding.SGD(),
        "adagrad": embedding.Adagrad(initial_accumulator_value=0.5),
        "adagrad_momentum": embedding.AdagradMomentum(),
        "adam": embedding.Adam(),
        "ftrl": embedding.FTRL(initial_accumulator_value=0.5),
    }
    for rule in (
        SGD(),
        Adagrad(initial_accumulator_value=0.5),
        AdagradMomentum(),
        Adam(),
        FTRL(initial_accumulator_value=0.5),
    ):
        names = theirs[rule.kind]._slot_names()
        values = [float(make([1])[0]) for make in theirs[rule.kind]._slot_initializers()]
        assert optimizers.slots_of(rule) == dict(zip(names, values, strict=True))


@pytest.mark.parametrize("by_rate", [True, False])
def test_rows_decay_by_their_shares_and_never_beyond_zero(by_rate: bool) -> None:
    rule = SGD(weight_decay_factor=2.0, multiply_weight_decay_factor_by_learning_rate=by_rate)
    rows, gradient = np.random.default_rng(0).standard_normal((2, ROWS, DIM)).astype(np.float32)
    shares = np.float32([[1], [0.5], [0.1], [0.01], [0], [0.3]])
    found, _ = optimizers.updated(rule, tf.constant(rows), {}, tf.constant(gradient), tf.constant(0.25), shares)
    decay = np.minimum(1, 2.0 * (0.25 if by_rate else 1) * shares.astype(np.float64))
    np.testing.assert_allclose(found, rows - decay * rows - 0.25 * gradient, rtol=2e-6, atol=2e-6)


@given(seed=st.integers(0, 2**16), steps=st.floats(0.2, 50), rate=st.floats(0.0001, 0.01))
def test_rows_decay_alike_in_an_epoch_whatever_their_frequency(seed: int, steps: float, rate: float) -> None:
    counts = np.random.default_rng(seed).zipf(1.5, 50).clip(0, 10**5)
    shares = optimizers.DecayShares("item", counts, steps)
    of = shares.of(tf.range(50)).numpy()[:, 0].astype(np.float64)
    whole = max(1.0, steps)
    # Each of n examples is in a step of its own choice, so a row is in a step with probability 1 - (1 - 1 / S)^n.
    expected = whole * (1 - np.exp(-counts / whole))
    np.testing.assert_allclose(of * np.maximum(1, expected), 1, rtol=1e-6)
    assert (of <= 1).all()
    assert of[counts.argmax()] == of.min()
