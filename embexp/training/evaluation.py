"""Predictions for a whole split, and their metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from embexp.specs.models import Task
from embexp.training import metrics, ranking
from embexp.training.ranking import Queries


class Predictor(Protocol):
    """Executes forward passes."""

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch its labels, float32 [B], and logits, float32 [B] or [B, C]."""
        ...


def predictions(runtime: Predictor, batches: Iterable[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels float32 [count] and logits float32 [count], or [count, C] for C classes, of the first `count` examples.

    All are in memory at once. Any examples of the last batch beyond `count` are padding and dropped.
    """
    labels, logits = [], []
    for batch_labels, batch_logits in runtime.predict(batches):
        labels.append(batch_labels)
        logits.append(batch_logits)
    return np.concatenate(labels)[:count], np.concatenate(logits)[:count]


def evaluate(
    task: Task, runtime: Predictor, batches: Iterable[Any], count: int, queries: Queries | None = None
) -> dict[str, float]:
    """Metrics of a task over the first `count` examples; task ranking needs what is known of its `queries`."""
    if queries is not None:
        return ranking.evaluate(runtime.predict(batches), queries)
    return metrics.evaluate(task, *predictions(runtime, batches, count))
