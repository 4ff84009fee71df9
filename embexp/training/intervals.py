"""Intervals of metrics, by the bootstrap.

Examples are drawn again with Poisson(1) counts, which weigh them (Hanley & MacGibbon 2006), users, queries and groups
as a whole. An interval of 95% goes from the 2.5th to the 97.5th percentile of `RESAMPLES` such metrics, and is moved
so that their mean stands at the metric: some, such as a calibration error, are larger in every resample.

Of more than `MOST` examples that many are drawn once without repetition, and deviations shrink by the root of the
share, as the error of a mean does ("m out of n", Bickel, Götze & van Zwet 1997). So the time is bounded by a few
seconds, whatever the number of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

RESAMPLES = 200
MOST = 25_000
_LEVEL = (2.5, 97.5)

Interval = list[float]
Measured = Callable[[np.ndarray, np.ndarray], Mapping[str, float]]
"""From rows, and how often each counts, to metrics."""
Progress = Callable[[float], object]
"""Called with the share of the resamples that is done, 0 to 1."""


def unheard(done: float) -> None:
    """Shows nothing."""


def bootstrap(
    measured: Measured, rows: np.ndarray, count: int, generator: np.random.Generator, progress: Progress = unheard
) -> dict[str, Interval]:
    """Deviations of the metrics of resamples from their mean, at both ends.

    Args:
        rows: those that are drawn again, of `count`.
    """
    samples: dict[str, list[float]] = {}
    for done in range(RESAMPLES):
        progress(done / RESAMPLES)
        for name, value in measured(rows, generator.poisson(1.0, len(rows))).items():
            samples.setdefault(name, []).append(value)
    shrink = np.sqrt(len(rows) / count)
    found = {}
    for name, values in samples.items():
        if len(values) > RESAMPLES // 2:  # it is undefined in resamples of a single class
            low, high = (np.percentile(values, _LEVEL) - np.mean(values)) * shrink
            found[name] = [float(low), float(high)]
    return found


def around(metrics: Mapping[str, float], deviations: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """Intervals around metrics, of those that have both."""
    return {
        name: [metrics[name] + ends[0], metrics[name] + ends[1]] for name, ends in deviations.items() if name in metrics
    }
