"""Predictions for a whole split, and their metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from embexp.specs.models import Task
from embexp.training import metrics, ranking
from embexp.training.ranking import Queries
from embexp.training.runtime import Runtime


def predictions(runtime: Runtime, batches: Iterable[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits of the first `count` examples, float32 [count], the logits of C classes [count, C].

    All are in memory at once. Any examples of the last batch beyond `count` are padding and dropped.
    """
    labels, logits = [], []
    for batch_labels, batch_logits in runtime.predict(batches):
        labels.append(batch_labels)
        logits.append(batch_logits)
    return np.concatenate(labels)[:count], np.concatenate(logits)[:count]


def evaluate(
    task: Task, runtime: Runtime, batches: Iterable[Any], count: int, queries: Queries | None = None
) -> dict[str, float]:
    """Metrics of a task over the first `count` examples; task ranking needs its `queries`."""
    if queries is not None:
        return ranking.evaluate(runtime.predict(batches), queries)
    return metrics.evaluate(task, *predictions(runtime, batches, count))
