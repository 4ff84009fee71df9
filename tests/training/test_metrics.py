from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from embexp.data import examples as label_rules
from embexp.errors import ConfigError, DataError, DivergedError
from embexp.fields.columns import metrics
from embexp.fields.columns.tasks import BINARY, CLASSIFICATION, REGRESSION
from embexp.fields.graphs.tasks import RANKING
from embexp.fields.recommendation.tasks import RECOMMENDATION
from embexp.specs import tasks
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Task

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
        assert metrics.auc(labels, scores) is None


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
    found = metrics.evaluate(REGRESSION, labels, np.array(predictions)[:, None])
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
    found = metrics.evaluate(BINARY, np.float32([0, 1, 1]), np.float32([[0.0], [0.0], [1.0]]))
    assert list(found) == ["log_loss", "auc", "loss"]
    assert found["auc"] == 0.75
    assert found["loss"] == found["log_loss"]


def test_auc_of_one_class_is_left_out_with_a_reason() -> None:
    labels = np.ones(1200, np.float32)
    assert list(metrics.evaluate(BINARY, labels, labels)) == ["log_loss", "loss"]
    assert label_rules.undefined(BINARY, labels) == {"auc": "all 1,200 labels are 1, and AUC compares two classes"}
    assert label_rules.undefined(BINARY, [0, 1]) == {}
    assert label_rules.undefined(REGRESSION, labels) == {}


CLASSES = st.integers(2, 5).flatmap(
    lambda classes: st.lists(
        st.tuples(
            st.integers(0, classes - 1),
            st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(-60, 60)), min_size=classes, max_size=classes),
        ),
        min_size=1,
        max_size=30,
    )
)


@given(examples=CLASSES)
def test_metrics_of_classes_by_their_definitions(examples: list[tuple[int, list[float]]]) -> None:
    labels, logits = [label for label, _ in examples], [row for _, row in examples]
    found = metrics.evaluate(CLASSIFICATION, np.float32(labels), np.array(logits))
    assert list(found) == ["accuracy", "log_loss", "macro_f1", "loss"]
    predicted = [row.index(max(row)) for row in logits]
    right = sum(label == best for label, best in zip(labels, predicted, strict=True))
    assert found["accuracy"] == pytest.approx(right / len(labels), rel=1e-15)
    expected = [math.log(math.fsum(math.exp(z - row[label]) for z in row)) for label, row in examples]
    assert (
        found["log_loss"] == found["loss"] == pytest.approx(math.fsum(expected) / len(expected), rel=1e-12, abs=1e-12)
    )
    scores = []
    for each in sorted({*labels, *predicted}):
        pairs = list(zip(labels, predicted, strict=True))
        true = sum(pair == (each, each) for pair in pairs)
        false = sum((label == each) != (best == each) for label, best in pairs)
        scores.append(Fraction(2 * true, 2 * true + false))
    assert found["macro_f1"] == pytest.approx(float(sum(scores) / len(scores)), rel=1e-12)


def test_macro_f1_of_a_published_example() -> None:
    """The example in the documentation of scikit-learn's f1_score: 0.26… with average="macro"."""
    assert metrics.macro_f1([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1]) == pytest.approx(0.8 / 3, rel=1e-15)


@pytest.mark.parametrize(
    ("label", "logits", "expected"),
    [
        (0, [0, 0, 0], math.log(3)),
        (0, [1000, 0, 0], 0.0),
        (1, [1000, 0, 0], 1000.0),
        (1, [-1000, -2000, -2000], 1000.0),
        # e^-40 + e^-41, which 1 - p would round to 0.
        (2, [0, 1, 41], 4.248354255291589e-18 + 1.5628821893349888e-18),
    ],
    ids=["even", "sure and right", "sure and wrong", "far below 0", "tiny losses keep their digits"],
)
def test_log_loss_of_classes_of_named_cases(label: int, logits: list[float], expected: float) -> None:
    assert metrics.softmax_log_loss([label], [logits]) == pytest.approx(expected, rel=1e-14, abs=0)


def test_log_loss_of_many_examples_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(1001, 7)), generator.integers(0, 7, 1001)
    whole = metrics.softmax_log_loss(labels, logits)
    monkeypatch.setattr(metrics, "_CELLS", 100)
    assert metrics.softmax_log_loss(labels, logits) == whole


def logits_of(task: Task, values: list[float]) -> list[list[float]] | list[float]:
    """One logit for each example; for classes, that of the second one."""
    return [[0.0, value] for value in values] if task is CLASSIFICATION else values


RANKED = (RANKING, RECOMMENDATION)
"""Their metrics are made of ranks, in modules of their own."""


