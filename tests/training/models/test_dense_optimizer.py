from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp.fields.columns.specs import DLRM, Dot
from embexp.fields.columns.tasks import BINARY
from embexp.specs.models import MLP, Model
from embexp.specs.optimizers import DenseAdagrad, DenseAdam, DenseOptimizer, DenseSGD
from embexp.training import models

START = np.array([1.0, -2.0, 3.0])
GRADIENTS = [np.array([0.3, -0.4, 0.0]), np.array([-3.0, 4.0, 0.0]), np.array([0.1, 0.1, 0.1])]


def halving(step: tf.Tensor) -> tf.Tensor:
    return 0.5 ** tf.cast(step, tf.float32)


def applied(optimizer: keras.optimizers.Optimizer) -> np.ndarray:
    variable = keras.Variable(START.astype(np.float32))
    optimizer.build([variable])

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        optimizer.apply([gradient], [variable])

    for gradient in GRADIENTS:
        step(tf.constant(gradient, tf.float32))
    return variable.numpy()  # type: ignore[no-any-return]


def sgd(w: np.ndarray, rates: list[float], momentum: float = 0.0, nesterov: bool = False) -> np.ndarray:
    m = np.zeros_like(w)
    for g, rate in zip(GRADIENTS, rates, strict=True):
        m = momentum * m - rate * g
        w = w + (momentum * m - rate * g if nesterov else m)
    return w


def adagrad(w: np.ndarray, rates: list[float], start: float, epsilon: float) -> np.ndarray:
    a = np.full_like(w, start)
    for g, rate in zip(GRADIENTS, rates, strict=True):
        a = a + g * g
        w = w - rate * g / np.sqrt(a + epsilon)
    return w


def adam(w: np.ndarray, rates: list[float], b1: float, b2: float, epsilon: float) -> np.ndarray:
    """Kingma & Ba 2015, the formulation at the end of its section 2, which Keras follows."""
    m = v = np.zeros_like(w)
    for t, (g, rate) in enumerate(zip(GRADIENTS, rates, strict=True), start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        w = w - rate * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + epsilon)
    return w


@pytest.mark.parametrize("scheduled", [False, True], ids=["constant", "scheduled"])
@pytest.mark.parametrize(
    ("spec", "oracle"),
    [
        (DenseSGD(learning_rate=0.1), lambda rates: sgd(START, rates)),
        (DenseSGD(learning_rate=0.1, momentum=0.9), lambda rates: sgd(START, rates, 0.9)),
        (DenseSGD(learning_rate=0.1, momentum=0.9, nesterov=True), lambda rates: sgd(START, rates, 0.9, True)),
        (
            DenseAdagrad(learning_rate=0.1, initial_accumulator_value=0.2, epsilon=0.01),
            lambda rates: adagrad(START, rates, 0.2, 0.01),
        ),
        (
            DenseAdam(learning_rate=0.1, beta_1=0.8, beta_2=0.95, epsilon=0.01),
            lambda rates: adam(START, rates, 0.8, 0.95, 0.01),
        ),
    ],
    ids=["sgd", "momentum", "nesterov", "adagrad", "adam"],
)
def test_rules_against_float64(spec: DenseOptimizer, oracle: Any, scheduled: bool) -> None:
    rates = [0.1, 0.05, 0.025] if scheduled else [0.1] * 3
    found = applied(models.build_optimizer(spec, halving if scheduled else None))
    np.testing.assert_allclose(found, oracle(rates), rtol=3e-6)


def test_clipnorm_bounds_each_gradient() -> None:
    found = applied(models.build_optimizer(DenseSGD(learning_rate=0.1, clipnorm=1.0)))
    # Only the second gradient, of norm 5, is longer than 1.
    np.testing.assert_allclose(found, START - 0.1 * (GRADIENTS[0] + GRADIENTS[1] / 5 + GRADIENTS[2]), rtol=3e-6)


def test_weight_decay_is_decoupled_and_scheduled() -> None:
    w = START
    for g, rate in zip(GRADIENTS, [0.1, 0.05, 0.025], strict=True):
        w = w - 0.3 * rate * w
        w = w - rate * g
    found = applied(models.build_optimizer(DenseSGD(learning_rate=0.1, weight_decay=0.3), halving))
    np.testing.assert_allclose(found, w, rtol=3e-6)


@pytest.mark.parametrize(
    ("model", "dense_width"),
    [
        (Dot(left=("user",), right=("item",)), 0),
        (MLP(hidden=(8,), dropout=0.1), 2),
        (DLRM(bottom=(8,), top=(8,)), 2),
    ],
    ids=["dot", "mlp", "dlrm"],
)
def test_every_model_trains_in_a_traced_step(model: Model, dense_width: int) -> None:
    generator = np.random.default_rng(0)
    activations = {name: tf.constant(generator.normal(size=(64, 4)), tf.float32) for name in ("user", "item")}
    dense = tf.constant(generator.normal(size=(64, dense_width)), tf.float32)
    labels = tf.cast(tf.reduce_sum(activations["user"] * activations["item"], axis=1) > 0, tf.float32)
    built = models.build_model(
        model, shapes={"user": (4,), "item": (4,)}, dense_width=dense_width, output_bias=1.0, seed=0
    )
    loss_of = models.mean_loss(BINARY)
    optimizer = models.build_optimizer(DenseAdam(learning_rate=0.03))
    optimizer.build(built.trainable_variables)
    before = [variable.numpy() for variable in built.trainable_variables]

    @tf.function
    def step() -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(activations)
            loss = loss_of(labels, built(models.inputs(activations, dense), training=True))
        to_rows, gradients = tape.gradient(loss, (activations, built.trainable_variables))
        optimizer.apply(gradients, built.trainable_variables)
        return loss, to_rows

    seen = [float(step()[0]) for _ in range(30)]
    assert seen[-1] < seen[0]
    assert all(float(tf.norm(gradient)) > 0 for gradient in step()[1].values())
    for variable, was in zip(built.trainable_variables, before, strict=True):
        assert not np.array_equal(variable.numpy(), was), variable.path
