"""Whether a difference between two models is more than chance: exact tests, tests of estimates, Holm, power.

All are two-sided. A test without a formula of its own is Student's t of the difference and its standard error; the
error of a bootstrap with B resamples has B - 1 degrees of freedom (Efron & Tibshirani 1993, chapter 15). It needs no
more resamples than an interval does, where the share of resamples beyond 0 could not tell p = 0.001 from 0.

Seeds and examples are two kinds of chance, and their variances are added: that of the mean difference over seeds, and
that of the difference over examples. What both have in common is then counted twice, so the sum is too large rather
than too small (Owen 2007, "The pigeonhole bootstrap"). The degrees of freedom are those of Satterthwaite (1946). A
bootstrap that also draws seeds would make too little of them: of k seeds it finds the share (k - 1) / k of their
variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE, LEVEL = 0.95, 0.05
POWER = 0.8
"""The chance to find a difference that `rows_needed` and `seeds_needed` are for, at `LEVEL`."""
_EXACT = 1_000
"""Number of seeds above which Student's t is practically normal."""


@dataclass(frozen=True)
class Tested:
    """The result of a test.

    Attributes:
        p: how likely so large a difference is where there is none.
        test: its name.
    """

    p: float
    test: str


@dataclass(frozen=True)
class Variance:
    """What is known of the variance of a difference.

    Attributes:
        freedom: degrees of freedom of the estimate.
    """

    value: float
    freedom: float


def mcnemar(before: np.ndarray, after: np.ndarray) -> Tested:
    """McNemar's test of two shares, exact: by the binomial distribution of the rows on which the models differ.

    Args:
        before: bool [N], on which rows the one model is right.
        after: bool [N], on which the other is.
    """
    from scipy import stats

    only = int(np.count_nonzero(after & ~before))
    differing = int(np.count_nonzero(after != before))
    return Tested(float(stats.binomtest(only, differing).pvalue) if differing else 1.0, "McNemar")


def delong(labels: np.ndarray, before: np.ndarray, after: np.ndarray) -> Tested:
    """The test of two AUC of DeLong, DeLong & Clarke-Pearson (1988), in O(N log N) by midranks (Sun & Xu 2014).

    Args:
        labels: 0 or 1, [N], both of them.
        before: scores of the one model, [N].
        after: scores of the other.
    """
    from scipy import stats

    difference, variance = 0.0, 0.0
    for first, second in zip(_placements(labels, before), _placements(labels, after), strict=True):
        parts = second - first
        difference = float(parts.mean())  # the same for both classes, except for the sign
        variance += float(parts.var(ddof=1)) / len(parts) if len(parts) > 1 else 0.0
    if variance == 0:
        return Tested(float(difference == 0), "DeLong")
    return Tested(float(2 * stats.norm.sf(abs(difference) / math.sqrt(variance))), "DeLong")


def _placements(labels: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
    """For rows of label 1 and of label 0, the share of the other class below each, float64. A tie counts half."""
    from scipy import stats

    ranks, ones = stats.rankdata(scores), labels > 0
    return [(ranks[own] - stats.rankdata(scores[own])) / np.count_nonzero(~own) for own in (ones, ~ones)]


def t_test(difference: float, variances: Sequence[Variance], test: str) -> tuple[Tested, float]:
    """Student's t of a difference with independent kinds of chance; see the module.

    Returns:
        The test, and half the width of the interval of `CONFIDENCE`.
    """
    from scipy import stats

    total = sum(each.value for each in variances)
    if not total > 0:
        return Tested(float(difference == 0), test), 0.0
    freedom = total**2 / sum(each.value**2 / each.freedom for each in variances)
    error = math.sqrt(total)
    p = float(2 * stats.t.sf(abs(difference) / error, freedom))
    return Tested(p, test), float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error


def holm(ps: Sequence[float]) -> list[float]:
    """p-values adjusted for their number by the step-down method of Holm (1979), in the given order."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = largest
    return adjusted


def rows_needed(difference: float, error: float, rows: int) -> int | None:
    """How many rows a test needs to find a difference with the chance `POWER`; None: there is no difference.

    Args:
        error: the standard error of the difference of so many rows; it falls with the root of their number.
    """
    return math.ceil(rows * (_normal_sum() * error / difference) ** 2) if difference else None


def seeds_needed(difference: float, deviation: float) -> int | None:
    """How many pairs of seeds a paired t-test needs, at least 2; None: there is no difference.

    Args:
        deviation: the standard deviation of the difference from seed to seed.
    """
    if not difference:
        return None
    size = abs(difference) / deviation if deviation else math.inf
    count = max(2, math.ceil((_normal_sum() / size) ** 2))  # which the t-test exceeds, but not by many
    while count < _EXACT and _power(size, count) < POWER:
        count += 1
    return count


def _normal_sum() -> float:
    from scipy import stats

    return float(stats.norm.ppf((1 + CONFIDENCE) / 2) + stats.norm.ppf(POWER))


def _power(size: float, pairs: int) -> float:
    """The power of a paired t-test, by the noncentral t distribution.

    Args:
        size: difference in standard deviations.
    """
    from scipy import stats

    if size > 100:  # here the distribution can't be computed, and the test misses nothing
        return 1.0
    limit, shift = stats.t.ppf((1 + CONFIDENCE) / 2, pairs - 1), size * math.sqrt(pairs)
    return float(stats.nct.sf(limit, pairs - 1, shift) + stats.nct.cdf(-limit, pairs - 1, shift))
