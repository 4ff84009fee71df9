"""What vectors are worth, against SciPy and plain NumPy in float64, and against gensim where it is installed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from embexp.system.arrays import ArrayRows
from embexp.vectors import quality
from embexp.vectors.quality import Analogies, Categories, Lookup, Pairs

PATH = Path("test.txt")


def vectors(rows: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)


def names(rows: int) -> pa.Array:
    """Tokens, of which each tenth is another one in capitals."""
    return pa.array([f"W{row - 5}" if row % 10 == 9 else f"w{row}" for row in range(rows)], pa.large_string())


def cosine(values: np.ndarray, a: int, b: int) -> float:
    left, right = values[[a, b]].astype(np.float64)
    return float(left @ right / np.sqrt(left @ left) / np.sqrt(right @ right))


def test_similarity_is_that_of_scipy() -> None:
    values, tokens = vectors(60), names(60)
    values[7] = 0
    generator = np.random.default_rng(1)
    pairs = [tuple(pair) for pair in generator.integers(0, 70, (200, 2))]
    test = Pairs(PATH, [(f"w{a}", f"W{b}") for a, b in pairs], generator.normal(size=200).round(1))
    found = quality.similarity(ArrayRows(values), Lookup(tokens, rows=50), test)
    # w9, w19, … are no tokens, rows of zeros have no direction, and only 50 rows count.
    rows = [each for each in range(50) if each % 10 != 9 and each != 7]
    covered = [place for place, (a, b) in enumerate(pairs) if a in rows and b in rows]
    exact = [cosine(values, *pairs[place]) for place in covered]
    assert (found.pairs, found.covered) == (200, len(covered))
    assert found.spearman == pytest.approx(stats.spearmanr(test.scores[covered], exact)[0], abs=1e-12)
    assert found.pearson == pytest.approx(stats.pearsonr(test.scores[covered], exact)[0], abs=1e-6)
    assert np.flatnonzero(~np.isnan(found.cosines)).tolist() == covered
    np.testing.assert_allclose(found.cosines[covered], exact, atol=1e-6)


def test_equal_vectors_tie() -> None:
    values = vectors(10, dim=50)
    test = Pairs(PATH, [(f"w{row}", f"w{row}") for row in range(5)] + [("w0", "w1")], np.arange(6.0))
    found = quality.similarity(ArrayRows(values), Lookup(names(10), rows=10), test)
    assert found.cosines[:5].tolist() == [1] * 5


def test_the_interval_covers_the_correlation() -> None:
    """Bonett & Wright promise 95% for correlations up to 0.95: of 2,000 samples of 40 pairs, so many have it inside."""
    generator, inside = np.random.default_rng(0), 0
    truth = 6 / np.pi * math.asin(0.6 / 2)  # Spearman's ρ of a normal distribution with correlation 0.6
    for _ in range(2000):
        a, b = generator.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 40).T
        low, high = quality._of_correlation(float(stats.spearmanr(a, b)[0]), 40)
        assert low is not None
        assert high is not None
        inside += low <= truth <= high
    assert 0.935 <= inside / 2000 <= 0.97


@pytest.mark.parametrize("few", [0, 1, 3])
def test_too_few_pairs(few: int) -> None:
    pairs = [("w0", f"w{each}") for each in range(1, few + 1)] + [("w0", "none")]
    found = quality.similarity(
        ArrayRows(vectors(6)), Lookup(names(6), rows=6), Pairs(PATH, pairs, np.arange(few + 1.0))
    )
    assert found.covered == few
    assert (found.spearman is None) == (few < 2)
    assert (found.low, found.high) == (None, None)


def plain_answers(values: np.ndarray, keys: list[str], question: tuple[str, ...], *, mul: bool) -> int:
    """As the definition says, in float64: no row whose key is a word of the question answers it."""
    exact = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    a, b, c = (exact @ exact[keys.index(word)] for word in question[:3])
    scores = (b + 1) / 2 * (c + 1) / 2 / ((a + 1) / 2 + 0.001) if mul else b - a + c
    scores[[key in question[:3] for key in keys]] = -np.inf
    return int(np.nanargmax(np.where(np.isnan(scores), -np.inf, scores)))


@pytest.mark.parametrize("blocks", [(quality._COSINES_BYTES, 8192, 64, 1 << 17), (1, 7, 1, 20)])
def test_analogies_are_those_of_the_definition(
    blocks: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(("_COSINES_BYTES", "_MOST_ROWS", "_FEWEST_ROWS", "_CELLS"), blocks, strict=True):
        monkeypatch.setattr(quality, name, value)
    values, tokens = vectors(80), names(80)
    values[[3, 77]] = 0
    generator = np.random.default_rng(2)
    questions = [tuple(f"w{row}" for row in four) for four in generator.integers(0, 80, (150, 4))]
    keys = [token.upper() for token in tokens.to_pylist()][:70]
    # Half of the questions are asked for the answer that is right.
    for place in range(0, 150, 2):
        question = tuple(word.upper() for word in questions[place])
        if all(word in keys and word != "W3" for word in question[:3]):
            answer = plain_answers(values[:70], keys, question, mul=place % 4 == 0)
            questions[place] = (*questions[place][:3], tokens[answer].as_py())
    sections = ["a", "gram1", "c"]
    test = Analogies(PATH, questions, sections, [place % 3 for place in range(150)])
    found = quality.analogies(ArrayRows(values), Lookup(tokens, rows=70), test)
    right = {"add": [0] * 3, "mul": [0] * 3}
    covered = [0] * 3
    for place, words in enumerate(questions):
        question = tuple(word.upper() for word in words)
        if any(word not in keys or word == "W3" for word in question):
            assert found.add[place] == found.mul[place] == -1
            continue
        covered[place % 3] += 1
        for way, rows in (("add", found.add), ("mul", found.mul)):
            answer = plain_answers(values[:70], keys, question, mul=way == "mul")
            assert rows[place] == answer
            right[way][place % 3] += keys[answer] == question[3]
    by_name = {section.name: section for section in found.sections}
    assert list(by_name) == [*sections, "semantic", "syntactic", "all"]
    for number, name in enumerate(sections):
        assert (by_name[name].questions, by_name[name].covered) == (50, covered[number])
        for way in ("add", "mul"):
            share = getattr(by_name[name], way)
            assert (share.right, share.share) == (right[way][number], right[way][number] / covered[number])
    assert by_name["all"].add is not None
    assert by_name["all"].add.right == sum(right["add"]) > 20
    assert by_name["syntactic"].covered == covered[1]
    ends = stats.binomtest(sum(right["mul"]), sum(covered)).proportion_ci(method="wilson")
    assert by_name["all"].mul is not None
    assert (by_name["all"].mul.low, by_name["all"].mul.high) == pytest.approx(tuple(ends))


def test_no_question_is_covered() -> None:
    test = Analogies(PATH, [("w0", "w1", "w2", "none")], ["s"], [0])
    found = quality.analogies(ArrayRows(vectors(5)), Lookup(names(5), rows=5), test)
    assert [(each.name, each.covered, each.add) for each in found.sections] == [("s", 0, None), ("all", 0, None)]


def test_categories_that_are_far_apart_and_such_as_there_are_not() -> None:
    generator = np.random.default_rng(0)
    centres = np.eye(3, 8)[np.arange(60) % 3]
    values = (centres + generator.normal(0, 0.05, (60, 8))).astype(np.float32) * generator.uniform(1, 9, (60, 1))
    lookup = Lookup(pa.array([f"w{row}" for row in range(60)], pa.large_string()), rows=60)
    words = [f"w{row}" for row in range(61)]
    test = Categories(PATH, words, [f"kind {row % 3}" for row in range(61)])
    found = quality.categorisation(ArrayRows(values.astype(np.float32)), lookup, test)
    assert (found.words, found.covered, found.categories, found.purity) == (61, 60, 3, 1)
    assert found.clusters[60] == -1
    unrelated = Categories(PATH, words, [f"kind {each}" for each in generator.integers(0, 3, 61)])
    other = quality.categorisation(ArrayRows(values.astype(np.float32)), lookup, unrelated)
    assert other.purity is not None
    assert found.chance is not None
    assert other.purity < 0.6
    assert abs(other.purity - found.chance) < 0.1
    one = quality.categorisation(ArrayRows(values), lookup, Categories(PATH, words[:5], ["kind"] * 5))
    assert (one.purity, one.covered) == (None, 5)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40))
def test_purity(pairs: list[tuple[int, int]]) -> None:
    clusters, categories = np.array(pairs).T
    expected = sum(
        max(sum(pair == (cluster, category) for pair in pairs) for category in range(4)) for cluster in range(5)
    )
    assert quality.purity(clusters, categories) == expected / len(pairs)


def test_gensim_finds_the_same(tmp_path: Path) -> None:
    keyed = pytest.importorskip("gensim.models", reason="gensim, of the extra bench, is not installed").KeyedVectors
    from gensim.test.utils import datapath

    from embexp.vectors import quality

    questions = quality.read_analogies(Path(datapath("questions-words.txt")))
    words = sorted({word for question in questions.questions for word in question})
    words += [word.swapcase() for word in words[::7]] + [f"other{number}" for number in range(500)]
    generator = np.random.default_rng(0)
    known = {word: place for place, word in enumerate(words)}
    values = generator.normal(size=(len(words), 20)).astype(np.float32)
    for a, b, c, d in questions.questions[::11]:  # else hardly any answer is right
        values[known[d]] = values[known[b]] - values[known[a]] + values[known[c]] + 0.1 * values[known[d]]
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    values *= generator.uniform(0.5, 2, (len(words), 1)).astype(np.float32)
    order = generator.permutation(len(words))
    words, values = [words[place] for place in order], values[order]
    peer = keyed(20)
    peer.add_vectors(words, values)
    lookup = Lookup(pa.array(words, pa.large_string()), rows=1000)
    score, sections = peer.evaluate_word_analogies(datapath("questions-words.txt"), restrict_vocab=1000)
    found = quality.analogies(ArrayRows(values), lookup, questions).sections
    assert found[-1].add is not None
    assert 0.01 < score < 0.9
    assert found[-1].add.share == pytest.approx(score, abs=1e-6)
    for section, theirs in zip(found, sections[:-1], strict=False):
        assert section.covered == len(theirs["correct"]) + len(theirs["incorrect"])
        assert (section.add.right if section.add else 0) == len(theirs["correct"])
    tests = {name: quality.read_pairs(Path(datapath(name))) for name in ("wordsim353.tsv", "simlex999.txt")}
    tokens = sorted({word for test in tests.values() for pair in test.words for word in pair})
    values = generator.normal(size=(len(tokens), 20)).astype(np.float32)
    peer = keyed(20)
    peer.add_vectors(tokens, values)
    for name, test in tests.items():
        ours = quality.similarity(ArrayRows(values), Lookup(pa.array(tokens, pa.large_string()), rows=400), test)
        pearson, spearman, missing = peer.evaluate_word_pairs(datapath(name), restrict_vocab=400)
        assert ours.spearman == pytest.approx(spearman[0], abs=1e-6)
        assert ours.pearson == pytest.approx(pearson[0], abs=1e-6)
        assert 1 - ours.covered / ours.pairs == pytest.approx(missing / 100)
