"""EASE and item-kNN against what they are defined as."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from embexp.data.examples import ListColumn
from embexp.fields.recommendation import item_models

GENERATOR = np.random.default_rng(0)
X = (GENERATOR.random((40, 12)) < 0.3).astype(np.float32)


def test_ease_solves_a_ridge_regression_of_each_item_on_all_others() -> None:
    found = item_models.fit("ease", scipy.sparse.csr_matrix(X), 3.0)
    for item in range(X.shape[1]):
        others = np.arange(X.shape[1]) != item
        some = X[:, others].astype(np.float64)
        expected = np.linalg.solve(some.T @ some + 3.0 * np.eye(some.shape[1]), some.T @ X[:, item])
        np.testing.assert_allclose(found[others, item], expected, rtol=1e-4, atol=1e-6)
        assert found[item, item] == 0


@pytest.mark.parametrize("shrinkage", [0.0, 2.0])
@pytest.mark.parametrize("neighbours", [3, 100])
def test_neighbours_have_the_largest_cosines(
    shrinkage: float, neighbours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_models, "NEIGHBOURS", neighbours)
    monkeypatch.setattr(item_models, "_ROWS_AT_ONCE", 5)
    found = item_models.fit("item_knn", scipy.sparse.csr_matrix(X), shrinkage).toarray()
    counts = X.astype(np.float64).sum(axis=0)
    cosines = (X.T.astype(np.float64) @ X) / (np.sqrt(np.outer(counts, counts)) + shrinkage)
    np.fill_diagonal(cosines, 0.0)
    for item in range(X.shape[1]):
        order = np.lexsort((np.arange(X.shape[1]), -cosines[item]))[:neighbours]
        expected = np.zeros(X.shape[1])
        expected[order] = cosines[item, order]
        np.testing.assert_allclose(found[:, item], expected, rtol=1e-5, atol=1e-7)


def test_scores_are_sums_over_the_items_of_a_user() -> None:
    weights = GENERATOR.normal(0, 1, (12, 12)).astype(np.float32)
    users = scipy.sparse.csr_matrix(X)
    for each in (weights, scipy.sparse.csr_matrix(weights)):
        np.testing.assert_allclose(item_models.scores(users, each)(3, 9), X[3:9] @ weights, rtol=1e-5, atol=1e-5)


def test_long_lists_are_shortened_to_bound_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([0, 3, 50, 7, 400])
    lists = ListColumn(np.arange(lengths.sum()), np.concatenate([[0], np.cumsum(lengths)]))
    assert (item_models.shortened(lists).values == lists.values).all()
    monkeypatch.setattr(item_models, "MOST_PAIRS", 2_000)
    found = item_models.shortened(lists)
    kept = np.diff(found.splits)
    assert (kept**2).sum() <= 2_000
    assert (kept == np.minimum(lengths, kept.max())).all()
    for place, length in enumerate(kept):
        own = found.values[found.splits[place] : found.splits[place + 1]]
        assert len(set(own)) == length
        assert set(own) <= set(range(lists.splits[place], lists.splits[place + 1]))


def test_scores_and_products_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_models, "MOST_SCORED", 1_000)
    monkeypatch.setattr(item_models, "MOST_PRODUCTS", 2_000)
    seen = ListColumn(np.zeros(400, np.int64), np.arange(0, 401, 4))  # 100 users with four items each
    assert item_models.most_users("item_knn", seen, 50) == 20
    assert item_models.most_users("ease", seen, 50) == 10  # of 4 · 50 products each


def test_too_many_items_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_models, "MOST_CATALOGUE", 3)
    with pytest.raises(ValueError, match="4 items are more than 3"):
        item_models.fit("item_knn", scipy.sparse.csr_matrix(np.ones((2, 4))), 1.0)
