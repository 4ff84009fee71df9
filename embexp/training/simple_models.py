"""What a simple model predicts: logistic regression for classes, ridge regression for numbers, fitted by scikit-learn.

It gets the same columns as the run: an indicator of each value of a column of ids, how often each value is in a list,
and numbers, standardised. For texts these are counts of words; for ratings of users and items, whose only columns are
two ids, ridge regression is a mean with a bias for each user and each item (Koren 2009, "The BellKor solution", 2.1).

The work is bounded by how many numbers it reads, not by a clock, so that the same data gives the same predictions.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.specs.models import Task

FORMAT = 1
"""Version of what is fitted, raised when that changes."""
MOST_ROWS = 500_000
MOST_CELLS = 5_000_000
"""Values of all examples that are fitted to, times the classes: up to 100 iterations of some 30 ms."""
MOST_VALUES = 300_000
"""Values with a weight, times the classes: the most frequent ones. L-BFGS keeps some 20 vectors of this length."""
_ITERATIONS = 100
_RIDGE = 5.0
"""Strength of the penalty of ridge regression: it shrinks the bias of a value as if it had five more average labels."""
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Fit:
    """How a simple model was fitted.

    Attributes:
        examples: of the training split that it was fitted to, drawn at random where these are not all.
        of: examples in the training split.
        values: values of columns of ids that have a weight.
        converged: whether the iterations ended by themselves.
        seconds: that it took, with its predictions.
    """

    examples: int
    of: int
    values: int
    converged: bool
    seconds: float


def name_of(task: Task, columns: Columns, examples: Examples) -> str | None:
    """The name of the simple model of a task, a key of `baseline.FITTED`; None: it has none."""
    match task:
        case Task.BINARY | Task.CLASSIFICATION:
            return "logistic_regression"
        case Task.REGRESSION:
            only_ids = not examples.lists and not examples.dense.shape[1] and not columns.buckets
            return "bias_only" if only_ids else "linear_regression"
        case Task.RANKING | Task.RECOMMENDATION:
            return None


def predictions(
    task: Task,
    columns: Columns,
    examples: Examples,
    train: np.ndarray,
    others: Mapping[str, np.ndarray],
    *,
    classes: int = 0,
    weights: np.ndarray | None = None,
) -> tuple[dict[str, np.ndarray], Fit] | None:
    """Fits the simple model of a task to its training split, and predicts other splits, in one thread.

    Args:
        columns: what the run reads.
        train: int64 [n], the examples to fit to.
        others: by split, int64 [N], the examples to predict.
        classes: how many there are, for task classification.
        weights: of all examples, [count], how much each counts; None: equally.

    Returns:
        By split the logits, or predicted labels, float32 [N]; those of C classes [N, C]. None: all training labels are
        of one class.
    """
    from threadpoolctl import threadpool_limits

    started = time.perf_counter()
    assert examples.labels is not None  # the tasks that have a simple model have some
    outputs = classes if task is Task.CLASSIFICATION else 1
    rows = _sample(examples, columns, train, outputs)
    labels = examples.labels[rows].astype(np.float64)
    if task is not Task.REGRESSION and (labels == labels[0]).all():
        return None
    some = None if weights is None else np.asarray(weights[rows], np.float64)
    with threadpool_limits(1):  # sums in one order, so that the bits stay
        inputs = _Inputs.of(examples, columns, rows, MOST_VALUES // outputs)
        matrix = inputs.matrix(rows)
        linear, converged = _ridge(matrix, labels, some) if task is Task.REGRESSION else _logistic(matrix, labels, some)
        if task is Task.CLASSIFICATION:
            linear = linear.with_all(classes, len(rows))
        found = {split: linear.predicted(inputs, chosen) for split, chosen in others.items()}
    seconds = time.perf_counter() - started
    return found, Fit(len(rows), len(train), inputs.values, converged, seconds)


def _sample(examples: Examples, columns: Columns, train: np.ndarray, outputs: int) -> np.ndarray:
    """int64, rising: the training examples that are fitted to."""
    scalar = sum(name not in examples.lists for name in columns.id_columns)
    listed = sum(len(column.values) for column in examples.lists.values()) / max(1, examples.count)
    cells = max(1.0, scalar + listed + examples.dense.shape[1])
    count = min(len(train), MOST_ROWS, max(1_000, int(MOST_CELLS / (cells * outputs))))
    if count == len(train):
        return np.asarray(train)
    chosen = np.random.default_rng(0).choice(len(train), count, replace=False, shuffle=False)
    return np.asarray(train[np.sort(chosen)])


@dataclass(frozen=True)
class _Inputs:
    """From examples to a sparse matrix.

    Attributes:
        kept: by column of ids, int64, rising: the values that have a place.
        mean: of the numbers, float64 [D].
        scale: their standard deviations, or 1.
    """

    examples: Examples
    weights: Mapping[str, str]
    kept: Mapping[str, np.ndarray]
    mean: np.ndarray
    scale: np.ndarray

    @staticmethod
    def of(examples: Examples, columns: Columns, rows: np.ndarray, most: int) -> _Inputs:
        """Those that some examples have, at most so many of the most frequent values."""
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
        """How many values have a place."""
        return sum(map(len, self.kept.values()))

    def matrix(self, rows: np.ndarray) -> Any:
        """float64 [n, values + D], a `scipy.sparse.csr_array`."""
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
            block.sum_duplicates()  # the same word twice
            blocks.append(block)
        numbers = (self.examples.dense[rows] - self.mean) / self.scale
        if numbers.shape[1] or not blocks:
            blocks.append(sparse.csr_array(numbers))
        return sparse.hstack(blocks, format="csr")


def _ids(examples: Examples, name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids of a column.

    Returns:
        int64 [n]; the row splits [len(rows) + 1] of these; and where they are in the column, [n].
    """
    if name not in examples.lists:
        return examples.column(name, rows), np.arange(len(rows) + 1), rows
    column = examples.lists[name]
    starts = column.splits[rows]
    lengths = column.splits[rows + 1] - starts
    ends = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(ends[-1]) - np.repeat(ends[:-1] - starts, lengths)
    return column.values[places].astype(np.int64), ends, places


