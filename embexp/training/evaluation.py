"""Predictions over a whole part of the data, and their metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from embexp.specs.models import Task
from embexp.training import metrics, ranking
from embexp.training.ranking import Questions
from embexp.training.runtime import Runtime


def predictions(runtime: Runtime, batches: Iterable[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits of the first `count` examples, float32 [count], the logits of C classes [count, C].

    That is 4 bytes for each number. What the last batch has beyond them was only filled up.
    """
    labels, logits = [], []
    for some_labels, some_logits in runtime.predict(batches):
        labels.append(some_labels)
        logits.append(some_logits)
    return np.concatenate(labels)[:count], np.concatenate(logits)[:count]


def evaluate(
    task: Task, runtime: Runtime, batches: Iterable[Any], count: int, questions: Questions | None = None
) -> dict[str, float]:
    """Metrics of a task over the first `count` examples; of a ranking these are `questions`."""
    if questions is not None:
        return ranking.evaluate(runtime.predict(batches), questions)
    return metrics.evaluate(task, *predictions(runtime, batches, count))
