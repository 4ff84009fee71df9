"""The synthetic click log against the law it is documented to follow."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embexp.data import click_log
from embexp.data.click_log import CHUNK, ClickLog
from embexp.data.columns import Columns
from embexp.data.scan import scan
from embexp.data.vocabularies.vocabulary import IdentityVocabulary
from embexp.errors import DataError
from embexp.specs.data import Clicks

COLUMNS = Columns(ids={"user": "user", "item": "item", "history": "item"}, label="click")


def drawn(**settings: Any) -> dict[str, np.ndarray]:
    """The whole log; histories flat, with splits."""
    chunks = list(ClickLog(Clicks(**settings)).chunks())
    result = {
        name: np.concatenate([chunk[name] for chunk in chunks])
        for name in ("user", "item", "history", "click", "probability")
    }
    lengths = np.concatenate([np.diff(chunk["splits"]) for chunk in chunks])
    return {**result, "splits": np.concatenate([[0], np.cumsum(lengths)])}


@pytest.fixture(scope="module")
def log() -> dict[str, np.ndarray]:
    return drawn(examples=2 * CHUNK, users=300, items=200)


def test_ids_lie_in_their_ranges_and_histories_have_their_lengths(log: dict[str, np.ndarray]) -> None:
    assert set(log["user"]) == set(range(300))
    assert set(log["item"]) == set(range(200))
    assert set(log["history"]) == set(range(200))
    lengths = np.bincount(np.diff(log["splits"]), minlength=9)
    assert len(lengths) == 9
    assert np.abs(lengths - 2 * CHUNK / 9).max() < 5 * math.sqrt(2 * CHUNK / 9)


@pytest.mark.parametrize("examples", [1, 100, CHUNK - 1, CHUNK, CHUNK + 1])
def test_a_shorter_log_is_the_beginning_of_a_longer_one(examples: int, log: dict[str, np.ndarray]) -> None:
    short = drawn(examples=examples, users=300, items=200)
    for name in ("user", "item", "click", "probability"):
        np.testing.assert_array_equal(short[name], log[name][:examples])
    np.testing.assert_array_equal(short["splits"], log["splits"][: examples + 1])
    np.testing.assert_array_equal(short["history"], log["history"][: short["splits"][-1]])


def test_the_log_is_a_function_of_its_seed_alone(log: dict[str, np.ndarray]) -> None:
    again = drawn(examples=2 * CHUNK, users=300, items=200)
    assert all(np.array_equal(log[name], again[name]) for name in log)
    other = drawn(examples=1000, users=300, items=200, seed=1)
    assert (other["user"] == log["user"][:1000]).mean() < 0.1


@pytest.mark.parametrize("zipf", [0.0, 0.5, 1.0, 1.0000001, 1.7, 3.0])
@pytest.mark.parametrize("size", [1, 2, 50])
def test_popularity_follows_the_law(zipf: float, size: int) -> None:
    """Chi-square over the ranks; at 49 degrees of freedom one draw in a million exceeds 115."""
    count = 200_000
    population = click_log._Population(size, 2, zipf, key=5)
    observed = np.bincount(population.draw(np.random.default_rng(1), count), minlength=size)
    law = 1.0 / np.arange(1, size + 1) ** zipf
    expected = count * law / law.sum()
    many = expected >= 5
    observed, expected = (np.append(each[many], each[~many].sum()) for each in (observed, expected))
    assert len(observed) <= size + 1
    assert ((observed - expected) ** 2 / np.maximum(expected, 1)).sum() < 115


def test_popularity_of_a_huge_population_follows_the_law() -> None:
    """The share of the first k of n ranks is H_k / H_n for exponent 1; by the asymptotic series of H."""

    def harmonic(n: int) -> float:
        return math.log(n) + 0.5772156649015329 + 1 / (2 * n)

    size, count = 10_000_000, 300_000
    ranks = click_log._Population(size, 2, 1.0, key=5).draw(np.random.default_rng(1), count)
    for k in (10, 1000, 100_000, 1_000_000):
        share = harmonic(k) / harmonic(size)
        assert abs((ranks < k).mean() - share) < 5 * math.sqrt(share * (1 - share) / count)
    assert 0 <= ranks.min() < ranks.max() < size


@pytest.mark.parametrize("size", [1, 1000, click_log._KEPT, click_log._KEPT + 1])
def test_kept_values_are_those_computed_anew(size: int) -> None:
    population = click_log._Population(size, 3, 1.0, key=11)
    ranks = np.unique(np.linspace(0, size - 1, 50).astype(np.int64))
    np.testing.assert_array_equal(population.vectors(ranks), population._normals(ranks))
    assert population.vectors(ranks).dtype == np.float32
    assert population.vectors(ranks).shape == (len(ranks), 4)
    if size <= click_log._KEPT:
        assert len(set(population.ids(np.arange(size)).tolist())) == size


def test_biases_and_vectors_are_standard_normal() -> None:
    values = click_log._Population(100_000, 3, 1.0, key=2).vectors(np.arange(100_000)).astype(np.float64)
    flat = np.sort(values.reshape(-1))
    assert abs(flat.mean()) < 5 / math.sqrt(flat.size)
    assert abs(flat.var() - 1) < 5 * math.sqrt(2 / flat.size)
    # Kolmogorov and Smirnov: 2.5 / sqrt(n) is exceeded 7 times in a million.
    cdf = 0.5 * (1 + np.vectorize(math.erf)(flat[::100] / math.sqrt(2)))
    place = np.arange(0, flat.size, 100) / flat.size
    assert np.abs(cdf - place).max() < 2.5 / math.sqrt(flat.size) + 1e-4
    assert np.abs(np.corrcoef(values.T) - np.eye(4)).max() < 5 / math.sqrt(len(values))


def test_clicks_come_with_their_probability(log: dict[str, np.ndarray]) -> None:
    order = np.argsort(log["probability"])
    for part in np.array_split(order, 20):
        p = log["probability"][part]
        assert abs(log["click"][part].sum() - p.sum()) < 5 * math.sqrt((p * (1 - p)).sum())


def test_the_logit_is_the_documented_one() -> None:
    """Computed again, one example at a time, from the ranks' biases and vectors: affine with the slope of `scale`."""
    spec = Clicks(examples=400, users=50, items=40, rank=3, signal=1.5, history_length=4)
    source, log = (
        ClickLog(spec),
        drawn(**spec.model_dump(include={"examples", "users", "items", "rank", "signal", "history_length"})),
    )
    users = dict(
        zip(source._users.ids(np.arange(50)).tolist(), source._users.vectors(np.arange(50)).tolist(), strict=True)
    )
    items = dict(
        zip(source._items.ids(np.arange(40)).tolist(), source._items.vectors(np.arange(40)).tolist(), strict=True)
    )
    weight = [1.0, 1 / 2, 1 / 3]
    norm = math.sqrt(sum(w * w for w in weight))
    raw, better = [], []
    for example in range(400):
        *p, user_bias = users[int(log["user"][example])]
        *q, item_bias = items[int(log["item"][example])]
        history = log["history"][log["splits"][example] : log["splits"][example + 1]]
        mean = [0.0] * 3
        for place in history.tolist():
            mean = [m + each / len(history) for m, each in zip(mean, items[place][:3], strict=True)]
            better.append(sum(a * b for a, b in zip(p, items[place][:3], strict=True)))
        taste = sum(w / norm * (0.5 * a + 1.0 * m) * b for w, a, m, b in zip(weight, p, mean, q, strict=True))
        raw.append(0.7 * user_bias + 0.7 * item_bias + taste)
    logit = np.log(log["probability"] / (1 - log["probability"]))
    slope, shift = np.polyfit(raw, logit, 1)
    np.testing.assert_allclose(slope * np.array(raw) + shift, logit, atol=1e-5)
    assert slope > 0
    assert np.mean(better) > 0.3  # histories hold what their user likes


