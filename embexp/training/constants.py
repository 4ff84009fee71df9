"""The best constant prediction of a task, fitted to the training split: what a model that has learned must beat.

| task | prediction for every example | metrics |
|---|---|---|
| rating | the mean | RMSE, MAE, loss |
| click | the click rate | log loss, AUC 0.5 |
| classification | the classes' frequencies; the most frequent one | log loss; accuracy, macro F1 |
| ranking | an order of the candidates at random | the expectations of MRR, Hits@k and mean rank |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from embexp.specs.models import Task
from embexp.training.metric_names import HITS

_EXAMPLES_AT_ONCE = 1 << 20
_LEAST_RATE = 1e-6
"""A click rate of 0 or 1 in the training split would make the log loss of any other infinite."""


@dataclass(frozen=True)
class Constant:
    """The constant prediction of a task that predicts labels.

    Attributes:
        task: of the run.
        mean: of the training labels: for task click, the click rate.
        deviation: their standard deviation.
        frequencies: for task classification: how many training examples each class has, plus one, so that a class
            that training lacks has a probability; float64 [C].
    """

    task: Task
    mean: float
    deviation: float
    frequencies: np.ndarray | None = None

    def metrics(self, labels: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        """The task's metrics on a split, in bounded memory.

        Args:
            labels: of all examples, float32 [N], which may be memory-mapped.
            rows: int64 [n], those of the split, at least one.
        """
        match self.task:
            case Task.RATING:
                return self._rating(labels, rows)
            case Task.CLICK:
                return self._click(labels, rows)
            case Task.CLASSIFICATION:
                return self._classification(labels, rows)
            case Task.RANKING | Task.RECOMMENDATION:
                raise ValueError("a ranking has no constant prediction: use `at_random`")
            case _:
                assert_never(self.task)

    def _rating(self, labels: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        squares = absolutes = 0.0
        for some in _some(labels, rows):
            squares += float(np.square(some - self.mean).sum())
            absolutes += float(np.abs(some - self.mean).sum())
        loss = squares / len(rows)
        return {"rmse": math.sqrt(loss), "mae": absolutes / len(rows), "loss": loss}

    def _click(self, labels: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        rate = min(max(self.mean, _LEAST_RATE), 1 - _LEAST_RATE)
        clicked = sum(float(some.sum()) for some in _some(labels, rows)) / len(rows)
        loss = -clicked * math.log(rate) - (1 - clicked) * math.log1p(-rate)
        ranking = {"auc": 0.5} if 0 < clicked < 1 else {}
        return {"log_loss": loss, **ranking, "loss": loss}

    def _classification(self, labels: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        assert self.frequencies is not None
        counts = _counts(labels, rows, len(self.frequencies))
        surprise = np.log(self.frequencies.sum()) - np.log(self.frequencies)
        loss = float(counts @ surprise / len(rows))
        common = int(np.argmax(self.frequencies))
        # The counts stand for the labels: F1 depends on nothing else if all predictions are alike.
        own = 2 * counts[common] / (counts[common] + len(rows))
        classes = np.count_nonzero(counts) + (counts[common] == 0)
        return {
            "accuracy": float(counts[common] / len(rows)),
            "log_loss": loss,
            "macro_f1": float(own / classes),
            "loss": loss,
        }


def fitted(task: Task, labels: np.ndarray, rows: np.ndarray, *, classes: int = 0) -> Constant:
    """The constant prediction that fits some examples best, in bounded memory.

    Args:
        task: other than ranking.
        labels: of all examples, float32 [N], which may be memory-mapped.
        rows: int64 [n], those of the training split, at least one.
        classes: how many there are, for task classification.
    """
    mean = sum(float(some.sum()) for some in _some(labels, rows)) / len(rows)
    square = sum(float(np.square(some - mean).sum()) for some in _some(labels, rows)) / len(rows)
    frequencies = _counts(labels, rows, classes) + 1.0 if task is Task.CLASSIFICATION else None
    return Constant(task, mean, math.sqrt(square), frequencies)


def at_random(choices: np.ndarray, predict_head: np.ndarray) -> dict[str, float]:
    """Expected metrics of queries whose candidates are put in an order at random.

    A rank is uniform on 1 to n: the mean of 1 / rank is the n-th harmonic number divided by n.

    Args:
        choices: integers [N], the candidates n of each query that are ranked: without other known answers.
        predict_head: bool [N]: True for head prediction, False for tail prediction.
    """
    harmonic = np.cumsum(1.0 / np.arange(1, int(choices.max()) + 1))
    reciprocal = harmonic[choices - 1] / choices
    directions = {"mrr_tails": reciprocal[~predict_head], "mrr_heads": reciprocal[predict_head]}
    return {
        "mrr": float(reciprocal.mean()),
        **{f"hits_at_{k}": float(np.mean(np.minimum(k, choices) / choices)) for k in HITS},
        "mean_rank": float(np.mean((choices + 1) / 2)),
        **{name: float(own.mean()) for name, own in directions.items() if len(own)},
    }


def _some(labels: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _EXAMPLES_AT_ONCE):
        yield labels[rows[start : start + _EXAMPLES_AT_ONCE]].astype(np.float64)


def _counts(labels: np.ndarray, rows: np.ndarray, classes: int) -> np.ndarray:
    counts = np.zeros(classes, np.int64)
    for some in _some(labels, rows):
        counts += np.bincount(some.astype(np.int64), minlength=classes)
    return counts
