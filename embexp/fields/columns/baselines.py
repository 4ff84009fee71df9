"""What predictions of labels are compared with: the best constant, and a simple model of the same columns.

The best constant prediction, and its metrics:

| task | prediction for every example | metrics |
|---|---|---|
| regression | the mean | RMSE, MAE, loss |
| binary | the rate of label 1 | log loss, AUC 0.5 |
| classification | the classes' frequencies; the most frequent one | log loss; accuracy, macro F1 |

The simple model is logistic regression for classes, ridge regression for numbers, fitted by scikit-learn.
It gets the same columns as the run: an indicator of each value of a column of ids, how often each value is in a list,
and numbers, standardised. For texts these are counts of words; for ratings of users and items, whose only columns are
two ids, ridge regression is a mean with a bias for each user and each item (Koren 2009, "The BellKor solution", 2.1).

Of three penalties, from the strongest on, that is taken whose loss on the validation split is least, or on a tenth of
the training split if there is none. The work is bounded by how many numbers it reads, not by a clock, so that the same
data gives the same predictions on every machine:

| work | bound |
|---|---|
| values of the examples that are fitted to, times the classes | `MOST_CELLS`, read in each iteration |
| iterations for a penalty | 50, or as many more as read no more than 50 over `MOST_CELLS`, up to 500 |
| values of the examples by which the penalty is chosen, times the classes | `MOST_CELLS` |
| values of the examples of other splits that are predicted | `MOST_PREDICTED`, and times the classes `MOST_PRODUCTS` |
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.fields.columns import metrics
from embexp.runs.evaluations import Fit
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Labels, Task
from embexp.training.baseline import LEAST_GAIN, Reference, approached, removed

_EXAMPLES_AT_ONCE = 1 << 20
_LEAST_RATE = 1e-6
"""If the training split had a rate of 0 or 1, the log loss of any other rate would be infinite."""
_USEFUL_AUC = 0.6
"""If label 1 is rare, even the best model removes little of the log loss, so the order of predictions counts."""


@dataclass(frozen=True)
class Constant:
    """The constant prediction of a task that predicts labels.

    Attributes:
        mean: of the training labels: for task binary, the rate of label 1.
        frequencies: for task classification: how many training examples each class has, plus one, so that a class
            that training lacks has a probability; float64 [C].
    """

    task: Task
    mean: float
    deviation: float
    frequencies: np.ndarray | None = None

    def metrics(
        self,
        labels: np.ndarray,
        rows: np.ndarray,
        listed: Collection[str] = (),
        weights: np.ndarray | None = None,
    ) -> dict[str, float]:
        """The task's metrics on a split, in bounded memory.

        Args:
            labels: of all examples, float32 [N], which may be memory-mapped.
            rows: int64 [n], those of the split, at least one.
            listed: keys of further metrics.
            weights: of all examples, float32 [N].
        """
        split = _Split(self, labels, rows, weights)
        found = metric_specs.computed(self.task, "constant", split, listed=listed)
        if self.task.labels is Labels.NUMBER:
            return found
        # A label and the prediction are all that counts: an example of each label, weighted by how many there are.
        counts = split.counts.astype(np.float64)
        logits = (
            np.full(2, _logit(self.mean))
            if self.frequencies is None
            else np.tile(np.log(split.frequencies), (len(counts), 1))
        )
        every = metric_specs.computed(self.task, "value", np.arange(len(counts)), logits, counts, listed=listed)
        return found | {name: value for name, value in every.items() if name not in found}


@dataclass
class _Split:
    """The examples of a split and their constant prediction. Sums for the metrics are computed once, piece by piece."""

    constant: Constant
    labels: np.ndarray
    rows: np.ndarray
    weights: np.ndarray | None = None

    @cached_property
    def total(self) -> float:
        """The number of examples, or the sum of their weights."""
        if self.weights is None:
            return len(self.rows)
        return sum(float(own.sum()) for own in _some(self.weights, self.rows))

    def mean(self, of: Callable[[np.ndarray], np.ndarray]) -> float:
        """The mean of a function of the labels."""
        return self.sum(of) / self.total

    def sum(self, of: Callable[[np.ndarray], np.ndarray]) -> float:
        """The sum, weighted if there are weights."""
        if self.weights is None:
            return sum(float(of(some).sum()) for some in _some(self.labels, self.rows))
        both = zip(_some(self.labels, self.rows), _some(self.weights, self.rows), strict=True)
        return sum(float(np.sum(of(some) * own)) for some, own in both)

    @cached_property
    def positives(self) -> float:
        """Share of the labels that are 1."""
        return self.mean(lambda some: some)

    @cached_property
    def frequencies(self) -> np.ndarray:
        """The class frequencies of the constant prediction."""
        assert self.constant.frequencies is not None
        return self.constant.frequencies

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of examples of each class, or the sums of their weights."""
        classes = 2 if self.constant.frequencies is None else len(self.frequencies)
        return _counts(self.labels, self.rows, classes, self.weights)


