"""Models of columns: compared with their papers in float64, and trained where a linear model can't win."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.fields.columns.specs import FM, DCNv2, DeepFM
from embexp.specs.models import DENSE, MLP, Activation, Model
from embexp.training import models
from tests.training.models.test_build import dense_layers, doubles, drawn, head, scrambled, tensors

Arrays = dict[str, np.ndarray]


def built(model: Model, shapes: dict[str, tuple[int, ...]], dense_width: int, outputs: int = 1) -> Any:
    return models.build_model(model, shapes=shapes, dense_width=dense_width, output_bias=0.0, seed=0, outputs=outputs)


def pairwise(x: Arrays, weights: Arrays, dim: int) -> np.ndarray:
    """Sum of v_i v_j x_i x_j over all pairs, number by number, [B, dim]: Rendle 2010, eq. 1.

    A category's x is 1, and its v is its vector. Shorter ones are mapped to the longest.
    """
    fields = [
        vector if vector.shape[1] == dim else vector @ weights[f"factors.{name}/kernel"]
        for name, vector in x.items()
        if name != DENSE
    ]
    if DENSE in x:
        factors = weights["factors.interactions/kernel"]
        fields += [x[DENSE][:, [column]] * factors[column] for column in range(len(factors))]
    return np.sum([a * b for a, b in combinations(fields, 2)], axis=0)


def factorized(x: Arrays, weights: Arrays, dim: int, biases: tuple[str, ...], outputs: int) -> np.ndarray:
    """The logits of a factorization machine."""
    vectors = {name: each for name, each in x.items() if name not in biases}
    logits = weights["head.sum/bias"] + sum(x[name] for name in biases)
    if not biases:
        row = np.concatenate([vectors[name] for name in sorted(vectors) if name != DENSE], axis=1)
        logits = logits + row @ weights["first_order.vectors/kernel"]
    if DENSE in x:
        logits = logits + x[DENSE] @ weights["first_order.dense/kernel"]
    pairs = pairwise(vectors, weights, dim)
    if outputs == 1:
        return logits + pairs.sum(axis=1, keepdims=True)
    return logits + pairs @ weights["head.interactions/kernel"]


@settings(max_examples=12)
@given(
    dims=st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=5),
    dense_width=st.integers(0, 3),
    biases=st.integers(0, 2),
    outputs=st.sampled_from([1, 4]),
    deep=st.booleans(),
    seed=st.integers(0, 99),
)
def test_factorization_machines(
    dims: list[int], dense_width: int, biases: int, outputs: int, deep: bool, seed: int
) -> None:
    """FM: Rendle 2010, eq. 1. DeepFM adds a deep part of the same vectors: Guo et al. 2017, eq. 1 to 4."""
    if len(dims) + dense_width < 2:
        return
    names = tuple(f"bias{number}" for number in range(biases if outputs == 1 else 0))
    shapes = {f"f{number}": (dim,) for number, dim in enumerate(dims)} | dict.fromkeys(names, (1,))
    spec = DeepFM(biases=names, hidden=(6, 3), activation=Activation.TANH) if deep else FM(biases=names)
    model = built(spec, shapes, dense_width, outputs)
    weights = scrambled(model, seed)
    x = doubles(inputs := drawn(shapes, dense_width, seed=seed))
    expected = factorized(x, weights, max(dims), names, outputs)
    if deep:
        row = np.concatenate(
            [*(x[f"f{number}"] for number in range(len(dims))), *([x[DENSE]] if dense_width else [])], 1
        )
        hidden = dense_layers(row, weights, "deep", 2, Activation.TANH)
        expected = expected + hidden @ weights["head.deep/kernel"]
    logits = model(tensors(inputs))
    assert logits.shape == (7, outputs)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_a_factorization_machine_of_biases_has_no_other_first_order() -> None:
    model = built(FM(biases=("b",)), {"a": (3,), "b": (1,), "c": (3,)}, 0)
    assert [variable.path for variable in model.trainable_variables] == ["head.sum/bias"]


def crossed(x0: np.ndarray, weights: Arrays, layers: int, low: bool) -> np.ndarray:
    """x_{l+1} = x_0 * (W x_l + b) + x_l, with W = U V^T of low rank: Wang et al. 2021, eq. 1 and 2."""
    x = x0
    for number in range(layers):
        inner = x @ weights[f"cross.{number}.down/kernel"] if low else x
        x = x0 * (inner @ weights[f"cross.{number}/kernel"] + weights[f"cross.{number}/bias"]) + x
    return x


@settings(max_examples=12)
@given(
    dims=st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=4),
    dense_width=st.integers(0, 3),
    rank=st.sampled_from([None, 1, 2, 64]),
    layers=st.integers(1, 3),
    structure=st.sampled_from(["parallel", "stacked"]),
    hidden=st.sampled_from([(), (6, 3)]),
    outputs=st.sampled_from([1, 4]),
    seed=st.integers(0, 99),
)
def test_deep_and_cross_networks(
    dims: list[int],
    dense_width: int,
    rank: int | None,
    layers: int,
    structure: Any,
    hidden: Any,
    outputs: int,
    seed: int,
) -> None:
    shapes: dict[str, tuple[int, ...]] = {f"f{number}": (dim,) for number, dim in enumerate(dims)} | {"words": (2, 3)}
    spec = DCNv2(layers=layers, rank=rank, structure=structure, hidden=hidden, activation=Activation.TANH)
    model = built(spec, shapes, dense_width, outputs)
    weights = scrambled(model, seed)
    x = doubles(inputs := drawn(shapes, dense_width, seed=seed))
    x0 = np.concatenate([x[name].reshape(7, -1) for name in sorted(x)], axis=1)
    cross = crossed(x0, weights, layers, rank is not None and 2 * rank < x0.shape[1])
    if structure == "stacked":
        expected = head(dense_layers(cross, weights, "deep", len(hidden), Activation.TANH), weights)
    else:
        deep = dense_layers(x0, weights, "deep", len(hidden), Activation.TANH)
        expected = head(np.concatenate([cross, deep], axis=1) if hidden else cross, weights)
    logits = model(tensors(inputs))
    assert logits.shape == (7, outputs)
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("rank", "width", "expected"), [(None, 500, None), (64, 129, 64), (64, 128, None), (3, 7, 3)])
def test_a_low_rank_is_used_where_it_saves_weights(rank: int | None, width: int, expected: int | None) -> None:
    model = built(DCNv2(rank=rank, layers=1, hidden=()), {"a": (width - 2,)}, 2)
    count = sum(int(np.prod(each.shape)) for each in model.weights if each.path.startswith("cross."))
    assert count == width + (width**2 if expected is None else 2 * width * expected)
    assert DCNv2(rank=rank).low_rank(width) == expected


@pytest.mark.parametrize(
    ("spec", "wins"),
    [
        pytest.param(MLP(hidden=()), False, id="logistic regression"),
        pytest.param(FM(), True, id="fm"),
        pytest.param(DeepFM(hidden=(8,)), True, id="deepfm"),
        pytest.param(DCNv2(hidden=(), layers=1), True, id="dcn_v2"),
        pytest.param(DCNv2(hidden=(8,), rank=2, structure="stacked"), True, id="dcn_v2, low rank"),
    ],
)
@pytest.mark.parametrize("outputs", [1, 2])
def test_crosses_are_learnt(spec: Model, wins: bool, outputs: int) -> None:
    """The label is whether two signs agree, one of each category: neither alone says anything about it."""
    random = np.random.default_rng(0)
    ids = np.stack(np.meshgrid(range(8), range(8)), -1).reshape(-1, 2)  # each pair once
    labels = (ids[:, 0] % 2 == ids[:, 1] % 2).astype(np.int32)
    tables = [tf.Variable(random.normal(0, 0.3, (8, 4)).astype(np.float32)) for _ in range(2)]
    model = built(spec, {"a": (4,), "b": (4,)}, 0, outputs)
    variables = [*tables, *(each.value for each in model.trainable_variables)]
    rule = keras.optimizers.Adam(0.03)

    def logits() -> Any:
        found = model(
            {name: tf.gather(table, ids[:, k]) for k, (name, table) in enumerate(zip("ab", tables, strict=True))}
        )
        return found if outputs > 1 else tf.concat([tf.zeros_like(found), found], 1)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits())
        rule.apply(tape.gradient(loss, variables), variables)

    rule.build(variables)
    for _ in range(150):
        step()
    right = np.mean(np.argmax(logits(), 1) == labels)
    assert right == 1 if wins else right < 0.7