@pytest.mark.parametrize("signal", [0.5, 2.0, 4.0])
def test_signal_is_the_spread_of_the_logit(signal: float) -> None:
    log = drawn(examples=CHUNK, signal=signal)
    p = np.clip(log["probability"], 1e-15, 1 - 1e-15)
    assert np.log(p / (1 - p)).std() == pytest.approx(signal, rel=0.03)


def test_the_best_auc_by_counting_pairs() -> None:
    random = np.random.default_rng(3)
    probability = random.integers(0, 9, 120) / 9
    labels = (random.random(120) < probability).astype(np.float32)
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for (a, x), (b, y) in itertools.product(zip(probability, labels, strict=True), repeat=2)
        if x == 1 and y == 0
    ]
    found = click_log.bayes(labels, probability)
    assert found["bayes_auc"] == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    safe = np.clip(probability, 1e-15, 1 - 1e-15)
    loss = -sum(math.log(p) if y else math.log1p(-p) for p, y in zip(safe, labels, strict=True)) / 120
    assert found["bayes_log_loss"] == pytest.approx(loss, rel=1e-12)


def test_one_class_has_no_auc() -> None:
    assert set(click_log.bayes(np.ones(3), np.full(3, 0.5))) == {"bayes_log_loss"}
    assert click_log.bayes(np.empty(0), np.empty(0)) == {}