def squared_error(split: _Split) -> float:
    """Of the mean."""
    return split.mean(lambda some: np.square(some - split.constant.mean))


def rmse(split: _Split) -> float:
    """Of the mean."""
    return math.sqrt(squared_error(split))


def mae(split: _Split) -> float:
    """Of the mean."""
    return split.mean(lambda some: np.abs(some - split.constant.mean))


def r2(split: _Split) -> float | None:
    """Of the mean of the training labels, which is not that of the split."""
    own = split.mean(lambda some: some)
    variance = split.mean(lambda some: np.square(some - own))
    return None if variance == 0 else 1 - squared_error(split) / variance


def mape(split: _Split) -> float:
    """Of the mean."""
    least = np.finfo(np.float64).eps
    return split.mean(lambda some: np.abs(some - split.constant.mean) / np.maximum(np.abs(some), least))


def log_loss(split: _Split) -> float:
    """Of the rate of label 1."""
    rate = _rate(split.constant.mean)
    return -split.positives * math.log(rate) - (1 - split.positives) * math.log1p(-rate)


def auc(split: _Split) -> float | None:
    """Of equal scores."""
    return 0.5 if 0 < split.positives < 1 else None


def accuracy(split: _Split) -> float:
    """Of the most frequent class."""
    return float(split.counts[np.argmax(split.frequencies)] / split.total)


def softmax_log_loss(split: _Split) -> float:
    """Of the classes' frequencies."""
    surprise = np.log(split.frequencies.sum()) - np.log(split.frequencies)
    return float(split.counts @ surprise / split.total)


def macro_f1(split: _Split) -> float:
    """Of the most frequent class. The counts stand for the labels: F1 depends on nothing else."""
    counts, common = split.counts, int(np.argmax(split.frequencies))
    own = 2 * counts[common] / (counts[common] + split.total)
    return float(own / (np.count_nonzero(counts) + (counts[common] == 0)))


def _rate(mean: float) -> float:
    return min(max(mean, _LEAST_RATE), 1 - _LEAST_RATE)


def _logit(mean: float) -> float:
    return math.log(_rate(mean)) - math.log1p(-_rate(mean))


def fitted(
    task: Task, labels: np.ndarray, rows: np.ndarray, *, classes: int = 0, weights: np.ndarray | None = None
) -> Constant:
    """The constant prediction that fits some examples best, in bounded memory.

    Args:
        task: with labels.
        labels: of all examples, float32 [N], which may be memory-mapped.
        rows: int64 [n], those of the training split, at least one.
        classes: how many there are, for task classification.
        weights: of all examples, float32 [N].
    """
    split = _Split(Constant(task, 0.0, 0.0), labels, rows, weights)
    mean = split.mean(lambda some: some)
    square = split.mean(lambda some: np.square(some - mean))
    frequencies = _counts(labels, rows, classes, weights) + 1.0 if task.labels is Labels.CLASS else None
    return Constant(task, mean, math.sqrt(square), frequencies)


def _some(labels: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _EXAMPLES_AT_ONCE):
        yield labels[rows[start : start + _EXAMPLES_AT_ONCE]].astype(np.float64)


