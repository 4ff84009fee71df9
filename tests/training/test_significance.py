"""Tests of differences: against SciPy, the definitions that they are fast forms of, and published numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from embexp.training import intervals, significance
from embexp.training.intervals import Drawn
from embexp.training.significance import Variance, delong, holm, mcnemar, rows_needed, seeds_needed, t_test

SCORES = arrays.arrays(np.float64, (2, 12), elements=st.integers(0, 5).map(float))


def delong_by_definition(labels: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    """p by the kernel of all pairs of a positive and a negative, O(N²): DeLong et al. 1988, equations 4 to 7."""
    parts = []
    for scores in (before, after):
        positives, negatives = scores[labels == 1], scores[labels == 0]
        wins = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
        parts.append((wins.mean(), wins.mean(axis=1), wins.mean(axis=0)))
    (first, tens, ones), (second, other_tens, other_ones) = parts
    covariance = np.cov(tens, other_tens) / len(tens) + np.cov(ones, other_ones) / len(ones)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    return float(2 * stats.norm.sf(abs(second - first) / math.sqrt(variance)))


@pytest.mark.parametrize("levels", [None, 7])
def test_delong_is_its_definition(levels: int | None) -> None:
    """With ties, too."""
    random = np.random.default_rng(0)
    labels, truth = random.integers(0, 2, 300), random.normal(size=300)
    before, after = (labels + truth + random.normal(size=300) * noise for noise in (1.0, 1.3))
    if levels is not None:
        before, after = np.round(before * levels / 5), np.round(after * levels / 5)
    found = delong(labels, before, after)
    assert found.test == "DeLong"
    assert 1e-6 < found.p < 0.9
    assert found.p == pytest.approx(delong_by_definition(labels, before, after), rel=1e-9)


@given(SCORES, arrays.arrays(np.bool_, 12))
def test_delong_is_the_same_both_ways(scores: np.ndarray, labels: np.ndarray) -> None:
    labels = np.concatenate([[True, False], labels[2:]])
    first, second = delong(labels, *scores).p, delong(labels, *scores[::-1]).p
    assert first == pytest.approx(second)
    assert 0 <= first <= 1
    assert delong(labels, scores[0], scores[0]).p == 1


def test_mcnemar_is_exact() -> None:
    """Twelve rows differ, two of them one way: 2 (1 + 12 + 66) / 2^12."""
    before, after = np.zeros(50, bool), np.zeros(50, bool)
    before[:2], after[2:12], before[20:40], after[20:40] = True, True, True, True
    assert mcnemar(before, after).p == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert mcnemar(after, before).p == mcnemar(before, after).p
    assert mcnemar(before, before).p == 1


def test_the_t_test_of_seeds_is_the_paired_one() -> None:
    random = np.random.default_rng(1)
    before, after = random.normal(size=(2, 6))
    difference = after - before
    found, half = t_test(float(difference.mean()), [Variance(difference.var(ddof=1) / 6, 5)], "seeds")
    expected = stats.ttest_rel(after, before)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    ends = (difference.mean() - half, difference.mean() + half)
    assert ends == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    assert t_test(0.0, [Variance(0.0, 5)], "seeds") == (significance.Tested(1.0, "seeds"), 0.0)
    assert t_test(0.1, [Variance(0.0, 5)], "seeds")[0].p == 0


def test_two_kinds_of_chance_are_added_as_by_welch() -> None:
    """The degrees of freedom of Satterthwaite, as of two means with variances of their own."""
    random = np.random.default_rng(2)
    one, other = random.normal(size=7), random.normal(0.5, 3, 12)
    variances = [Variance(each.var(ddof=1) / len(each), len(each) - 1) for each in (one, other)]
    found, _ = t_test(float(one.mean() - other.mean()), variances, "")
    assert found.p == pytest.approx(stats.ttest_ind(one, other, equal_var=False).pvalue, rel=1e-9)


def test_the_bootstrap_of_a_mean_has_the_error_and_p_of_scipy() -> None:
    random = np.random.default_rng(3)
    values = random.exponential(size=(2, 800))
    values[1] += 0.06

    def drawn(own: np.ndarray) -> Drawn:
        return Drawn(lambda rows, counts: {"mean": float(np.average(own[rows], weights=counts))}, len(own))

    found = intervals.resampled(drawn(values[1]), 0).less(intervals.resampled(drawn(values[0]), 0))
    error = found.errors()["mean"]
    difference = values[1] - values[0]
    expected = stats.bootstrap((difference,), np.mean, random_state=np.random.default_rng(0))
    assert error == pytest.approx(expected.standard_error, rel=0.1)
    p = t_test(float(difference.mean()), [Variance(error**2, intervals.RESAMPLES - 1)], "bootstrap")[0].p
    flips = stats.permutation_test((difference,), np.mean, permutation_type="samples", random_state=0)
    assert p == pytest.approx(flips.pvalue, abs=0.03)


def test_of_many_rows_some_are_drawn_and_the_error_is_that_of_all() -> None:
    """And both models are measured of the same ones."""
    random = np.random.default_rng(4)
    values = random.normal(size=(2, 4 * intervals.MOST)) + random.normal(size=4 * intervals.MOST)

    def drawn(own: np.ndarray) -> Drawn:
        return Drawn(lambda rows, counts: {"mean": float(np.average(own[rows], weights=counts))}, len(own))

    found = intervals.resampled(drawn(values[1]), 0).less(intervals.resampled(drawn(values[0]), 0))
    theory = np.std(values[1] - values[0]) / math.sqrt(values.shape[1])
    assert found.errors()["mean"] == pytest.approx(theory, rel=0.15)


@pytest.mark.parametrize(("size", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_the_seeds_that_are_needed_are_those_of_gpower(size: float, pairs: int) -> None:
    """Paired t-test, two-sided, 5%, 80% (Faul et al. 2007, G*Power 3)."""
    assert seeds_needed(size, 1.0) == pairs
    assert seeds_needed(-size, 1.0) == pairs


def test_what_is_needed_at_the_ends() -> None:
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1.0, 0.0) == 2
    assert seeds_needed(0.001, 1.0) == pytest.approx(7_848_880, rel=1e-3)
    assert rows_needed(0.0, 0.1, 500) is None
    assert rows_needed(-0.1, 0.1 / 2.8016, 500) in (500, 501)  # a difference of z(0.975) + z(0.8) errors


@pytest.mark.parametrize(
    ("ps", "adjusted"),
    [
        ([0.01, 0.02, 0.03, 0.04, 0.05], [0.05, 0.08, 0.09, 0.09, 0.09]),  # R: p.adjust(…, "holm")
        ([0.03, 0.005, 0.04, 0.01], [0.06, 0.02, 0.06, 0.03]),
        ([0.9, 0.6], [1.0, 1.0]),
        ([0.2], [0.2]),
        ([], []),
    ],
)
def test_holm(ps: list[float], adjusted: list[float]) -> None:
    assert holm(ps) == pytest.approx(adjusted)


@given(st.lists(st.floats(0, 1), max_size=8), st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_what_the_procedure_rejects(ps: list[float], level: float) -> None:
    """Holm (1979): from the smallest on, reject while p ≤ level / (number of those not yet rejected)."""
    rejected: set[int] = set()
    for place in sorted(range(len(ps)), key=lambda place: ps[place]):
        if ps[place] * (len(ps) - len(rejected)) > level:
            break
        rejected.add(place)
    assert {place for place, p in enumerate(holm(ps)) if p <= level} == rejected
