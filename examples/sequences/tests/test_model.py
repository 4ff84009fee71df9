"""SASRec compared with float64 NumPy, and its causality."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from embexp_sequences import source
from embexp_sequences.evaluation import metrics
from embexp_sequences.model import OfPositions
from embexp_sequences.specs import HISTORY, NextItemLoss, SASRec

from embexp.specs.models import DENSE
from embexp.specs.tasks import CANDIDATES
from embexp.training import models as build

BATCH, LENGTH, DIM, ITEMS = 3, 5, 8, 11


def built(**settings: Any) -> keras.Model:
    shapes = {HISTORY: (LENGTH + 1, DIM), CANDIDATES: (DIM,)}
    model = build.build_model(
        SASRec(**{"dropout": 0.0, "heads": 2, **settings}), shapes=shapes, dense_width=1, output_bias=0.0, seed=1
    )
    random = np.random.default_rng(0)
    for variable in model.variables:  # no variable keeps the 0 or 1 of its initializer
        if "seed" not in variable.path:
            variable.assign(random.normal(0.2, 0.5, variable.shape))
    return model


def inputs(model: keras.Model, lengths: tuple[int, ...] = (5, 2, 1)) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    history = random.normal(size=(BATCH, LENGTH + 1, DIM)).astype(np.float32)
    return {
        HISTORY: history,
        CANDIDATES: random.normal(size=(1, ITEMS, DIM)).astype(np.float32),
        DENSE: np.array(lengths, np.float32)[:, None],
    }


def weights(model: keras.Model, layer: str) -> list[np.ndarray]:
    return [np.asarray(each, np.float64) for each in model.get_layer(layer).get_weights()]


def normed(model: keras.Model, layer: str, x: np.ndarray) -> np.ndarray:
    gamma, beta = weights(model, layer)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-8) * gamma + beta


def expected_states(model: keras.Model, history: np.ndarray, blocks: int, heads: int) -> np.ndarray:
    """Kang and McAuley 2018, section III, in float64: each position and each head on its own."""
    x = history[:, :-1].astype(np.float64) + weights(model, "history.positions")[0]
    for block in range(blocks):
        y = normed(model, f"block.{block}.attention_norm", x)
        query, key, value = (y @ weights(model, f"block.{block}.{part}")[0] for part in ("query", "key", "value"))
        found, width = np.zeros_like(x), DIM // heads
        for example in range(len(x)):
            for head in range(heads):
                own = slice(head * width, (head + 1) * width)
                for place in range(LENGTH):
                    scores = key[example, : place + 1, own] @ query[example, place, own] / np.sqrt(width)
                    shares = np.exp(scores - scores.max())
                    found[example, place, own] = shares / shares.sum() @ value[example, : place + 1, own]
        x = x + found
        y = normed(model, f"block.{block}.linear_norm", x)
        (w, b), (v, c) = (weights(model, f"block.{block}.linear.{place}") for place in range(2))
        x = x + np.maximum(y @ w + b, 0) @ v + c
    return normed(model, "head.states", x)


@pytest.mark.parametrize(("blocks", "heads"), [(1, 1), (2, 2), (1, 4)])
def test_scores_are_those_of_float64(blocks: int, heads: int) -> None:
    model = built(blocks=blocks, heads=heads)
    given = inputs(model)
    states = expected_states(model, given[HISTORY], blocks, heads)
    last = states[np.arange(BATCH), [4, 1, 0]]
    np.testing.assert_allclose(model(given, training=False), last @ given[CANDIDATES][0].T, rtol=2e-4, atol=2e-4)


def test_a_later_item_changes_no_earlier_state() -> None:
    model = built()
    states = keras.Model(model.inputs, model.get_layer("head.states").output)
    given = inputs(model)
    before = np.asarray(states(given))
    for place in range(LENGTH):
        changed = given[HISTORY].copy()
        changed[:, place] += 1
        after = np.asarray(states({**given, HISTORY: changed}))
        assert np.array_equal(after[:, :place].view(np.int32), before[:, :place].view(np.int32))
        assert not np.array_equal(after[:, place], before[:, place])


def test_padding_changes_no_score() -> None:
    model = built()
    given = inputs(model)
    changed = given[HISTORY].copy()
    changed[1, 2:], changed[2, 1:] = 7, -7
    scores = np.asarray(model(given))[1:]
    assert np.array_equal(np.asarray(model({**given, HISTORY: changed}))[1:].view(np.int32), scores.view(np.int32))


@pytest.mark.parametrize("loss", list(NextItemLoss))
def test_losses_are_those_of_float64(loss: NextItemLoss) -> None:
    """The sum over all positions, divided by the number of examples and the mean number of positions."""
    model, random = built(), np.random.default_rng(2)
    given, mean = inputs(model), 2.5
    targets = np.full((BATCH, LENGTH), -1)
    for example, length in enumerate((5, 2, 1)):
        targets[example, :length] = random.integers(0, ITEMS, length)
    drawn = np.tile(np.array([[0, 3, int(targets[0, 0]), 9]]), (BATCH, 1))
    states = expected_states(model, given[HISTORY], 2, 2)
    rows, own = given[CANDIDATES][0].astype(np.float64), given[HISTORY][:, 1:].astype(np.float64)
    tails: Any = drawn if loss is NextItemLoss.SAMPLED_SOFTMAX else drawn[:, :0]
    candidates = given[CANDIDATES]
    if loss is NextItemLoss.SAMPLED_SOFTMAX:
        candidates = candidates[:, drawn[0]]
    if loss is NextItemLoss.BINARY:
        candidates = random.normal(size=(BATCH, LENGTH, DIM)).astype(np.float32)
    total = 0.0
    for example in range(BATCH):
        for place in np.flatnonzero(targets[example] >= 0):
            state, answer = states[example, place], targets[example, place]
            score = state @ own[example, place]
            if loss is NextItemLoss.SOFTMAX:
                scores = rows @ state
                total += np.logaddexp.reduce(scores) - scores[answer]
            elif loss is NextItemLoss.SAMPLED_SOFTMAX:
                others = [rows[item] @ state for item in drawn[0] if item != answer]
                total += np.logaddexp.reduce([score, *others]) - score
            else:
                other = candidates[example, place].astype(np.float64) @ state
                total += np.logaddexp(0, -score) + np.logaddexp(0, other)
    labels = np.concatenate([np.full((BATCH, 1), 1 / mean), targets, tails], 1).astype(np.float32)
    found = OfPositions(model, loss)(
        {name: tf.constant(each) for name, each in {**given, CANDIDATES: candidates}.items()}, tf.constant(labels)
    )
    np.testing.assert_allclose(found, total / BATCH / mean, rtol=1e-4)


def test_metrics_of_ranks() -> None:
    found = metrics(np.array([1.0, 2.5, 11.0]))
    assert found == {
        "ndcg_at_10": pytest.approx((1 + 1 / np.log2(3.5)) / 3),
        "hit_rate_at_10": pytest.approx(2 / 3),
        "mrr": pytest.approx((1 + 0.4 + 1 / 11) / 3),
    }


def test_places() -> None:
    assert source._places(np.array([2, 5, 9]), np.array([4, 5, 12])).tolist() == [2, 3, 9, 10, 11]