@pytest.mark.parametrize("logit", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("task", [task for task in tasks.every() if task not in RANKED])
def test_predictions_that_are_no_numbers_are_not_averaged(task: Task, logit: float) -> None:
    with pytest.raises(DivergedError, match="1 of 2 predictions are not finite numbers"):
        metrics.evaluate(task, [0, 1], logits_of(task, [0.5, logit]))


def test_ratings_are_no_clicks() -> None:
    with pytest.raises(
        DataError,
        match=r"2 of 3 labels differ, such as 3; set data\.positive to .*, or set data\.label_threshold or "
        r"task=regression",
    ):
        metrics.evaluate(BINARY, [1, 3, 5], [0, 0, 0])


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([0.0, 1, 3], 3, r"labels, 0, 1, 2, … to 2, but 1 of 3 labels differ, such as 3$"),
        ([0, 1, 2, -1], 3, r"1 of 4 labels differ, such as -1$"),
        ([0.5, 1, 1.5], None, r"labels, 0, 1, 2, …, but 2 of 3 labels differ, such as 0\.5$"),
        ([math.nan, 1], 2, r"1 of 2 labels differ, such as nan$"),
        # A year taken for a class would make a layer of two thousand logits for three examples.
        ([0, 1, 2024], None, r"1 of 3 labels differ, such as 2024$"),
        ([0, 0], None, r"needs at least two classes, but there is only one$"),
        ([0, 0], 1, r"needs at least two classes, but there is only one$"),
    ],
    ids=["beyond", "negative", "no whole numbers", "nan", "too many", "one class", "one named class"],
)
def test_labels_that_are_no_classes(labels: list[float], classes: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        label_rules.check_labels(CLASSIFICATION, np.float32(labels), classes=classes)


def test_labels_that_are_classes() -> None:
    label_rules.check_labels(CLASSIFICATION, np.float32([0, 2, 1]))
    label_rules.check_labels(CLASSIFICATION, np.float32([0, 0]), classes=3)
    label_rules.check_labels(REGRESSION, np.float32([-1.5, 7]))


def test_a_class_without_a_logit() -> None:
    with pytest.raises(DataError, match="1 of 2 labels differ, such as 2"):
        metrics.evaluate(CLASSIFICATION, [0, 2], [[0, 1], [0, 1]])


def test_names_of_classes() -> None:
    labels = np.float32([0, 2, 2])
    assert label_rules.class_names(CLASSIFICATION, labels, ()) == ("0", "1", "2")
    assert label_rules.class_names(CLASSIFICATION, labels, ("cat", "cow", "dog")) == ("cat", "cow", "dog")
    assert label_rules.class_names(REGRESSION, labels, ("cat", "cow", "dog")) == ()


@pytest.mark.parametrize(
    ("labels", "logits", "message"),
    [([], [], "no examples"), ([1, 0], [1], "2 labels, but 1 values")],
    ids=["empty", "lengths"],
)
def test_misuse(labels: list[int], logits: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.evaluate(REGRESSION, labels, logits)


@pytest.mark.parametrize(
    ("labels", "logits", "message"),
    [
        ([], np.zeros((0, 3)), "no examples"),
        ([1, 0], [[1, 2]], r"2 labels, but logits of shape \[1, 2\]"),
        ([1, 0], [1, 2], r"2 labels, but logits of shape \[2\]"),
    ],
    ids=["empty", "lengths", "one logit"],
)
def test_misuse_with_classes(labels: list[int], logits: ArrayLike, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.evaluate(CLASSIFICATION, labels, logits)


@pytest.mark.parametrize("task", [task for task in tasks.every() if task not in RANKED])
def test_every_metric_has_a_name_and_a_direction(task: Task) -> None:
    found = metrics.evaluate(task, [0, 1], logits_of(task, [0.1, 0.2]))
    assert tuple(found) == metric_specs.metrics_of(task)
    assert metric_specs.metrics_of(task)[0] == metric_specs.watched(task, None)
    assert metric_specs.headline(task) in found
    # Better predictions must score better in the stated direction.
    better = metrics.evaluate(task, [0, 1], logits_of(task, [0.0, 1.0] if task is REGRESSION else [-1.0, 1.0]))
    worse = metrics.evaluate(task, [0, 1], logits_of(task, [1.0, 0.0]))
    for name in found:
        lower = metric_specs.direction(name) is metric_specs.Direction.LOWER
        assert (better[name] < worse[name]) is lower, name


def test_the_watched_metric() -> None:
    assert metric_specs.watched(REGRESSION, None) == "rmse"
    assert metric_specs.watched(BINARY, None) == "log_loss"
    assert metric_specs.watched(CLASSIFICATION, None) == "accuracy"
    assert metric_specs.watched(BINARY, "auc") == "auc"
    message = r"train\.early_stopping\.metric = 'acu': the metrics of task binary are log_loss, auc, loss\."
    with pytest.raises(ConfigError, match=message + r"\s+did you mean 'auc'\?"):
        metric_specs.watched(BINARY, "acu")


def test_metrics_at_cutoffs_have_a_direction() -> None:
    names = metric_specs.metrics_of(RECOMMENDATION, (5, 100))
    assert names[0] == metric_specs.headline(RECOMMENDATION, names) == "ndcg_at_5"
    assert {metric_specs.direction(name) for name in names} == {metric_specs.Direction.HIGHER}
    assert metric_specs.direction("recall_at_ten") is None
