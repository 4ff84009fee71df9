"""Models and losses of recommendation against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.fields.recommendation.specs import (
    BPR,
    CosineContrastive,
    MatrixFactorization,
    RecommendationLoss,
    SampledSoftmax,
    Softmax,
    TwoTower,
)
from embexp.fields.recommendation.tasks import RECOMMENDATION
from embexp.specs.base import implementation
from embexp.training import models

GENERATOR = np.random.default_rng(0)
B, K, D, I = 5, 3, 4, 7  # noqa: E741
USERS = GENERATOR.normal(0, 1, (B, D)).astype(np.float32)
NUMBERS = np.array([3, 1, 3, 0, 6])
LOGS = np.log(np.array([0.1, 0.2, 0.05, 0.3, 0.1, 0.1, 0.15]))[NUMBERS]
LABELS = np.stack([NUMBERS, LOGS], axis=1).astype(np.float32)


def loss_of(loss: RecommendationLoss) -> Any:
    return implementation(loss)(None, RECOMMENDATION, 1)


def log_softmax(scores: np.ndarray, answer: int) -> float:
    return float(scores[answer] - np.log(np.exp(scores).sum()))


def test_bpr_compares_each_item_with_its_negatives() -> None:
    items = GENERATOR.normal(0, 1, (B + B * K, D)).astype(np.float32)
    pairs = []
    for row in range(B):
        own = items[row].astype(np.float64) @ USERS[row]
        for negative in range(K):
            pairs.append(np.log1p(np.exp(items[B + row * K + negative].astype(np.float64) @ USERS[row] - own)))
    loss = loss_of(BPR(negatives=K))(tf.constant(LABELS), (tf.constant(USERS), tf.constant(items)))
    assert float(loss) == pytest.approx(np.mean(pairs), rel=1e-6)


@pytest.mark.parametrize("log_q", [True, False])
def test_sampled_softmax_is_corrected_and_leaves_the_item_itself_out(log_q: bool) -> None:
    items = GENERATOR.normal(0, 1, (B, D)).astype(np.float32)
    losses = []
    for row in range(B):
        kept = [j for j in range(B) if j == row or NUMBERS[j] != NUMBERS[row]]
        scores = items[kept].astype(np.float64) @ USERS[row] - (LOGS[kept] if log_q else 0)
        losses.append(-log_softmax(scores, kept.index(row)))
    assert any(len([j for j in range(B) if NUMBERS[j] == NUMBERS[row]]) > 1 for row in range(B))
    loss = loss_of(SampledSoftmax(log_q=log_q))(tf.constant(LABELS), (tf.constant(USERS), tf.constant(items)))
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-6)


DRAWN = np.array([1, 6, 6, 2, 3, 3])
"""Items that are drawn for the whole batch: some are those of interactions, and some are drawn twice."""
SHARES = np.log(np.array([0.1, 0.2, 0.05, 0.3, 0.1, 0.1, 0.15]))


def drawn_inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, vectors of items [B + n, D], and scores in float64 [B, B + n]."""
    numbers = np.concatenate([NUMBERS, DRAWN])
    items = GENERATOR.normal(0, 1, (I, D)).astype(np.float32)[numbers]
    labels = np.stack([numbers, SHARES[numbers]], axis=1).astype(np.float32)
    return labels, items, USERS.astype(np.float64) @ items.T.astype(np.float64)


@pytest.mark.parametrize("log_q", [True, False])
def test_drawn_negatives_are_shared_by_the_batch_and_none_is_the_item_itself(log_q: bool) -> None:
    labels, items, scores = drawn_inputs()
    losses = []
    for row in range(B):
        compared = [row, *(B + place for place in range(len(DRAWN)) if DRAWN[place] != NUMBERS[row])]
        corrected = scores[row, compared] - (labels[compared, 1] if log_q else 0)
        losses.append(-log_softmax(corrected, 0))
    assert set(DRAWN) & set(NUMBERS)
    loss = loss_of(SampledSoftmax(negatives=len(DRAWN), log_q=log_q))
    found = loss(tf.constant(labels), (tf.constant(USERS), tf.constant(items)))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-6)


@pytest.mark.parametrize("of_batch", [True, False], ids=["batch", "drawn"])
def test_cosine_contrastive_counts_negatives_above_the_margin(of_batch: bool) -> None:
    labels, items, scores = drawn_inputs()
    negatives = range(B) if of_batch else range(B, B + len(DRAWN))
    losses = []
    for row in range(B):
        over = [max(0.0, scores[row, place] - 0.3) if labels[place, 0] != NUMBERS[row] else 0.0 for place in negatives]
        losses.append(1 - scores[row, row] + 2.5 * np.mean(over))
    if of_batch:
        labels, items = labels[:B], items[:B]
    loss = loss_of(CosineContrastive(negatives=None if of_batch else len(DRAWN), margin=0.3, negative_weight=2.5))
    found = loss(tf.constant(labels), (tf.constant(USERS), tf.constant(items)))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-6)


