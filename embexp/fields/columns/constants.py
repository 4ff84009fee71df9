"""The best constant prediction of labels, and its metrics.

| task | prediction for every example | metrics |
|---|---|---|
| regression | the mean | RMSE, MAE, loss |
| binary | the rate of label 1 | log loss, AUC 0.5 |
| classification | the classes' frequencies; the most frequent one | log loss; accuracy, macro F1 |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

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
