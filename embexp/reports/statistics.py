"""Figures over repetitions of a setting: mean, standard deviation, confidence interval, paired test."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
FEW = 3
"""With fewer repetitions than this, intervals and p-values say next to nothing."""
_RESAMPLES = 9_999


@dataclass(frozen=True)
class Estimate:
    """A metric over repetitions.

    Attributes:
        count: of the repetitions that have it.
        mean: of their values.
        std: the standard deviation (n - 1); None for one value.
        low: lower end of the confidence interval of the mean; None for one value.
        high: its upper end.
    """

    count: int
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A setting compared with the reference, over the repetitions that both have.

    Attributes:
        pairs: repetitions that both have.
        difference: mean of the setting's values minus the reference's; None without pairs.
        p: of the paired t-test, two-sided; None with fewer than two pairs.
        adjusted: `p` after Holm's correction for all settings compared.
    """

    pairs: int
    difference: float | None = None
    p: float | None = None
    adjusted: float | None = None


def estimates(samples: Mapping[str, Sequence[float]]) -> dict[str, Estimate]:
    """Means with standard deviations and intervals, by name; a name without values is left out.

    The interval is a percentile bootstrap of the mean (Efron 1979), of always the same resamples.
    """
    found = {}
    by_count: dict[int, list[str]] = {}
    for name, values in samples.items():
        if len(values) > 1 and np.isfinite(values).all():
            by_count.setdefault(len(values), []).append(name)
        elif values:
            found[name] = Estimate(len(values), float(np.mean(values)))
    for count, names in by_count.items():
        table = np.array([samples[name] for name in names], np.float64)
        low, high = _intervals(table)
        for row, name in enumerate(names):
            mean, std = float(np.mean(table[row])), float(np.std(table[row], ddof=1))
            found[name] = Estimate(count, mean, std, float(low[row]), float(high[row]))
    return {name: found[name] for name in samples if name in found}


def compare(values: Sequence[float], reference: Sequence[float]) -> Comparison:
    """The paired t-test of two settings, without the correction.

    A t-test, because with up to five pairs Wilcoxon's signed-rank test can't fall below p = 0.06 whatever the values.

    Args:
        values: of the setting, one for each repetition that both have.
        reference: of the reference, in the same order.
    """
    pairs = len(values)
    differences = np.asarray(values, np.float64) - np.asarray(reference, np.float64)
    if not pairs or not np.isfinite(differences).all():
        return Comparison(pairs)
    if pairs == 1:
        return Comparison(pairs, float(differences[0]))
    if not differences.any():
        return Comparison(pairs, 0.0, 1.0)
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are all alike
        p = float(stats.ttest_rel(values, reference).pvalue)
    return Comparison(pairs, float(differences.mean()), p)


def holm(ps: Sequence[float]) -> list[float]:
    """p-values adjusted for their number by the step-down method of Holm (1979), in the given order."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = largest
    return adjusted


def number(value: object) -> float | None:
    """A value that can be averaged, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else math.nan


def _intervals(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the interval of each row's mean.

    Args:
        values: float64 [rows, repetitions].
    """
    from scipy import stats

    result = stats.bootstrap(
        (values,),
        np.mean,
        axis=-1,
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return np.atleast_1d(result.confidence_interval.low), np.atleast_1d(result.confidence_interval.high)
