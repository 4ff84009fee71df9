"""Comparison of vectors, against SciPy and scikit-learn on whole matrices in float64."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
import scipy.linalg
from scipy import stats
from sklearn.neighbors import NearestNeighbors

from embexp.errors import DataError
from embexp.vectors import comparison
from embexp.vectors.comparison import Vectors, compare


def names(numbers: np.ndarray) -> pa.Array:
    return pa.array([f"w{number}" for number in numbers], pa.large_string())


def made(rows: int = 300, dims: tuple[int, int] = (8, 8), noise: float = 0.5) -> tuple[Vectors, Vectors]:
    """Two sets of which the second is turned, changed and in another order, with rows of its own; both have zeros."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=(rows, dims[0])) * generator.uniform(0.5, 3, (rows, 1)) + 0.3
    wide = np.zeros((rows, dims[1]))
    wide[:, : min(dims)] = first[:, : min(dims)]
    second = wide @ stats.ortho_group.rvs(dims[1], random_state=1) + noise * generator.normal(size=wide.shape)
    first[11] = second[12] = 0
    order = generator.permutation(rows)[: rows - 20]
    others = generator.normal(size=(15, dims[1]))
    second = np.concatenate([second[order], others])
    tokens = [names(np.arange(rows)), names(np.concatenate([order, np.arange(rows, rows + 15)]))]
    a, b = (
        Vectors(name, values.astype(np.float32), words)
        for name, values, words in zip("ab", (first, second), tokens, strict=True)
    )
    return a, b


