"""Simple models: the same predictions as scikit-learn's and NumPy's, of a dense matrix that is made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from embexp.data.columns import Columns
from embexp.data.examples import Examples, ListColumn
from embexp.fields.columns import baselines
from embexp.fields.columns.baselines import PENALTIES, RIDGE_PENALTIES, predictions
from embexp.fields.columns.tasks import BINARY, CLASSIFICATION, REGRESSION
from embexp.fields.recommendation.tasks import RECOMMENDATION
from embexp.training import baseline

COUNT = 300
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, 9, (COUNT, 2)).astype(np.int32)
NUMBERS = RNG.normal(5, 3, (COUNT, 2)).astype(np.float32)
LENGTHS = RNG.integers(0, 5, COUNT)
SPLITS = np.concatenate([[0], np.cumsum(LENGTHS)])
WORDS = RNG.integers(0, 7, SPLITS[-1]).astype(np.int32)
AMOUNTS = RNG.uniform(0.5, 2, len(WORDS)).astype(np.float32)
TRAIN, TEST, VALID = np.arange(0, COUNT, 2), np.arange(1, COUNT, 2), np.arange(1, COUNT, 4)
COLUMNS = Columns(ids={"user": "user", "item": "item", "words": "words"}, weights={"amount": "words"}, dense=("a", "b"))


def examples(labels: np.ndarray) -> Examples:
    return Examples(
        count=COUNT,
        id_columns=("user", "item"),
        ids=IDS,
        lists={"words": ListColumn(WORDS, SPLITS)},
        weights={"amount": AMOUNTS},
        dense=NUMBERS,
        labels=labels.astype(np.float32),
    )


def matrix() -> np.ndarray:
    """[300, 9 + 9 + 7 + 2]."""
    bags = np.zeros((COUNT, 7))
    for row in range(COUNT):
        for place in range(SPLITS[row], SPLITS[row + 1]):
            bags[row, WORDS[place]] += AMOUNTS[place]
    numbers = NUMBERS.astype(np.float64)
    numbers = (numbers - numbers[TRAIN].mean(axis=0)) / numbers[TRAIN].std(axis=0)
    return np.concatenate([np.eye(9)[IDS[:, 0]], np.eye(9)[IDS[:, 1]], bags, numbers], axis=1)


def labels(classes: int) -> np.ndarray:
    scores = matrix()[:, :classes] * 2 + RNG.gumbel(size=(COUNT, classes))
    return scores.argmax(axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_regression(weighted: bool) -> None:
    y, weights = labels(2), RNG.uniform(0.2, 3, COUNT) if weighted else None
    found = predictions(BINARY, COLUMNS, examples(y), TRAIN, {"validation": VALID, "test": TEST}, weights=weights)
    models = [
        LogisticRegression(C=1 / each, max_iter=1000, tol=1e-8).fit(
            matrix()[TRAIN], y[TRAIN], sample_weight=None if weights is None else weights[TRAIN]
        )
        for each in PENALTIES
    ]
    best = int(np.argmin([log_loss(y[VALID], model.predict_proba(matrix()[VALID])) for model in models]))
    assert found is not None
    np.testing.assert_allclose(found[0]["test"], models[best].decision_function(matrix()[TEST]), atol=2e-2)
    fit = found[1]
    assert (fit.examples, fit.of, fit.values, fit.penalty, fit.converged) == (150, 150, 25, PENALTIES[best], True)


def test_classes_one_of_which_does_not_train() -> None:
    y = labels(4)
    y[TRAIN[y[TRAIN] == 2]] = 1
    found = predictions(CLASSIFICATION, COLUMNS, examples(y), TRAIN, {"validation": TEST}, classes=4)
    assert found is not None
    model = LogisticRegression(C=1 / found[1].penalty, max_iter=1000, tol=1e-8).fit(matrix()[TRAIN], y[TRAIN])
    logits = found[0]["validation"]
    shares = np.exp(logits - logits[:, [0, 1, 3]].max(axis=1, keepdims=True))
    shares[:, [0, 1, 3]] /= shares[:, [0, 1, 3]].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares[:, [0, 1, 3]], model.predict_proba(matrix()[TEST]), atol=5e-3)
    given = np.exp(logits.astype(np.float64))
    np.testing.assert_allclose(given[:, 2] / given[:, [0, 1, 3]].sum(axis=1), 1 / 151, rtol=1e-4)


def test_ridge_regression() -> None:
    y = matrix()[:, :20].sum(axis=1) + RNG.normal(size=COUNT)
    found = predictions(REGRESSION, COLUMNS, examples(y), TRAIN, {"validation": VALID, "test": TEST})
    x = matrix()
    middle, target = x[TRAIN].mean(axis=0), y[TRAIN].astype(np.float32).astype(np.float64)
    centred = x[TRAIN] - middle

    def solved(penalty: float) -> np.ndarray:
        weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(27), centred.T @ (target - target.mean()))
        return (x - middle) @ weights + target.mean()

    best = min(RIDGE_PENALTIES, key=lambda penalty: float(np.mean((solved(penalty) - y)[VALID] ** 2)))
    assert found is not None
    assert found[1].penalty == best
    np.testing.assert_allclose(found[0]["test"], solved(best)[TEST], atol=1e-4)


def test_without_a_validation_split_a_tenth_chooses_the_penalty() -> None:
    found = predictions(BINARY, COLUMNS, examples(labels(2)), TRAIN, {"test": TEST})
    assert found is not None
    assert (found[1].examples, found[1].of) == (135, 150)


def test_names() -> None:
    two = Columns(ids={"user": "user", "item": "item"})
    only = Examples(COUNT, ("user", "item"), IDS, {}, {}, np.empty((COUNT, 0), np.float32), None)
    assert baselines.name_of(REGRESSION, two, only) == "bias_only"
    assert baselines.name_of(REGRESSION, COLUMNS, examples(np.zeros(COUNT))) == "linear_regression"
    assert baselines.name_of(RECOMMENDATION, two, only) is None


def test_a_sample_and_the_most_frequent_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_ROWS", 100)
    monkeypatch.setattr(baselines, "MOST_VALUES", 10)
    y = labels(2)
    first, again = (
        predictions(BINARY, COLUMNS, examples(y), TRAIN, {"validation": VALID, "test": TEST}) for _ in range(2)
    )
    assert first is not None
    assert again is not None
    assert first[0]["test"].tobytes() == again[0]["test"].tobytes()
    assert (first[1].examples, first[1].of, first[1].values) == (100, 150, 10)


def test_one_class_has_no_baseline() -> None:
    assert predictions(BINARY, COLUMNS, examples(np.ones(COUNT)), TRAIN, {"test": TEST}) is None


def test_a_warning_for_each_split_that_is_worse() -> None:
    found = {"validation": {"log_loss": 0.5, "auc": 0.8}, "test": {"log_loss": 0.6, "auc": 0.70, "loss": 0.6}}
    fitted = {"log_loss": 0.5500001, "auc": 0.72, "loss": 0.55}
    lines = baseline.warnings_of_others(found, {"logistic_regression": {"validation": fitted, "test": fitted}})
    assert lines == [
        "on test: log_loss 0.6000 is worse than logistic regression's 0.5500, auc 0.7000 is worse than logistic"
        " regression's 0.7200"
    ]
    same = {"test": {"auc": 0.71999999}}
    assert not baseline.warnings_of_others(same, {"logistic_regression": {"test": {"auc": 0.72}}})


def test_the_work_is_bounded_by_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are the values that each iteration reads, and the values that are predicted."""
    monkeypatch.setattr(baselines, "MOST_CELLS", 1_500)
    monkeypatch.setattr(baselines, "MOST_PREDICTED", 500)
    monkeypatch.setattr(baselines, "_FEWEST_ROWS", 20)
    made, iterations = [], []
    matrix_of, fit = baselines._Inputs.matrix, LogisticRegression.fit

    def counted(inputs: baselines._Inputs, rows: np.ndarray) -> object:
        made.append(matrix_of(inputs, rows))
        return made[-1]

    def fitted(model: LogisticRegression, x: object, *arguments: object, **more: object) -> LogisticRegression:
        found: LogisticRegression = fit(model, x, *arguments, **more)
        iterations.append(int(found.n_iter_.max()))
        return found

    monkeypatch.setattr(baselines._Inputs, "matrix", counted)
    monkeypatch.setattr(LogisticRegression, "fit", fitted)
    y, others = labels(3), {"validation": VALID, "test": TEST}
    chosen = baselines.evaluated(examples(y), COLUMNS, others)
    found = predictions(CLASSIFICATION, COLUMNS, examples(y), TRAIN, chosen, classes=3)
    assert found is not None
    to_fit, to_choose, *predicted = made
    assert 3 * to_fit.nnz <= 1_500
    assert 3 * to_choose.nnz <= 1_500
    assert sum(each.nnz for each in predicted) <= 500
    assert found[1].examples == to_fit.shape[0] >= 20
    assert 3 * to_fit.nnz * max(iterations) <= 50 * 1_500 + 3 * to_fit.nnz
    assert [len(found[0][split]) for split in chosen] == [each.shape[0] for each in predicted]


def test_too_many_values_for_the_bound_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_CELLS", 300)
    with pytest.raises(ValueError, match=r"values of 100 examples times 1 classes are more than 300"):
        predictions(BINARY, COLUMNS, examples(labels(2)), TRAIN, {"test": TEST})
