"""`sweep.objective`: the values that a search optimizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from embexp.specs.models import Task
from embexp.specs.sweeping import Metric
from embexp.sweeps.outcomes import Outcome
from embexp.training import metrics


def names(objective: Metric | Sequence[Metric] | None, task: Task) -> list[str]:
    """The metrics of an objective as outcomes name them, such as "validation rmse".

    Args:
        objective: `validation auc`, `validation.auc`, or `auc` for the validation split; null: the task's first metric.
        task: of the runs.
    """
    if objective is None:
        objective = metrics.watched(task, None)
    given = [objective] if isinstance(objective, str) else objective
    return [each if " " in each else f"validation {each}" for each in (each.replace(".", " ") for each in given)]


def values(outcomes: Sequence[Outcome], wanted: Sequence[str]) -> list[float]:
    """Each metric's mean over the outcomes of one setting with several seeds; NaN if one of them has no such metric."""
    return [_mean([each.metrics.get(name, math.nan) for each in outcomes]) for name in wanted]


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else math.nan