def shared(a: Vectors, b: Vectors) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The rows of the shared tokens in float64, in the order of a, without zeros."""
    assert a.tokens is not None
    assert b.tokens is not None
    places = {token: row for row, token in enumerate(b.tokens.to_pylist())}
    rows = [(row, places[token]) for row, token in enumerate(a.tokens.to_pylist()) if token in places]
    rows = [(i, j) for i, j in rows if a.values[i].any() and b.values[j].any()]
    left, right = (
        each.values[list(some)].astype(float) for each, some in zip((a, b), zip(*rows, strict=True), strict=True)
    )
    return left, right, [a.tokens[i].as_py() for i, _ in rows]


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [1, comparison._BLOCK_BYTES])
@pytest.mark.parametrize("dims", [(8, 8), (6, 9), (9, 6)])
def test_figures_are_those_of_whole_matrices(
    dims: tuple[int, int], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_BLOCK_BYTES", block)
    a, b = made(dims=dims)
    found = compare([a, b], count=7, moved=4)
    left, right, tokens = shared(a, b)
    count = len(tokens)
    assert (found.shared, found.without_direction, found.sampled) == (count, 280 - count, count)
    assert found.stability is None
    (pair,) = found.pairs

    near = [
        NearestNeighbors(n_neighbors=8, metric="cosine").fit(each).kneighbors(each)[1][:, 1:] for each in (left, right)
    ]
    common = np.array([len(set(i) & set(j)) for i, j in zip(*near, strict=True)])
    assert pair.overlap.mean == pytest.approx(common.mean() / 7)
    assert (pair.overlap.low, pair.overlap.high) == (None, None)
    assert pair.jaccard == pytest.approx(
        np.mean([len(set(i) & set(j)) / len(set(i) | set(j)) for i, j in zip(*near, strict=True)])
    )
    assert found.chance == pytest.approx(7 / (count - 1))

    wide = [np.pad(unit(each), ((0, 0), (0, max(dims) - each.shape[1]))) for each in (left, right)]
    turned = wide[0] @ scipy.linalg.orthogonal_procrustes(*wide)[0]
    cosines = (turned * wide[1]).sum(axis=1)
    np.testing.assert_allclose(pair.distances, 1 - cosines, atol=1e-6)
    assert pair.distance == pytest.approx(1 - cosines.mean(), abs=1e-6)
    order = np.argsort(cosines)
    assert [each.token for each in pair.most] == [tokens[row] for row in order[:4]]
    assert [each.token for each in pair.least] == [tokens[row] for row in order[::-1][:4]]
    if dims[0] == dims[1]:
        assert pair.unaligned == pytest.approx(1 - (wide[0] * wide[1]).sum(axis=1).mean())
    else:
        assert pair.unaligned is None

    kernels = [(each - each.mean(axis=0)) @ (each - each.mean(axis=0)).T for each in (left, right)]
    cka = (kernels[0] * kernels[1]).sum() / np.sqrt((kernels[0] ** 2).sum() * (kernels[1] ** 2).sum())
    assert pair.cka == pytest.approx(cka, abs=1e-9)

    for shape, each, values in zip(found.shapes, (a, b), (left, right), strict=True):
        cosine = unit(values) @ unit(values).T
        assert (shape.rows, shape.dim) == each.values.shape
        assert shape.mean_cosine == pytest.approx(cosine[~np.eye(count, dtype=bool)].mean(), abs=1e-9)
        eigenvalues = np.linalg.eigvalsh(np.cov(values.T))
        assert shape.effective_dim == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
        assert shape.first_share == pytest.approx(eigenvalues[-1] / eigenvalues.sum())
        assert shape.mean_norm == pytest.approx(np.linalg.norm(values, axis=1).mean())
    norms = np.linalg.norm(left, axis=1)
    assert found.shapes[0].norm_by_rank == pytest.approx(stats.spearmanr(np.arange(count), norms)[0])

    numbers = np.array([int(token[1:]) for token in tokens])
    assert [(band.first, band.last) for band in pair.bands] == [(1, 100), (101, 300)]
    for band in pair.bands:
        within = (numbers >= band.first - 1) & (numbers < band.last)
        assert band.tokens == within.sum()
        assert band.norms == pytest.approx(tuple(np.linalg.norm(each[within], axis=1).mean() for each in (left, right)))
        assert band.distance == pytest.approx(1 - cosines[within].mean(), abs=1e-6)
        assert band.overlap == pytest.approx(common[within].mean() / 7)


def test_a_set_that_is_only_turned_has_not_moved() -> None:
    a, b = made(noise=0)
    (pair,) = compare([a, b]).pairs
    assert pair.overlap.mean == 1
    assert pair.cka == pytest.approx(1)
    assert pair.distances.max() < 1e-6
    assert pair.unaligned is not None
    assert pair.unaligned > 0.5


def test_unrelated_sets_overlap_by_chance() -> None:
    generator = np.random.default_rng(0)
    sets = [Vectors(name, generator.normal(size=(1000, 50)).astype(np.float32), None) for name in "ab"]
    found = compare(sets, count=20)
    assert found.pairs[0].overlap.mean == pytest.approx(found.chance, abs=0.004)


def test_the_interval_of_a_sample_covers_the_mean_of_all() -> None:
    a, b = made()
    truth, inside = compare([a, b], count=5).pairs[0].overlap.mean, 0
    for seed in range(100):
        overlap = compare([a, b], count=5, sample=80, seed=seed).pairs[0].overlap
        assert overlap.low is not None
        assert overlap.high is not None
        inside += overlap.low <= truth <= overlap.high
    assert 0.9 <= inside / 100 <= 0.99


def test_stability_is_the_jackknife_over_sets() -> None:
    values = [0.3, 0.5, 0.4, 0.45, 0.35, 0.6]
    found = comparison.over_pairs(values, 4)
    pairs = list(combinations(range(4), 2))
    # Arvesen's pseudo-values, whose mean and standard error Student's t is for.
    without = [
        np.mean([value for pair, value in zip(pairs, values, strict=True) if each not in pair]) for each in range(4)
    ]
    pseudo = 4 * np.mean(values) - 3 * np.array(without)
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(pseudo))
    assert found.mean == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx(expected)
    a, b = made()
    three = compare([a, b, a], count=5)
    assert [(pair.a, pair.b) for pair in three.pairs] == [("a", "b"), ("a", "a"), ("b", "a")]
    assert three.stability is not None
    assert three.stability.mean == pytest.approx(np.mean([pair.overlap.mean for pair in three.pairs]))
    assert three.pairs[1].overlap.mean == 1
    alone = comparison.stable([a, b, a], count=5)
    assert (alone.count, alone.chance, alone.mean) == (5, three.chance, three.stability)
    two = comparison.stable([a, b], count=5, sample=20)
    assert two.mean == compare([a, b], count=5, sample=20).pairs[0].overlap


def test_a_repeated_token_stands_for_its_first_row() -> None:
    values = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    a = Vectors("a", values, pa.array(["x", "y", "x", "z", "v", "only a"], pa.large_string()))
    b = Vectors("b", values, pa.array(["x", "y", "only b", "z", "v", "v"], pa.large_string()))
    found = compare([a, b], count=100)
    assert (found.shared, found.count) == (4, 3)
    assert found.pairs[0].distances.max() < 1e-6


def test_faults() -> None:
    values = np.ones((4, 2), np.float32)
    with_tokens, bare = Vectors("a", values, names(np.arange(4))), Vectors("b", values, None)
    with pytest.raises(DataError, match="b: found no tokens, but a has some"):
        compare([with_tokens, bare])
    with pytest.raises(
        DataError, match="found b with 4 rows, c with 3 rows: without tokens, rows are matched by number"
    ):
        compare([bare, Vectors("c", values[:3], None)])
    with pytest.raises(DataError, match="a, d: found 0 shared tokens with a direction, expected at least three"):
        compare([with_tokens, Vectors("d", values, names(np.arange(4, 8)))])
    with pytest.raises(DataError, match="found 0 shared tokens"):
        compare([with_tokens, Vectors("e", values * 0, names(np.arange(4)))])