def _counts(labels: np.ndarray, rows: np.ndarray, classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    if weights is not None:
        sums = np.zeros(classes)
        for some, own in zip(_some(labels, rows), _some(weights, rows), strict=True):
            sums += np.bincount(some.astype(np.int64), own, minlength=classes)
        return sums
    counts = np.zeros(classes, np.int64)
    for some in _some(labels, rows):
        counts += np.bincount(some.astype(np.int64), minlength=classes)
    return counts


def _gains_of_regression(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    share = removed(found, constant, "rmse")
    return [None if share is None else 1 - (1 - share) ** 2]


def _gains_of_binary(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    share = removed(found, constant, "log_loss")
    return [share, LEAST_GAIN if (share or 0) > 0 and found.get("auc", 0) >= _USEFUL_AUC else None]


def _gains_of_classification(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    return [removed(found, constant, "log_loss"), approached(found, constant, "accuracy")]


OF_REGRESSION = Reference("the mean of the training labels", ("rmse",), _gains_of_regression)
OF_BINARY = Reference("the rate of label 1 in the training split", ("log_loss", "auc"), _gains_of_binary)
OF_CLASSIFICATION = Reference("the most frequent class", ("accuracy", "log_loss"), _gains_of_classification)


FORMAT = 2
"""Version of what is fitted, raised when that changes."""
MOST_ROWS = 500_000
MOST_CELLS = 3_000_000
"""Values of all examples that are fitted to, times the classes: an iteration takes some 40 ms."""
_FEWEST_ROWS = 100
"""The least number of examples to fit to, unless the training split has fewer."""
MOST_PREDICTED, MOST_PRODUCTS = 20_000_000, 1_000_000_000
"""Values of all examples that are predicted; and times the classes. A million values take some 0.1 s."""
MOST_HELD_OUT = 50_000
MOST_VALUES = 300_000
"""Values with a weight, times the classes: the most frequent ones. L-BFGS keeps some 20 vectors of this length."""
_LEAST_ITERATIONS, _MOST_ITERATIONS = 50, 500
PENALTIES = (100.0, 10.0, 1.0)
"""Penalties of logistic regression, scikit-learn's 1 / C."""
RIDGE_PENALTIES = (50.0, 5.0, 0.5)
"""The same of ridge regression: 5 shrinks the bias of a value as if it had five more average labels."""
_READ, _PATH = 0.2, 0.5
"""Approximate shares of the work: reading the examples, and fitting. The rest is prediction."""
_ROWS_AT_ONCE = 65_536


def evaluated(
    examples: Examples, columns: Columns, others: Mapping[str, np.ndarray], *, classes: int = 0
) -> dict[str, np.ndarray]:
    """The examples of other splits that are predicted, int64 by split: all, unless they have too many values."""
    most = min(MOST_PREDICTED, MOST_PRODUCTS // max(1, classes)) // max(1, len(others))
    return {split: _thinned(examples, columns, rows, most) for split, rows in others.items()}


def name_of(task: Task, columns: Columns, examples: Examples) -> str | None:
    """The name of the simple model of a task, a key of `baseline.FITTED`; None: it has none."""
    if task.has_classes:
        return "logistic_regression"
    if task.labels is None:
        return None
    only_ids = not examples.lists and not examples.dense.shape[1] and not columns.buckets
    return "bias_only" if only_ids else "linear_regression"


def predictions(
    task: Task,
    columns: Columns,
    examples: Examples,
    train: np.ndarray,
    others: Mapping[str, np.ndarray],
    *,
    classes: int = 0,
    weights: np.ndarray | None = None,
    progress: Callable[[float], object] = lambda done: None,
) -> tuple[dict[str, np.ndarray], Fit] | None:
    """Fits the simple model of a task to its training split, and predicts other splits, in one thread.

    Args:
        columns: what the run reads.
        train: int64 [n], the examples to fit to.
        others: by split, int64 [N], the examples to predict.
        classes: how many there are, for task classification.
        weights: of all examples, [count], how much each counts; None: equally.
        progress: called with the share that is done, 0 to 1.

    Returns:
        By split the logits, or predicted labels, float32 [N]; those of C classes [N, C]. None: all training labels are
        of one class.

    Raises:
        ValueError: an example has so many values, or there are so many classes, that the bound leaves too few.
    """
    from threadpoolctl import threadpool_limits

    started = time.perf_counter()
    assert examples.labels is not None  # the tasks that have a simple model have some
    outputs = classes if task.labels is Labels.CLASS else 1
    rows = _sample(examples, columns, train, outputs)
    rows, held = _held_out(rows, others.get("validation"))
    held = _thinned(examples, columns, held, MOST_CELLS // outputs)
    labels, of_held = (examples.labels[some].astype(np.float64) for some in (rows, held))
    if task.has_classes and (labels == labels[0]).all():
        return None
    some = None if weights is None else np.asarray(weights[rows], np.float64)
    best, least = None, np.inf
    with threadpool_limits(1):  # sums in one order, so that the bits stay
        inputs = _Inputs.of(examples, columns, rows, MOST_VALUES // outputs)
        matrix, matrix_held = inputs.matrix(rows), inputs.matrix(held)
        progress(_READ)
        path = _ridge(matrix, labels, some) if task.labels is Labels.NUMBER else _logistic(matrix, labels, some)
        for place, fitted in enumerate(path, 1):
            progress(_READ + place * _PATH / len(PENALTIES))
            linear = fitted.with_all(classes, len(rows)) if task.labels is Labels.CLASS else fitted
            loss = _loss(task, of_held, linear.outputs(matrix_held))
            if loss >= least:
                break
            best, least = linear, loss
        if best is None:
            return None
        progress(_READ + _PATH)
        found = {split: best.predicted(inputs, chosen) for split, chosen in others.items()}
    seconds = time.perf_counter() - started
    return found, Fit(len(rows), len(train), inputs.values, best.penalty, best.converged, seconds)


def _cells(examples: Examples, columns: Columns, rows: np.ndarray) -> int:
    """The number of values in some examples."""
    scalar = sum(name not in examples.lists for name in columns.id_columns) + examples.dense.shape[1]
    several = sum(int((column.splits[rows + 1] - column.splits[rows]).sum()) for column in examples.lists.values())
    return int(scalar * len(rows) + several)


def _thinned(examples: Examples, columns: Columns, rows: np.ndarray, most: int) -> np.ndarray:
    """Evenly spread examples that have at most so many values in all; at least one example."""
    step = max(1, -(-_cells(examples, columns, rows) // most))
    while step < len(rows) and _cells(examples, columns, rows[::step]) > most:
        step += 1
    return np.asarray(rows[::step])


def _held_out(rows: np.ndarray, validation: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The examples to fit to, and those that choose the penalty: the validation split, or a tenth without one."""
    if validation is not None:
        return rows, np.asarray(validation[:: -(-len(validation) // MOST_HELD_OUT)])
    chosen = np.zeros(len(rows), bool)
    chosen[np.random.default_rng(1).permutation(len(rows))[: max(1, len(rows) // 10)]] = len(rows) > 1
    return rows[~chosen], rows[chosen] if chosen.any() else rows


def _loss(task: Task, labels: np.ndarray, outputs: np.ndarray) -> float:
    match task.labels:
        case Labels.NUMBER:
            return metrics.squared_error(labels, outputs)
        case Labels.BINARY:
            return metrics.log_loss(labels, outputs)
        case _:
            return metrics.softmax_log_loss(labels.astype(np.int64), outputs)


def _sample(examples: Examples, columns: Columns, train: np.ndarray, outputs: int) -> np.ndarray:
    """The training examples to fit to, int64, rising."""
    most, chosen = MOST_CELLS // outputs, np.asarray(train)
    if len(train) > MOST_ROWS:
        chosen = _drawn(train, MOST_ROWS)
    while (cells := _cells(examples, columns, chosen)) > most and len(chosen) > _FEWEST_ROWS:
        chosen = _drawn(train, max(_FEWEST_ROWS, min(len(chosen) - 1, len(chosen) * most // cells)))
    if cells > most:
        rule = f"{cells:,} values of {len(chosen):,} examples times {outputs:,} classes are more than {MOST_CELLS:,}"
        raise ValueError(f"it would take too long: {rule}")
    return chosen


def _drawn(rows: np.ndarray, count: int) -> np.ndarray:
    """Draws so many of some examples at random, in order."""
    chosen = np.random.default_rng(0).choice(len(rows), count, replace=False, shuffle=False)
    return np.asarray(rows[np.sort(chosen)])


@dataclass(frozen=True)
class _Inputs:
    """Turns examples into a sparse matrix.

    Attributes:
        kept: the values that have a place, by column of ids, int64, rising.
        mean: means of the numbers, float64 [D].
        scale: standard deviations of the numbers, or 1.
    """

    examples: Examples
    weights: Mapping[str, str]
    kept: Mapping[str, np.ndarray]
    mean: np.ndarray
    scale: np.ndarray

    @staticmethod
    def of(examples: Examples, columns: Columns, rows: np.ndarray, most: int) -> _Inputs:
        """The inputs of some examples, with at most so many of the most frequent values."""
        names = columns.id_columns
        counted = [np.unique(_ids(examples, name, rows)[0], return_counts=True) for name in names]
        counts = np.concatenate([each for _, each in counted]) if counted else np.empty(0, np.int64)
        chosen = np.ones(len(counts), bool)
        if len(counts) > most:
            chosen[:] = False
            chosen[np.argsort(-counts, kind="stable")[:most]] = True
        ends = np.cumsum([len(each) for _, each in counted])
        parts = np.split(chosen, ends[:-1]) if counted else []
        kept = {name: values[part] for name, (values, _), part in zip(names, counted, parts, strict=True)}
        numbers = examples.dense[rows].astype(np.float64)
        scale = numbers.std(axis=0)
        weighed = {column: name for name, column in columns.weights.items()}
        return _Inputs(examples, weighed, kept, numbers.mean(axis=0), np.where(scale > 0, scale, 1.0))

    @property
    def values(self) -> int:
        """The number of values that have a place."""
        return sum(map(len, self.kept.values()))

    def matrix(self, rows: np.ndarray) -> Any:
        """The matrix, float64 [n, values + D], a `scipy.sparse.csr_array`."""
        from scipy import sparse

        blocks = []
        for name, kept in self.kept.items():
            ids, starts, places = _ids(self.examples, name, rows)
            amounts = np.ones(len(ids))
            if (weight := self.weights.get(name)) is not None:
                amounts = self.examples.weights[weight][places].astype(np.float64)
            found = np.minimum(np.searchsorted(kept, ids), max(0, len(kept) - 1))
            known = kept[found] == ids if len(kept) else np.zeros(len(ids), bool)
            ends = np.concatenate([[0], np.cumsum(known)])[starts]
            block = sparse.csr_array((amounts[known], found[known], ends), shape=(len(rows), len(kept)))
            block.sum_duplicates()  # a text may have the same word twice
            blocks.append(block)
        numbers = (self.examples.dense[rows] - self.mean) / self.scale
        if numbers.shape[1] or not blocks:
            blocks.append(sparse.csr_array(numbers))
        return sparse.hstack(blocks, format="csr")


def _ids(examples: Examples, name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids of a column.

    Returns:
        The ids, int64 [n], their row splits [len(rows) + 1], and their places in the column, [n].
    """
    if name not in examples.lists:
        return examples.column(name, rows), np.arange(len(rows) + 1), rows
    column = examples.lists[name]
    places, ends = column.taken(rows)
    return column.values[places].astype(np.int64), ends, places


@dataclass(frozen=True)
class _Linear:
    """A linear model.

    Attributes:
        weights: weights, float64 [outputs, F].
        bias: biases, float64 [outputs].
        labels: for logistic regression, the class of each output, rising.
    """

    weights: np.ndarray
    bias: np.ndarray
    penalty: float
    converged: bool
    labels: Sequence[int] = ()
    finish: Callable[[np.ndarray], np.ndarray] = lambda found: found[:, 0]

    def outputs(self, matrix: Any) -> np.ndarray:
        """The outputs, float64 [n] or [n, C]."""
        return self.finish(np.asarray(matrix @ self.weights.T) + self.bias)

    def predicted(self, inputs: _Inputs, rows: np.ndarray) -> np.ndarray:
        """The outputs, float32 [N] or [N, C], computed in bounded memory."""
        starts = range(0, len(rows), _ROWS_AT_ONCE)
        found = [self.outputs(inputs.matrix(rows[start : start + _ROWS_AT_ONCE])) for start in starts]
        return np.concatenate(found).astype(np.float32)

    def with_all(self, classes: int, examples: int) -> _Linear:
        """Adds a logit for each class without examples, with the probability of one example among all of them."""

        def finish(found: np.ndarray) -> np.ndarray:
            if found.shape[1] == 1:  # with two classes, the logit of the second
                found = np.concatenate([np.zeros_like(found), found], axis=1)
            largest = found.max(axis=1, keepdims=True)
            rare = largest + np.log(np.exp(found - largest).sum(axis=1, keepdims=True) / (examples + 1))
            logits = np.repeat(rare, classes, axis=1)
            logits[:, list(self.labels)] = found
            return logits

        return replace(self, finish=finish)


def _iterations(cells: int) -> int:
    """As many iterations as take the time of `_LEAST_ITERATIONS` over `MOST_CELLS`."""
    return min(_MOST_ITERATIONS, max(_LEAST_ITERATIONS, _LEAST_ITERATIONS * MOST_CELLS // max(1, cells)))


def _logistic(matrix: Any, labels: np.ndarray, weights: np.ndarray | None) -> Iterator[_Linear]:
    """Logistic regression for each penalty, starting from the weights of the one before."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    outputs = len(np.unique(labels))
    most = _iterations(matrix.nnz * (outputs if outputs > 2 else 1))
    model = LogisticRegression(max_iter=most, warm_start=True)
    for penalty in PENALTIES:
        model.set_params(C=1 / penalty)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # `Fit.converged` tells this
            model.fit(matrix, labels.astype(np.int64), sample_weight=weights)
        converged = bool((model.n_iter_ < most).all())
        yield _Linear(model.coef_.copy(), model.intercept_.copy(), penalty, converged, model.classes_.tolist())


def _ridge(matrix: Any, labels: np.ndarray, weights: np.ndarray | None) -> Iterator[_Linear]:
    """Ridge regression by conjugate gradients."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Ridge

    for penalty in RIDGE_PENALTIES:
        model = Ridge(alpha=penalty, solver="sparse_cg", max_iter=_iterations(matrix.nnz), tol=1e-6)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            model.fit(matrix, labels, sample_weight=weights)
        yield _Linear(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_), penalty, not caught)
