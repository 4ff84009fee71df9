from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import ConfigError, DataError, DivergedError
from embexp.specs.models import Task
from embexp.training import metrics

NUMBERS = st.floats(-1e6, 1e6)
SCORES = st.one_of(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.floats(-50, 50))
CLICKS = st.lists(st.tuples(st.sampled_from([0, 1]), SCORES), min_size=1, max_size=40)


def pairs_won(examples: list[tuple[int, float]]) -> Fraction:
    """AUC by its definition: every positive against every negative."""
    positive = [score for label, score in examples if label]
    negative = [score for label, score in examples if not label]
    won = sum(Fraction(p > n) + Fraction(p == n) / 2 for p in positive for n in negative)
    return won / (len(positive) * len(negative))


@given(examples=CLICKS)
def test_auc_is_exact(examples: list[tuple[int, float]]) -> None:
    labels, scores = zip(*examples, strict=True)
    if len(set(labels)) == 2:
        assert metrics.auc(labels, scores) == float(pairs_won(examples))
    else:
        with pytest.raises(ValueError, match="only one is there"):
            metrics.auc(labels, scores)


@pytest.mark.parametrize(
    ("labels", "scores", "expected"),
    [
        ([0, 1], [0, 1], 1.0),
        ([1, 0], [0, 1], 0.0),
        ([0, 1], [1, 1], 0.5),
        # The example in the documentation of scikit-learn's roc_auc_score.
        ([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 0.75),
        ([0, 1, 0, 1], [-0.0, 0.0, 1, 2], 0.625),
    ],
    ids=["right", "wrong", "tied", "published", "signed zeros tie"],
)
def test_auc_of_named_cases(labels: list[int], scores: list[float], expected: float) -> None:
    assert metrics.auc(labels, scores) == expected


def test_auc_does_not_mind_many_examples() -> None:
    """A million examples, half of them tied: whole numbers must neither overflow nor round."""
    half = 500_000
    labels = np.arange(2 * half) % 2
    scores = np.concatenate([np.zeros(half), np.arange(half)])
    tied, rising = half // 2, half // 2
    # Even positions are negative. In the rising half, the k-th positive stands above k + 1 of its half's negatives.
    won = Fraction(tied * tied, 2) + Fraction(rising * tied) + Fraction(rising * (rising + 1), 2)
    # The first rising score is 0 and negative: it ties with the tied positives.
    won += Fraction(tied, 2)
    assert metrics.auc(labels, scores) == float(won / Fraction(half * half))


@given(examples=CLICKS)
def test_log_loss_against_python_s_floats(examples: list[tuple[int, float]]) -> None:
    def one(label: int, logit: float) -> float:
        towards = -logit if label else logit  # softplus of this
        return max(towards, 0.0) + math.log1p(math.exp(-abs(towards)))

    labels, logits = zip(*examples, strict=True)
    expected = math.fsum(one(*example) for example in examples) / len(examples)
    assert metrics.log_loss(labels, logits) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("label", "logit", "expected"),
    [(1, 0, math.log(2)), (1, 1000, 0.0), (0, 1000, 1000.0), (1, -1000, 1000.0), (1, 40, 4.248354255291589e-18)],
    ids=["even", "sure and right", "sure and wrong", "sure the other way", "tiny losses keep their digits"],
)
def test_log_loss_of_named_cases(label: int, logit: float, expected: float) -> None:
    assert metrics.log_loss([label], [logit]) == pytest.approx(expected, rel=1e-15, abs=0)