@pytest.mark.parametrize(
    "loss", [SampledSoftmax(), CosineContrastive(negatives=None, margin=0.3)], ids=["softmax", "ccl"]
)
def test_shares_of_a_batch_have_its_loss_together(loss: Any) -> None:
    """Each compares its users with the items of the whole batch, its own first."""
    labels, items, _ = (each[:B] for each in drawn_inputs())
    function, found = loss_of(loss), 0.0
    for share in (slice(0, 2), slice(2, B)):
        order = [*range(B)[share], *(place for place in range(B) if place not in range(B)[share])]
        vectors = tf.constant(USERS[share]), tf.constant(items[order])
        found += float(function(tf.constant(labels[order]), vectors)) * len(USERS[share]) / B
    whole = function(tf.constant(labels), (tf.constant(USERS), tf.constant(items)))
    assert found == pytest.approx(float(whole), rel=1e-6)


def test_softmax_is_over_the_catalogue() -> None:
    items = GENERATOR.normal(0, 1, (I, D)).astype(np.float32)
    expected = np.mean([-log_softmax(items.astype(np.float64) @ USERS[row], NUMBERS[row]) for row in range(B)])
    loss = loss_of(Softmax())(tf.constant(LABELS), (tf.constant(USERS), tf.constant(items)))
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_matrix_factorization_adds_vectors_and_biases() -> None:
    spec = MatrixFactorization(user_features=("user", "age"), item_features=("item",), item_biases=("bias",))
    shapes = {"user": (D,), "age": (D,), "item": (D,), "bias": (1,)}
    model = models.build_model(spec, shapes=shapes, dense_width=0, output_bias=0.0, seed=0)
    inputs = {name: GENERATOR.normal(0, 1, (B, *shape)).astype(np.float32) for name, shape in shapes.items()}
    inputs["item"], inputs["bias"] = (np.repeat(inputs[name], 2, axis=0) for name in ("item", "bias"))
    users, items = (each.numpy() for each in model(inputs))
    assert users.shape == (B, D + 1)
    expected = (inputs["user"] + inputs["age"]) @ inputs["item"].T + inputs["bias"].T
    np.testing.assert_allclose(users @ items.T, expected, rtol=1e-5, atol=1e-6)
    assert not model.weights


def test_matrix_factorization_compares_cosines_by_temperature() -> None:
    spec = MatrixFactorization(
        user_features=("user", "age"), item_features=("item",), item_biases=("bias",), normalize=True, temperature=0.2
    )
    shapes = {"user": (D,), "age": (D,), "item": (D,), "bias": (1,)}
    model = models.build_model(spec, shapes=shapes, dense_width=0, output_bias=0.0, seed=0)
    inputs = {name: GENERATOR.normal(0, 1, (B, *shape)).astype(np.float32) for name, shape in shapes.items()}
    users, items = (each.numpy() for each in model(inputs))
    user, item = inputs["user"] + inputs["age"], inputs["item"]
    cosines = (user @ item.T) / np.linalg.norm(user, axis=1)[:, None] / np.linalg.norm(item, axis=1)
    np.testing.assert_allclose(users @ items.T, cosines / 0.2 + inputs["bias"].T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("items", [2, 100, 40_000])
def test_the_temperature_follows_from_the_catalogue(items: int) -> None:
    spec = MatrixFactorization(user_features=("user",), item_features=("item",), normalize=True, temperature=None)
    assert spec.with_temperature(items).temperature == pytest.approx(1.5 / np.log(max(items, 3)))
    assert spec.model_copy(update={"normalize": False}).with_temperature(items).temperature == 1
    assert spec.model_copy(update={"temperature": 0.3}).with_temperature(items).temperature == 0.3
    if items > 3:  # one item can be told from all others, with some room
        assert np.exp(2 / (1.5 / np.log(items))) > items


@pytest.mark.parametrize(
    ("items", "expected"), [(2, 1.5 / np.log(3)), (2_000, 1.5 / np.log(2_000)), (10_000, 2 / 15), (1_000_000, 0.1)]
)
def test_the_automatic_temperature_is_lower_for_large_catalogues(items: int, expected: float) -> None:
    spec = MatrixFactorization(user_features=("user",), item_features=("item",), normalize=True, temperature="auto")
    assert spec.with_temperature(items).temperature == pytest.approx(expected)
    assert spec.model_copy(update={"normalize": False}).with_temperature(items).temperature == 1
    assert np.exp(2 / expected) > items


def test_two_towers_are_hidden_layers_of_either_side() -> None:
    spec = TwoTower(
        user_features=("user", "age"),
        item_features=("item",),
        item_biases=("bias",),
        hidden=(6,),
        dim=3,
        normalize=True,
        temperature=0.1,
    )
    shapes = {"user": (D,), "age": (2,), "item": (5,), "bias": (1,)}
    model = models.build_model(spec, shapes=shapes, dense_width=0, output_bias=0.0, seed=0)
    inputs = {name: GENERATOR.normal(0, 1, (B, *shape)).astype(np.float32) for name, shape in shapes.items()}
    weights = {weight.path: weight.numpy().astype(np.float64) for weight in model.weights}

    def tower(side: str, x: np.ndarray) -> np.ndarray:
        hidden = np.maximum(x @ weights[f"{side}.tower.0/kernel"] + weights[f"{side}.tower.0/bias"], 0)
        vector = hidden @ weights[f"{side}.vector/kernel"]
        return np.asarray(vector / np.linalg.norm(vector, axis=1, keepdims=True))

    user = tower("user", np.concatenate([inputs["user"], inputs["age"]], axis=1))
    expected = user @ tower("item", inputs["item"]).T / 0.1 + inputs["bias"].T
    users, items = (each.numpy() for each in model(inputs))
    np.testing.assert_allclose(users @ items.T, expected, rtol=1e-4, atol=1e-5)