def test_the_scan_encodes_the_log(tmp_path: Path) -> None:
    spec = Clicks(examples=5000, users=300, items=200)
    found, log = scan(spec, COLUMNS, cache=tmp_path), drawn(examples=5000, users=300, items=200)
    np.testing.assert_array_equal(found.examples.ids, np.stack([log["user"], log["item"]], 1))
    np.testing.assert_array_equal(found.examples.lists["history"].values, log["history"])
    np.testing.assert_array_equal(found.examples.lists["history"].splits, log["splits"])
    assert found.examples.labels is not None
    np.testing.assert_array_equal(found.examples.labels, log["click"])
    assert found.vocabularies == {"user": IdentityVocabulary(300), "item": IdentityVocabulary(200)}
    test = found.splits["test"]
    assert found.truth == click_log.bayes(log["click"][test], log["probability"][test])
    assert found.label_mean == pytest.approx(log["click"][found.splits["train"]].mean())


@pytest.mark.parametrize("history", [0, 1])
def test_logs_without_histories(tmp_path: Path, history: int) -> None:
    found = scan(Clicks(examples=200, history_length=history), COLUMNS, cache=tmp_path)
    assert np.diff(found.examples.lists["history"].splits).max() == history


def test_leave_one_out_groups_by_the_named_column(tmp_path: Path) -> None:
    spec = Clicks(examples=2000, users=30, split={"kind": "leave_one_out", "group": "item"})
    found = scan(spec, COLUMNS, cache=tmp_path)
    items = found.examples.ids[:, 1]
    last = {int(item): row for row, item in enumerate(items)}
    seen = np.bincount(items, minlength=1000)
    assert found.splits["test"].tolist() == sorted(row for item, row in last.items() if seen[item] > 1)


def test_by_time_the_end_of_the_log_tests(tmp_path: Path) -> None:
    found = scan(Clicks(examples=1000, split={"kind": "time", "test": 0.2}), COLUMNS, cache=tmp_path)
    assert found.splits["test"].tolist() == list(range(800, 1000))


def test_other_files_can_not_be_read_as_a_synthetic_log(tmp_path: Path) -> None:
    from embexp.data.scan import encode_file

    with pytest.raises(
        DataError, match=r"a synthetic click log can't be read from another file, so .*x\.csv " r"can't be read for it"
    ):
        encode_file(tmp_path / "x.csv", Clicks(), COLUMNS, {}, cache=tmp_path)


def test_huge_populations_take_no_memory_of_their_size() -> None:
    """Ten million users of rank 16 would be 680 MB; what is drawn together takes some tens."""
    tracemalloc.start()
    try:
        for chunk in ClickLog(Clicks(examples=2 * CHUNK, users=10_000_000, items=5_000_000)).chunks():
            assert chunk["user"].max() < 10_000_000
            assert len(set(chunk["user"].tolist())) > 10_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150 * 2**20
