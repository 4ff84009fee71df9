"""The values of `sweep.objective` in the outcomes of jobs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from embexp.sweeps.outcomes import Outcome
from embexp.training.metric_names import Objective


def values(objectives: Sequence[Objective], outcomes: Sequence[Outcome]) -> list[float]:
    """The value of each objective for one setting.

    Args:
        objectives: what a search makes better.
        outcomes: of the setting, one for each seed.

    Returns:
        Means over the outcomes; NaN where one of them has no such metric.
    """
    found = []
    for each in objectives:
        measured = [outcome.metrics.get(f"validation {each.metric}", math.nan) for outcome in outcomes]
        found.append(statistics.fmean(measured) if measured else math.nan)
    return found