@dataclass(frozen=True)
class _Linear:
    """The weights of a linear model, float64 [outputs, F] and [outputs]."""

    weights: np.ndarray
    bias: np.ndarray
    labels: Sequence[int] = ()
    """The class of each output, rising."""
    finish: Callable[[np.ndarray], np.ndarray] = lambda found: found[:, 0]

    def predicted(self, inputs: _Inputs, rows: np.ndarray) -> np.ndarray:
        """float32 [N], or [N, C], in bounded memory."""
        found = []
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            block = np.asarray(inputs.matrix(rows[start : start + _ROWS_AT_ONCE]) @ self.weights.T) + self.bias
            found.append(self.finish(block).astype(np.float32))
        return np.concatenate(found)

    def with_all(self, classes: int, examples: int) -> _Linear:
        """The same with a logit for each class; one that the examples lack gets the probability of 1 in all of them."""

        def finish(found: np.ndarray) -> np.ndarray:
            if found.shape[1] == 1:  # of two classes, the second's
                found = np.concatenate([np.zeros_like(found), found], axis=1)
            largest = found.max(axis=1, keepdims=True)
            rare = largest + np.log(np.exp(found - largest).sum(axis=1, keepdims=True) / (examples + 1))
            logits = np.repeat(rare, classes, axis=1)
            logits[:, list(self.labels)] = found
            return logits

        return _Linear(self.weights, self.bias, self.labels, finish)


def _logistic(matrix: Any, labels: np.ndarray, weights: np.ndarray | None) -> tuple[_Linear, bool]:
    """Logistic regression with scikit-learn's own penalty, C = 1."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `Fit.converged` says so
        model.fit(matrix, labels.astype(np.int64), sample_weight=weights)
    converged = bool((model.n_iter_ < _ITERATIONS).all())
    return _Linear(model.coef_, model.intercept_, model.classes_.tolist()), converged


def _ridge(matrix: Any, labels: np.ndarray, weights: np.ndarray | None) -> tuple[_Linear, bool]:
    """Ridge regression, by conjugate gradients."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=_RIDGE, solver="sparse_cg", max_iter=_ITERATIONS, tol=1e-6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(matrix, labels, sample_weight=weights)
    return _Linear(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)), not caught
