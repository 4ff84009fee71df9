"""Indexes of vectors: what they find is compared with all products in float64."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from embexp.errors import RunError
from embexp.vectors import neighbors

ROWS, DIM, QUERIES = 2_500, 12, 200


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Rows around 50 centres, of lengths that differ by a factor of 30."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(50, DIM))[random.integers(50, size=ROWS)] + random.normal(size=(ROWS, DIM)) / 3
    return np.asarray(rows * random.uniform(0.1, 3, (ROWS, 1)), np.float32)


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(QUERIES, DIM)).astype(np.float32)


def recall(rows: np.ndarray, queries: np.ndarray, numbers: np.ndarray) -> float:
    """The share of the ten largest products that are found, row by row."""
    scores = queries.astype(np.float64) @ rows.astype(np.float64).T
    best = np.argsort(-scores, axis=1)[:, : numbers.shape[1]]
    return float(np.mean([len({*a} & {*b}) / len(a) for a, b in zip(best.tolist(), numbers.tolist(), strict=True)]))


@pytest.mark.parametrize("exact", [True, False])
def test_an_index_has_the_recall_that_it_says(
    exact: bool, rows: np.ndarray, queries: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faiss = pytest.importorskip("faiss")
    monkeypatch.setattr(neighbors, "_SECONDS", 0.0)
    if not exact:
        monkeypatch.setattr(neighbors, "_EXACT", 10)
    found = neighbors.build_index(rows, queries, recall=0.95)
    assert (found.form == "Flat") == exact
    asked = queries[1::2]
    own = recall(rows, asked, found.index.search(asked, 10, found.effort))
    assert own == pytest.approx(found.recall, abs=1e-9)
    assert own >= 0.93  # what was tuned are other queries
    assert (found.rows, found.dim, found.queries) == (ROWS, DIM, QUERIES // 2)
    assert found.queries_per_second > 0
    found.index.save(tmp_path / "index", found.effort)
    read_back = faiss.read_index(str(tmp_path / "index")).search(asked, 10)[1]
    assert recall(rows, asked, np.asarray(read_back)) == pytest.approx(own)
    one = found.index.search(asked[:1], 10, found.effort)
    assert one.shape == (1, 10)


class Partial:
    """An index that finds the best `effort` rows of ten, and then others."""

    form = "partial"
    efforts: Sequence[dict[str, int]] = [{"found": each} for each in range(1, 10)]

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def search(self, queries: np.ndarray, k: int, effort: dict[str, int]) -> np.ndarray:
        order = np.argsort(-(queries.astype(np.float64) @ self._rows.astype(np.float64).T), axis=1)
        return np.concatenate([order[:, : effort["found"]], order[:, 50 : 50 + k - effort["found"]]], axis=1)

    def save(self, path: Path, effort: dict[str, int]) -> None: ...


@pytest.mark.parametrize("asked", [0.05, 0.45, 0.75, 0.85])
def test_it_takes_the_least_effort_that_is_enough(
    asked: float, rows: np.ndarray, queries: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "_forms", lambda *_: iter([Partial]))
    monkeypatch.setattr(neighbors, "_SECONDS", 0.0)
    monkeypatch.setattr(neighbors.metadata, "version", lambda _: "0")
    found = neighbors.build_index(rows, queries, recall=asked)
    assert found.effort == {"found": int(np.ceil(10 * asked))}
    assert found.recall == pytest.approx(np.ceil(10 * asked) / 10)


def test_a_recall_that_is_not_reached(rows: np.ndarray, queries: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_forms", lambda *_: iter([Partial]))
    with pytest.raises(RunError, match=r"recall@10 is 0\.9000 .* below the requested 0\.99: request a lower recall"):
        neighbors.build_index(rows, queries)


def test_equal_rows_stand_for_each_other(rows: np.ndarray, queries: np.ndarray) -> None:
    """The second copies of rows are as good as the first."""
    doubled = np.concatenate([rows[:100], rows[:100]])
    least, _ = neighbors.exact_search(doubled, queries, 10)
    scores = queries.astype(np.float64) @ doubled.astype(np.float64).T
    np.testing.assert_allclose(least, np.sort(scores, axis=1)[:, -10], rtol=1e-6)
    second = 100 + np.argsort(-scores[:, :100], axis=1)[:, :5]
    assert neighbors._hits(doubled, queries, np.concatenate([second, second - 100], axis=1), least).mean() == 1
    assert neighbors._hits(doubled, queries, np.full((QUERIES, 10), -1), least).mean() == 0


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    told = neighbors.missing_faiss()
    assert told is not None
    assert told.endswith("which is not installed: pip install faiss-cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert neighbors.missing_faiss() is None
