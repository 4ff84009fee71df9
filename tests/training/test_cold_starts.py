"""Vectors without training, against the same problems solved as plain least squares in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.data.examples import ListColumn
from embexp.fields.recommendation import recommending


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), unobserved=st.floats(0.001, 1), penalty=st.floats(0.01, 100))
def test_a_user_is_the_weighted_least_squares_solution(seed: int, unobserved: float, penalty: float) -> None:
    generator = np.random.default_rng(seed)
    items, dim, users = int(generator.integers(2, 30)), int(generator.integers(1, 8)), int(generator.integers(1, 6))
    vectors = generator.standard_normal((items, dim)).astype(np.float32)
    lengths = generator.integers(0, items, users)
    chosen = [np.sort(generator.choice(items, length, replace=False)) for length in lengths]
    lists = ListColumn(np.concatenate([np.empty(0, np.int64), *chosen]), np.concatenate([[0], np.cumsum(lengths)]))

    found = recommending.folded_in(vectors, lists, unobserved, penalty)

    wide = vectors.astype(np.float64)
    ridge = np.sqrt(penalty * (wide**2).sum(axis=1).mean()) * np.eye(dim)
    for user, own in enumerate(chosen):  # all terms of the sum as rows of one system
        system = np.concatenate([wide[own], np.sqrt(unobserved) * wide, ridge])
        wanted = np.concatenate([np.ones(len(own)), np.zeros(items + dim)])
        expected = np.linalg.lstsq(system, wanted, rcond=None)[0]
        assert found[user] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_many_users_at_once_are_those_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((20, 4)).astype(np.float32)
    lists = ListColumn(generator.integers(0, 20, 60), np.arange(0, 61, 5))
    whole = recommending.folded_in(vectors, lists, 0.1, 10.0)
    monkeypatch.setattr(recommending, "_USERS_AT_ONCE", 5)
    assert recommending.folded_in(vectors, lists, 0.1, 10.0).tobytes() == whole.tobytes()


def _ridge(content: np.ndarray, learned: np.ndarray, weights: np.ndarray, penalty: float) -> np.ndarray:
    """Weighted ridge regression with a free intercept: coefficients [1 + c, k], the intercept first."""
    roots = np.sqrt(weights)[:, None]
    system = np.concatenate(
        [roots * np.c_[np.ones(len(content)), content], np.zeros((content.shape[1], 1 + content.shape[1]))]
    )
    system[len(content) :, 1:] = np.sqrt(penalty) * np.eye(content.shape[1])
    wanted = np.concatenate([roots * learned, np.zeros((content.shape[1], learned.shape[1]))])
    return np.linalg.lstsq(system, wanted, rcond=None)[0]


def test_the_map_is_the_ridge_regression_that_predicts_left_out_items_best() -> None:
    generator = np.random.default_rng(1)
    content, counts = generator.standard_normal((24, 5)), generator.integers(1, 40, 24)
    learned = content @ generator.standard_normal((5, 3)) + generator.standard_normal((24, 3)) + 2
    fitted = recommending.content_map(content, learned, counts)

    weights = np.log1p(counts)
    others = generator.standard_normal((4, 5))
    expected = np.c_[np.ones(4), others] @ _ridge(content, learned, weights, fitted.penalty)
    assert fitted(others) == pytest.approx(expected, rel=1e-4, abs=1e-5)

    def error(penalty: float) -> float:
        total = 0.0
        for item in range(24):
            rest = np.arange(24) != item
            map_ = _ridge(content[rest], learned[rest], weights[rest], penalty)
            total += weights[item] * ((np.r_[1, content[item]] @ map_ - learned[item]) ** 2).sum()
        return total

    assert fitted.penalty == pytest.approx(min(np.logspace(-2, 4, 25), key=error))


def test_lengths_are_one_but_for_the_bias() -> None:
    vectors = np.array([[3, 4, 7], [0, 0, -1]], np.float32)
    assert recommending.of_length_one(vectors, bias=True).tolist() == [
        [0.6000000238418579, 0.800000011920929, 7],
        [0, 0, -1],
    ]
    assert np.linalg.norm(recommending.of_length_one(vectors, bias=False), axis=1) == pytest.approx([1, 1])
