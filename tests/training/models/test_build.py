from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.errors import ConfigError
from embexp.fields.columns.models import PairwiseDots
from embexp.fields.columns.specs import DLRM, FM, DCNv2, DeepFM, Dot
from embexp.specs.models import DENSE, MLP, Activation, Model
from embexp.training import models

NONLINEAR = {
    Activation.RELU: lambda x: np.maximum(x, 0),
    Activation.TANH: np.tanh,
    Activation.SILU: lambda x: x / (1 + np.exp(-x)),
    # Hendrycks & Gimpel 2016, the exact form x * Phi(x).
    Activation.GELU: lambda x: x * np.vectorize(math.erfc)(-x / np.sqrt(2)) / 2,
}


def drawn(shapes: dict[str, tuple[int, ...]], dense_width: int, batch: int = 7, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    inputs = {name: generator.normal(size=(batch, *shape)).astype(np.float32) for name, shape in shapes.items()}
    if dense_width:
        inputs[DENSE] = generator.normal(size=(batch, dense_width)).astype(np.float32)
    return inputs


def scrambled(model: Any, seed: int = 1) -> dict[str, np.ndarray]:
    """Gives every weight, biases too, values of our own and returns them by path, in float64."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(generator.normal(size=variable.shape).astype(np.float32) / np.sqrt(variable.shape[0]))
    return {variable.path: variable.numpy().astype(np.float64) for variable in model.weights}


def dense_layers(x: np.ndarray, weights: dict[str, np.ndarray], name: str, count: int, activation: Activation) -> Any:
    for number in range(count):
        x = NONLINEAR[activation](x @ weights[f"{name}.{number}/kernel"] + weights[f"{name}.{number}/bias"])
    return x


def head(x: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    return x @ weights["head.logit/kernel"] + weights["head.logit/bias"]


def doubles(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value.astype(np.float64) for name, value in inputs.items()}


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value) for name, value in inputs.items()}


def test_dot_is_biased_matrix_factorisation() -> None:
    shapes = {"user": (5,), "history": (5,), "item": (5,), "user_bias": (1,), "item_bias": (1,)}
    model = models.build_model(
        Dot(left=("user", "history"), right=("item",), biases=("user_bias", "item_bias")),
        shapes=shapes,
        dense_width=0,
        output_bias=3.5,
        seed=0,
    )
    x = doubles(inputs := drawn(shapes, 0))
    expected = 3.5 + x["user_bias"] + x["item_bias"]
    expected += ((x["user"] + x["history"]) * x["item"]).sum(axis=1, keepdims=True)
    logits = model(tensors(inputs))
    assert (logits.shape, logits.dtype) == ((7, 1), tf.float32)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert [variable.path for variable in model.trainable_variables] == ["head.dot/bias"]


@pytest.mark.parametrize("activation", list(Activation))
def test_mlp_concatenates_everything(activation: Activation) -> None:
    shapes = {"words": (4, 3), "user": (5,), "age": (1,)}
    model = models.build_model(
        MLP(hidden=(6, 4), activation=activation), shapes=shapes, dense_width=2, output_bias=0.0, seed=0
    )
    weights = scrambled(model)
    x = doubles(inputs := drawn(shapes, 2))
    row = np.concatenate([x["age"], x[DENSE], x["user"], x["words"].reshape(7, 12)], axis=1)  # by name
    expected = head(dense_layers(row, weights, "hidden", 2, activation), weights)
    np.testing.assert_allclose(model(tensors(inputs)), expected, rtol=1e-4, atol=1e-5)


def test_mlp_without_hidden_layers_is_linear() -> None:
    model = models.build_model(MLP(hidden=()), shapes={"user": (3,)}, dense_width=0, output_bias=0.0, seed=0)
    weights = scrambled(model)
    inputs = drawn({"user": (3,)}, 0)
    np.testing.assert_allclose(model(tensors(inputs)), head(doubles(inputs)["user"], weights), rtol=1e-5, atol=1e-6)


@settings(max_examples=12)
@given(features=st.integers(1, 5), dense_width=st.integers(0, 3), concat=st.booleans(), seed=st.integers(0, 99))
def test_dlrm_multiplies_all_pairs(features: int, dense_width: int, concat: bool, seed: int) -> None:
    if features == 1 and not dense_width:
        return
    shapes = {f"f{number}": (4,) for number in range(features)}
    model = models.build_model(
        DLRM(bottom=(5,), top=(6, 3), activation=Activation.TANH, concat=concat),
        shapes=shapes,
        dense_width=dense_width,
        output_bias=0.0,
        seed=0,
    )
    weights = scrambled(model, seed)
    x = doubles(inputs := drawn(shapes, dense_width, seed=seed))
    bottom = [dense_layers(x[DENSE], weights, "bottom", 2, Activation.TANH)] if dense_width else []
    embeddings = [x[name] for name in shapes]
    products = [(a * b).sum(axis=1, keepdims=True) for a, b in combinations([*bottom, *embeddings], 2)]
    row = np.concatenate([*bottom, *(embeddings if concat else []), *products], axis=1)
    expected = head(dense_layers(row, weights, "top", 2, Activation.TANH), weights)
    np.testing.assert_allclose(model(tensors(inputs)), expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=16)
@given(
    count=st.integers(2, 10),
    batch=st.integers(0, 5),
    dim=st.sampled_from([3, 8, 24]),
    training=st.booleans(),
    seed=st.integers(0, 99),
)
def test_gradients_of_pairwise_dots(count: int, batch: int, dim: int, training: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = [tf.constant(random.normal(size=(batch, dim)), tf.float32) for _ in range(count)]
    weights = random.normal(size=(batch, count * (count - 1) // 2)).astype(np.float32)
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        products = PairwiseDots()(vectors, training=training)
        total = tf.reduce_sum(products * weights)
    x, w = np.stack([each.numpy() for each in vectors]).astype(np.float64), weights.astype(np.float64)
    expected = np.zeros_like(x)
    for pair, (i, j) in enumerate(combinations(range(count), 2)):
        np.testing.assert_allclose(products[:, pair], (x[i] * x[j]).sum(1), rtol=1e-5, atol=1e-5)
        expected[i] += w[:, pair, None] * x[j]
        expected[j] += w[:, pair, None] * x[i]
    np.testing.assert_allclose(tf.stack(tape.gradient(total, vectors)), expected, rtol=1e-5, atol=1e-5)


def test_pairwise_dots_compile_and_serialize() -> None:
    vectors = [tf.random.stateless_normal([4, 3], [0, number]) for number in range(5)]
    layer = PairwiseDots(2, name="interactions.dots")
    again = PairwiseDots.from_config(layer.get_config())
    compiled = tf.function(lambda *given: again(list(given)), jit_compile=True)
    np.testing.assert_allclose(compiled(*vectors), layer(vectors), rtol=1e-6, atol=1e-6)


MODELS = [
    pytest.param(Dot(left=("user",), right=("item",)), 0, id="dot"),
    pytest.param(MLP(hidden=(8, 4), dropout=0.5), 2, id="mlp"),
    pytest.param(DLRM(bottom=(5,), top=(6,), dropout=0.5), 2, id="dlrm"),
    pytest.param(FM(), 2, id="fm"),
    pytest.param(DeepFM(hidden=(6,), dropout=0.5), 2, id="deepfm"),
    pytest.param(DCNv2(rank=2, hidden=(6,), dropout=0.5), 2, id="dcn_v2"),
]
SHAPES = {"user": (4,), "item": (4,)}


def new_model(model: Model, dense_width: int, *, seed: int = 0, shapes: Any = SHAPES, output_bias: float = 0.0) -> Any:
    return models.build_model(model, shapes=shapes, dense_width=dense_width, output_bias=output_bias, seed=seed)


@pytest.mark.parametrize(("spec", "dense_width"), MODELS)
def test_the_logit_starts_at_the_output_bias(spec: Model, dense_width: int) -> None:
    model = new_model(spec, dense_width, output_bias=-1.25)
    zeros = {name: tf.zeros_like(value) for name, value in tensors(drawn(SHAPES, dense_width)).items()}
    np.testing.assert_array_equal(model(zeros), np.full((7, 1), -1.25, np.float32))


@pytest.mark.parametrize(("spec", "dense_width"), MODELS)
def test_initial_values_depend_on_the_seed_and_names_alone(spec: Model, dense_width: int) -> None:
    first = new_model(spec, dense_width)
    tf.random.normal([3])  # other draws and models in between
    new_model(MLP(hidden=(3,)), 0)
    again = new_model(spec, dense_width, shapes={"item": (4,), "user": (4,)})
    assert [v.path for v in first.weights] == [v.path for v in again.weights]
    for one, other in zip(first.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert first.weights, "nothing was compared"
    kernels = [v for v in first.weights if v.path.endswith("kernel")]
    others = [v for v in new_model(spec, dense_width, seed=1).weights if v.path.endswith("kernel")]
    for one, other in zip(kernels, others, strict=True):
        assert not np.array_equal(one, other), one.path


def test_layers_of_one_shape_start_differently() -> None:
    model = new_model(MLP(hidden=(8, 8, 8)), 0)
    assert not np.array_equal(model.get_layer("hidden.1").kernel, model.get_layer("hidden.2").kernel)


def test_glorot_uniform_bounds() -> None:
    kernel = new_model(MLP(hidden=(200,)), 0).get_layer("hidden.0").kernel.numpy()
    bound = np.sqrt(6 / (8 + 200))  # Glorot & Bengio 2010, eq. 16
    assert 0.98 * bound < np.abs(kernel).max() <= bound


@pytest.mark.parametrize(("spec", "dense_width"), MODELS)
def test_features_may_be_called_like_layers(spec: Model, dense_width: int) -> None:
    names = {"user": "concatenate", "item": "hidden"}
    if isinstance(spec, Dot):
        spec = Dot(left=("concatenate",), right=("hidden",))
    shapes = {names[name]: shape for name, shape in SHAPES.items()} | (
        {} if isinstance(spec, Dot) else {"head": (4,), "stack": (4,), "add": (4,), "flatten": (4,), "logit": (4,)}
    )
    assert new_model(spec, dense_width, shapes=shapes)(tensors(drawn(shapes, dense_width))).shape == (7, 1)


def test_dropout_only_while_training_and_its_state_can_be_restored(tmp_path: Path) -> None:
    model = new_model(MLP(hidden=(64,), dropout=0.5), 0)
    x = tensors(drawn(SHAPES, 0))
    np.testing.assert_array_equal(model(x, training=False), model(x, training=False))
    checkpoint = tf.train.Checkpoint(model=model, random=models.random_state(model))
    path = checkpoint.save(str(tmp_path / "state"))
    first, second = model(x, training=True).numpy(), model(x, training=True).numpy()
    assert not np.array_equal(first, second)
    checkpoint.restore(path).assert_consumed()
    np.testing.assert_array_equal(model(x, training=True), first)
    np.testing.assert_array_equal(new_model(MLP(hidden=(64,), dropout=0.5), 0)(x, training=True), first)


def test_inputs_name_the_dense_features() -> None:
    activations = tensors(drawn(SHAPES, 0))
    assert models.inputs(activations, tf.zeros([7, 0])).keys() == {"user", "item"}
    assert models.inputs(activations, tf.zeros([7, 2])).keys() == {"user", "item", DENSE}


def test_inputs_that_do_not_fit_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match=re.escape("model.left = 'usr': this run has no such feature")):
        new_model(Dot(left=("usr", "user"), right=("item",)), 0)
