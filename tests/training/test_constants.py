from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from embexp.fields.columns import baselines, metrics
from embexp.fields.columns.tasks import BINARY, CLASSIFICATION, REGRESSION
from embexp.fields.graphs import evaluation as rank_metrics
from embexp.fields.graphs.tasks import RANKING
from embexp.specs.tasks import Task
from embexp.training import baseline

RANDOM = np.random.default_rng(0)
ROWS = {"train": np.arange(0, 200), "test": np.arange(200, 300)}


def outcome(task: Task, labels: np.ndarray, logits: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    """The metrics of the constant, and of a model that predicts `logits` for every example of the test split."""
    classes = 0 if logits.ndim == 0 else len(logits)
    constant = baselines.fitted(task, labels, ROWS["train"], classes=classes)
    predicted = np.broadcast_to(logits, (100, *logits.shape))
    return constant.metrics(labels, ROWS["test"]), metrics.evaluate(task, labels[ROWS["test"]], predicted)


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_metrics_are_those_of_a_model_that_predicts_a_constant(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_EXAMPLES_AT_ONCE", chunk)
    rating = RANDOM.normal(50, 20, 300).astype(np.float32)
    found, model = outcome(REGRESSION, rating, np.asarray(rating[:200].mean(dtype=np.float64)))
    assert found == pytest.approx(model, rel=1e-12)
    assert baselines.fitted(REGRESSION, rating, ROWS["train"]).deviation == pytest.approx(
        np.std(rating[:200].astype(np.float64)), rel=1e-12
    )
    click = (RANDOM.random(300) < 0.3).astype(np.float32)
    rate = click[:200].mean(dtype=np.float64)
    found, model = outcome(BINARY, click, np.asarray(np.log(rate / (1 - rate))))
    assert found == pytest.approx(model, rel=1e-9)
    label = RANDOM.choice(4, 300, p=[0.1, 0.2, 0.6, 0.1]).astype(np.float32)
    counts = np.bincount(label[:200].astype(int), minlength=5) + 1  # of the fifth class there is none
    found, model = outcome(CLASSIFICATION, label, np.log(counts))
    assert found == pytest.approx(model, rel=1e-9)


@pytest.mark.parametrize("clicked", [0.0, 1.0])
def test_labels_that_are_all_alike(clicked: float) -> None:
    labels = np.full(300, clicked, np.float32)
    found = baselines.fitted(BINARY, labels, ROWS["train"]).metrics(labels, ROWS["test"])
    assert "auc" not in found
    assert 0 <= found["log_loss"] < 2e-6
    assert baselines.fitted(REGRESSION, labels, ROWS["train"]).deviation == 0


def test_a_random_order_by_drawing_many() -> None:
    choices = RANDOM.integers(1, 30, 50)
    heads = np.arange(50) % 2 == 1
    drawn = [rank_metrics.metrics(RANDOM.integers(1, choices + 1).astype(float), heads) for _ in range(4000)]
    found = rank_metrics.at_random(choices, heads)
    assert found.keys() == drawn[0].keys()
    for name, value in found.items():
        values = [each[name] for each in drawn]
        assert value == pytest.approx(np.mean(values), abs=5 * float(np.std(values)) / math.sqrt(len(values)))


def warning(task: Task, found: dict[str, float], constant: dict[str, float], train: float = 1.0) -> str | None:
    lines = baseline.warnings(
        task,
        {"train": {"loss": train}, "validation": found},
        {"train": {"loss": 1.0}, "validation": constant},
        rates="optimizer.learning_rate, now 0.001",
    )
    return next((line for line in lines if "no better than a constant" in line), None)


CASES = {
    "ratings, the mean": (REGRESSION, {"rmse": 1.1257, "loss": 1.2672}, {"rmse": 1.126, "loss": 1.2679}, False),
    "ratings, learned": (REGRESSION, {"rmse": 0.95, "loss": 0.9025}, {"rmse": 1.126, "loss": 1.2679}, True),
    "rare clicks, well ordered": (BINARY, {"log_loss": 0.0558, "auc": 0.7}, {"log_loss": 0.056, "auc": 0.5}, True),
    "rare clicks, worse": (BINARY, {"log_loss": 0.0562, "auc": 0.7}, {"log_loss": 0.056, "auc": 0.5}, False),
    "clicks, not ordered": (BINARY, {"log_loss": 0.6925, "auc": 0.52}, {"log_loss": 0.693, "auc": 0.5}, False),
    "the majority": (
        CLASSIFICATION,
        {"accuracy": 0.6, "log_loss": 0.7},
        {"accuracy": 0.6, "log_loss": 0.69},
        False,
    ),
    "the majority, better probabilities": (
        CLASSIFICATION,
        {"accuracy": 0.6, "log_loss": 0.5},
        {"accuracy": 0.6, "log_loss": 0.69},
        True,
    ),
    "random ranks": (RANKING, {"mrr": 0.05}, {"mrr": 0.041}, False),
    "better ranks": (RANKING, {"mrr": 0.2}, {"mrr": 0.041}, True),
    "nothing to compare": (REGRESSION, {"rmse": 0.0, "loss": 0.0}, {"rmse": 0.0, "loss": 0.0}, True),
}


@pytest.mark.parametrize("name", CASES)
def test_who_is_better_than_a_constant(name: str) -> None:
    task, found, constant, better = CASES[name]
    assert baseline.beaten(task, found, constant) is better
    assert (warning(task, found, constant) is None) is better


def test_the_warning_has_figures_and_the_remedy() -> None:
    found, constant = {"rmse": 1.1257, "loss": 1.2672}, {"rmse": 1.126, "loss": 1.2679}
    line = warning(REGRESSION, found, constant)
    assert line is not None
    assert "validation rmse 1.1257 (1.1260), in brackets the mean of the training labels" in line
    assert "the model has hardly learned" in line
    assert "optimizer.learning_rate, now 0.001" in line
    assert "hardly learned" in str(warning(REGRESSION, found, constant, train=0.97))  # of a few thousand examples
    unknown = str(warning(REGRESSION, found, constant, train=float("nan")))  # it ended before one was logged
    assert "nan" not in unknown
    assert "try another learning rate" in unknown
    by_heart = warning(REGRESSION, found, constant, train=0.5)
    assert by_heart is not None
    assert "the model is overfitted. Set train.early_stopping.patience" in by_heart


@given(st.floats(0, 10), st.floats(0.01, 10))
def test_the_share_of_the_squared_error_that_is_removed_decides(loss: float, constant: float) -> None:
    share = 1 - loss / constant
    assume(abs(share - baseline.LEAST_GAIN) > 1e-9)  # squares of square roots
    better = baseline.beaten(REGRESSION, {"rmse": math.sqrt(loss)}, {"rmse": math.sqrt(constant)})
    assert better == (share > baseline.LEAST_GAIN)


def test_every_split_is_judged_and_every_metric_that_is_worse_is_named() -> None:
    constant = {
        "train": {"loss": 0.66},
        "validation": {"log_loss": 0.66, "auc": 0.5, "loss": 0.66},
        "test": {"log_loss": 0.6574, "auc": 0.5, "loss": 0.6574},
    }
    learned = {"log_loss": 0.6, "auc": 0.7, "loss": 0.6}
    missed = {"log_loss": 0.6640, "auc": 0.52, "loss": 0.6640}
    rates = "optimizer.learning_rate, now 0.001"

    def lines(validation: dict[str, float], test: dict[str, float]) -> list[str]:
        found = {"train": {"loss": 0.65}, "validation": validation, "test": test}
        return baseline.warnings(BINARY, found, constant, rates=rates)

    assert lines(learned, learned) == []
    [only] = lines(learned, missed)
    assert only.startswith("no better than a constant: test log_loss 0.6640 (0.6574), in brackets")  # AUC is better
    hardly = {"log_loss": 0.6572, "auc": 0.52, "loss": 0.6572}
    [figures] = lines(learned, hardly)
    assert "test log_loss 0.6572 (0.6574), auc 0.5200 (0.5000), in brackets" in figures
    assert rates in only
    first, second = lines(missed, missed)
    assert first.startswith("no better than a constant: validation log_loss")
    assert second.startswith("no better than a constant: test log_loss")
    assert rates in first
    assert rates not in second  # the remedy is the same


def test_one_metric_may_be_worse_although_the_run_has_learned() -> None:
    found = {"accuracy": 0.8, "log_loss": 0.9, "macro_f1": 0.2, "loss": 0.9}
    constant = {"accuracy": 0.6, "log_loss": 0.69, "macro_f1": 0.375, "loss": 0.69}
    [line] = baseline.warnings(CLASSIFICATION, {"test": found}, {"test": constant}, rates="")
    assert line.startswith(
        "worse than a constant: test log_loss 0.9000 (0.6900), macro_f1 0.2000 (0.3750), in brackets"
    )


@pytest.mark.parametrize(
    ("found", "names"),
    [
        ({"ndcg_at_10": 0.1, "mrr": 0.3, "mean_rank": 9.0, "loss": 9.0}, ["ndcg_at_10", "mean_rank"]),
        ({"ndcg_at_10": 0.2, "mrr": 0.2, "mean_rank": 5.0}, []),  # the same is not worse
        ({"ndcg_at_10": None, "mrr": "low", "mine": 0.0}, []),
    ],
)
def test_worse_by_the_direction_of_each_metric(found: dict[str, object], names: list[str]) -> None:
    assert baseline.worse(found, {"ndcg_at_10": 0.2, "mrr": 0.2, "mean_rank": 5.0, "loss": 1.0, "mine": 1.0}) == names


def test_a_metric_that_early_stopping_left_worse_than_a_constant_is_named() -> None:
    constant = {split: {"accuracy": 0.6, "log_loss": 0.67, "loss": 0.67} for split in ("train", "validation", "test")}
    good, sure = {"accuracy": 0.8, "log_loss": 0.5}, {"accuracy": 0.8, "log_loss": 0.9, "loss": 0.9}
    line = (
        "early stopping kept the model with the best accuracy, whose log_loss is worse than a constant's: to keep"
        " the one with the best log_loss, set train.early_stopping.metric=log_loss"
    )
    for found in ({"validation": good, "test": sure}, {"validation": sure, "test": good}, {"test": sure}):
        assert baseline.stopped_by_another("accuracy", found, constant) == [line]
    assert baseline.stopped_by_another("log_loss", {"test": sure}, constant) == []
    assert baseline.stopped_by_another("accuracy", {"train": {"loss": 2.0}, "test": good}, constant) == []
    nothing_learned = {"test": sure | {"accuracy": 0.5}}
    assert baseline.stopped_by_another("accuracy", nothing_learned, constant) == []