@given(examples=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_rating_metrics_against_exact_sums(examples: list[tuple[float, float]]) -> None:
    labels, predictions = zip(*examples, strict=True)
    errors = [Fraction(y) - Fraction(z) for y, z in examples]
    found = metrics.evaluate(Task.RATING, labels, np.array(predictions)[:, None])
    squared = sum(error * error for error in errors) / len(errors)
    assert list(found) == ["rmse", "mae", "loss"]
    # The subtraction rounds once, at the size of its terms.
    slack = 1e-9
    assert found["loss"] == pytest.approx(float(squared), rel=1e-9, abs=slack)
    assert found["rmse"] == pytest.approx(math.sqrt(squared), rel=1e-9, abs=slack)
    assert found["mae"] == pytest.approx(float(sum(map(abs, errors)) / len(errors)), rel=1e-9, abs=slack)


def test_metrics_are_in_float64() -> None:
    """A float32 sum over these would be off in the third digit."""
    labels = np.zeros(2_000_000, np.float32)
    predictions = np.full(2_000_000, 0.1, np.float32)
    assert metrics.rmse(labels, predictions) == pytest.approx(float(np.float32(0.1)), rel=1e-13)
    assert metrics.mae(labels, predictions) == pytest.approx(float(np.float32(0.1)), rel=1e-13)


def test_evaluate_clicks() -> None:
    found = metrics.evaluate(Task.CLICK, np.float32([0, 1, 1]), np.float32([[0.0], [0.0], [1.0]]))
    assert list(found) == ["log_loss", "auc", "loss"]
    assert found["auc"] == 0.75
    assert found["loss"] == found["log_loss"]


def test_auc_of_one_class_is_left_out_with_a_reason() -> None:
    labels = np.ones(1200, np.float32)
    assert list(metrics.evaluate(Task.CLICK, labels, labels)) == ["log_loss", "loss"]
    assert metrics.undefined(Task.CLICK, labels) == {"auc": "all 1,200 labels are 1, and AUC compares two classes"}
    assert metrics.undefined(Task.CLICK, [0, 1]) == {}
    assert metrics.undefined(Task.RATING, labels) == {}


@pytest.mark.parametrize("logit", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("task", list(Task))
def test_predictions_that_are_no_numbers_are_not_averaged(task: Task, logit: float) -> None:
    with pytest.raises(DivergedError, match="1 of 2 predictions are not finite numbers"):
        metrics.evaluate(task, [0, 1], [0.5, logit])


def test_ratings_are_no_clicks() -> None:
    with pytest.raises(DataError, match=r"2 of 3 are others, such as 3; set data\.label_threshold, or task=rating"):
        metrics.evaluate(Task.CLICK, [1, 3, 5], [0, 0, 0])


@pytest.mark.parametrize(
    ("labels", "logits", "words"),
    [([], [], "no examples"), ([1, 0], [1], "2 labels, but 1 values")],
    ids=["empty", "lengths"],
)
def test_misuse(labels: list[int], logits: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        metrics.evaluate(Task.RATING, labels, logits)


@pytest.mark.parametrize("task", list(Task))
def test_every_metric_has_a_name_and_a_direction(task: Task) -> None:
    found = metrics.evaluate(task, [0, 1], [0.1, 0.2])
    assert tuple(found) == metrics.names(task)
    assert metrics.names(task)[0] == metrics.watched(task, None)
    assert metrics.headline(task) in found
    # Better predictions must score better in the stated direction.
    better = metrics.evaluate(task, [0, 1], [0.0, 1.0] if task is Task.RATING else [-1.0, 1.0])
    worse = metrics.evaluate(task, [0, 1], [1.0, 0.0])
    for name in found:
        lower = metrics.DIRECTIONS[name] is metrics.Direction.LOWER
        assert (better[name] < worse[name]) is lower, name


def test_the_watched_metric() -> None:
    assert metrics.watched(Task.RATING, None) == "rmse"
    assert metrics.watched(Task.CLICK, None) == "log_loss"
    assert metrics.watched(Task.CLICK, "auc") == "auc"
    words = r"train\.early_stopping\.metric = 'acu': the metrics of task click are log_loss, auc, loss\."
    with pytest.raises(ConfigError, match=words + r"\s+did you mean 'auc'\?"):
        metrics.watched(Task.CLICK, "acu")
