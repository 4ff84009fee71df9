"""Metrics that a config lists, weights and intervals; figures of scikit-learn 1.9.1 and definitions in plain Python."""

from collections.abc import Mapping

import numpy as np
import pytest

from embexp.data import examples as label_rules
from embexp.fields.columns import baselines, metrics
from embexp.fields.columns.metrics import Measures
from embexp.fields.columns.tasks import BINARY, CLASSIFICATION, REGRESSION
from embexp.fields.recommendation.evaluation import intervals_over_users
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Task
from embexp.training import intervals
from embexp.training.intervals import around


def examples(task: Task) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, logits and weights: those of which scikit-learn computed the figures below."""
    generator = np.random.default_rng(28)
    labels = generator.integers(0, 2, 200)
    logits = (generator.normal(size=200) + labels).round(1)
    weights = generator.integers(0, 5, 200) / 2
    if task is CLASSIFICATION:
        generator = np.random.default_rng(29)
        labels, logits = generator.integers(0, 4, 200), generator.normal(size=(200, 4))
        logits[np.arange(200), labels] += 1
    if task is REGRESSION:
        generator = np.random.default_rng(30)
        labels = generator.normal(size=200) * 3 + 10
        logits = labels + generator.normal(size=200)
    return labels, logits, weights


SCIKIT_LEARN: Mapping[tuple[Task, bool], Mapping[str, float]] = {
    (BINARY, False): {
        "log_loss": 0.5800395664192916,
        "auc": 0.7586700767263427,
        "pr_auc": 0.8211734986123724,
        "brier": 0.1996250191983178,
        "accuracy": 0.69,
        "balanced_accuracy": 0.6721227621483377,
        "precision": 0.7054263565891473,
        "recall": 0.7913043478260869,
        "f1": 0.7459016393442623,
    },
    (BINARY, True): {
        "log_loss": 0.6116934458548479,
        "auc": 0.7290166138480745,
        "pr_auc": 0.7940556125942733,
        "brier": 0.2126603499022766,
        "accuracy": 0.6529126213592233,
        "balanced_accuracy": 0.6373043311245559,
        "precision": 0.6743295019157088,
        "recall": 0.7521367521367521,
        "f1": 0.7111111111111111,
    },
    (CLASSIFICATION, False): {
        "accuracy": 0.58,
        "log_loss": 0.9974410110788761,
        "macro_f1": 0.5785511503926402,
        "balanced_accuracy": 0.5775932526120496,
        "macro_precision": 0.5811211637824542,
        "macro_recall": 0.5775932526120496,
        "brier": 0.550088124502906,
    },
    (CLASSIFICATION, True): {
        "accuracy": 0.5898058252427184,
        "log_loss": 0.9728885908993805,
        "macro_f1": 0.5859176186386664,
        "balanced_accuracy": 0.5864034107547431,
        "macro_precision": 0.5942110972265612,
        "macro_recall": 0.5864034107547431,
        "brier": 0.5378399394004658,
    },
    (REGRESSION, False): {
        "rmse": 1.0555726714402036,
        "mae": 0.7937618184133762,
        "r2": 0.8823847858133415,
        "mape": 0.08419455684622727,
    },
    (REGRESSION, True): {
        "rmse": 1.035579387535653,
        "mae": 0.7825144944294222,
        "r2": 0.880957840241011,
        "mape": 0.08264959249557846,
    },
}


@pytest.mark.parametrize(("task", "weighted"), SCIKIT_LEARN)
def test_the_figures_of_scikit_learn(task: Task, weighted: bool) -> None:
    labels, logits, weights = examples(task)
    measures = Measures(metric_specs.keys(task), weights if weighted else None)
    found = metrics.evaluate(task, labels, logits, measures)
    expected = SCIKIT_LEARN[task, weighted]
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("task", [BINARY, CLASSIFICATION, REGRESSION])
def test_whole_weights_are_repetitions(task: Task) -> None:
    labels, logits, weights = examples(task)
    weights, groups = weights * 2, np.arange(200) % 7
    again = np.repeat(np.arange(200), weights.astype(int))
    listed = metric_specs.keys(task)
    found = metrics.evaluate(task, labels, logits, Measures(listed, weights, groups))
    repeated = metrics.evaluate(task, labels[again], logits[again], Measures(listed, None, groups[again]))
    assert set(found) == set(listed)
    assert found == pytest.approx(repeated, rel=1e-12)


def test_grouped_auc_is_the_mean_over_groups_by_examples() -> None:
    labels, logits, _ = examples(BINARY)
    groups = np.arange(200) // 3
    scores, sizes = [], []
    for group in np.unique(groups):
        own = groups == group
        if 0 < labels[own].sum() < own.sum():
            scores.append(metrics.auc(labels[own], logits[own]))
            sizes.append(own.sum())
    found = metrics.grouped_auc(labels, logits, None, groups)
    assert found == pytest.approx(np.average(scores, weights=sizes), rel=1e-12)
    assert metrics.grouped_auc(labels[:1], logits[:1], None, groups[:1]) is None


def test_calibration_error_by_its_definition() -> None:
    labels, logits, _ = examples(BINARY)
    probable = 1 / (1 + np.exp(-logits))
    total = 0.0
    for start in np.arange(15) / 15:
        own = (probable >= start) & (probable < start + 1 / 15)
        if own.any():
            total += own.sum() * abs(labels[own].mean() - probable[own].mean())
    assert metrics.calibration_error(labels, logits) == pytest.approx(total / 200, rel=1e-9)


def test_one_label_has_no_pr_auc() -> None:
    assert "pr_auc" not in metrics.evaluate(BINARY, [1, 1], [0, 1], Measures(["pr_auc"]))
    assert set(label_rules.undefined(BINARY, [1, 1], ["pr_auc"])) == {"auc", "pr_auc"}


@pytest.mark.parametrize("task", [BINARY, CLASSIFICATION, REGRESSION])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_constant_has_the_metrics_of_its_predictions(task: Task, weighted: bool) -> None:
    labels, _, weights = examples(task)
    own = np.float32(weights) if weighted else None
    train, test = np.arange(100), np.arange(100, 200)
    constant = baselines.fitted(task, np.float32(labels), train, classes=4, weights=own)
    listed = metric_specs.keys(task)
    found = constant.metrics(np.float32(labels), test, listed, own)
    mean = np.average(np.float32(labels)[:100].astype(np.float64), weights=weights[:100] if weighted else None)
    predicted = np.full(100, np.log(mean / (1 - mean)) if task is BINARY else mean)
    if task is CLASSIFICATION:
        counts = np.bincount(labels[:100], weights[:100] if weighted else None, minlength=4) + 1
        predicted = np.tile(np.log(counts), (100, 1))
    measures = Measures(listed, weights[100:] if weighted else None)
    expected = metrics.evaluate(task, np.float32(labels)[100:], predicted, measures)
    assert found == pytest.approx(expected, rel=1e-6)


def test_an_interval_has_the_width_of_theory() -> None:
    """Of an accuracy: 2 * 1.96 * sqrt(p (1 - p) / n); also where only some of many examples are drawn again."""
    generator = np.random.default_rng(0)
    for count in (2000, 40_000):
        labels, logits = generator.integers(0, 2, count), generator.normal(size=count)
        deviations = metrics.intervals_of_examples(BINARY, labels, logits, Measures(["accuracy"]), 1)
        found = metrics.evaluate(BINARY, labels, logits, Measures(["accuracy"]))
        low, high = around(found, deviations)["accuracy"]
        assert low < found["accuracy"] < high
        width = 2 * 1.96 * np.sqrt(found["accuracy"] * (1 - found["accuracy"]) / count)
        assert high - low == pytest.approx(width, rel=0.2)
    assert deviations == metrics.intervals_of_examples(BINARY, labels, logits, Measures(["accuracy"]), 1)


def test_examples_of_a_group_are_drawn_together() -> None:
    """Groups of 10 equal examples: the interval is wider than that of as many independent ones."""
    generator = np.random.default_rng(0)
    labels, logits = (np.repeat(each, 10) for each in (generator.integers(0, 2, 300), generator.normal(size=300)))
    groups = np.repeat(np.arange(100), 30)
    measures = Measures(["grouped_auc"], None, groups)
    found = metrics.intervals_of_examples(BINARY, labels, logits, measures, 1)
    assert set(found) == {"log_loss", "auc", "loss", "grouped_auc"}
    assert np.ptp(found["grouped_auc"]) > np.ptp(found["auc"])


def test_users_are_drawn_again() -> None:
    values = np.random.default_rng(0).normal(size=5000)
    low, high = intervals_over_users({"ndcg_at_10": values}, 1)["ndcg_at_10"]
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(5000), rel=0.2)


def test_the_confusion_of_classes_by_name() -> None:
    labels, logits = np.array([0, 1, 1, 2]), np.eye(3)[[0, 1, 0, 0]]
    found = metrics.confusion_by_name(labels, logits, Measures(), ["cat", "cow", "dog"])
    assert found["confusion"] == [[1, 0, 0], [1, 1, 0], [1, 0, 0]]
    assert found["classes"]["cow"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "examples": 2}
    assert found["classes"]["dog"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "examples": 1}
    assert metrics.confusion_by_name(labels, np.zeros((4, 31)), Measures(), ()) == {}


def test_pairs_are_of_the_users_whom_both_know() -> None:
    values = {"mrr": np.array([0.1, 0.2, 0.3])}, {"mrr": np.array([0.5, 0.7, 0.9, 0.0])}
    users = np.array([1, 4, 6]), np.array([2, 4, 6, 9])
    with intervals.drawn_later():
        before, after = (intervals_over_users(of, 0, users=who).drawn for of, who in zip(values, users, strict=True))
    pairs = intervals.pairs(before, after)
    assert pairs is not None
    assert [each[0].metrics["mrr"] for each in pairs] == pytest.approx([0.25, 0.8])
    low, high = intervals.differences(*pairs, seed=0)["mrr"]
    assert low < 0 < high
    assert intervals.pairs(before, before) == (before, before)
    with intervals.drawn_later():
        others = intervals_over_users(values[0], 0, users=np.array([0, 2, 3])).drawn
        nameless = intervals_over_users(values[1], 0).drawn
    assert intervals.pairs(before, others) is None
    assert intervals.pairs(before, nameless) is None
