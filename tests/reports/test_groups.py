"""Figures over repetitions, against NumPy, SciPy, the standard library, and published values."""

from __future__ import annotations

import math
import statistics as standard

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from embexp.reports import groups
from embexp.reports.groups import compare, estimates

VALUES = st.floats(-1e3, 1e3, allow_nan=False, width=32)


@given(st.lists(VALUES, min_size=2, max_size=12))
def test_mean_and_deviation(values: list[float]) -> None:
    found = estimates({"a": values})["a"]
    assert found.count == len(values)
    assert found.mean == pytest.approx(standard.fmean(values), rel=1e-12, abs=1e-9)
    assert found.std == pytest.approx(standard.stdev(values), rel=1e-9, abs=1e-9)
    if len(values) < 3:
        assert (found.low, found.high) == (None, None)
    elif (error := stats.sem(values)) > 1e-6:
        interval = stats.t.interval(0.95, len(values) - 1, loc=standard.fmean(values), scale=error)
        assert (found.low, found.high) == pytest.approx(interval, rel=1e-9, abs=1e-9)


def test_a_published_interval() -> None:
    """Student (1908), hours of sleep gained by the second drug: 0.8976775 to 3.7623225 (R, t.test)."""
    found = estimates({"a": [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]})["a"]
    assert (found.low, found.high) == (pytest.approx(0.8976775, abs=5e-8), pytest.approx(3.7623225, abs=5e-8))


def test_an_interval_by_hand() -> None:
    """1, 2 and 3 have the mean 2 and the deviation 1; t of 2 degrees of freedom is 4.302653 (tables of Student's t)."""
    found = estimates({"a": [1.0, 2.0, 3.0]})["a"]
    assert found.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6)


def test_two_values_have_no_interval() -> None:
    found = estimates({"a": [0.5, 0.7]})["a"]
    assert (found.count, found.std, found.low, found.high) == (2, pytest.approx(0.1414213562), None, None)


def test_a_large_sample_has_the_interval_of_the_normal_distribution() -> None:
    values = np.random.default_rng(3).normal(5.0, 2.0, 400)
    found = estimates({"a": list(values)})["a"]
    error = values.std(ddof=1) / math.sqrt(400)
    low, high = stats.norm.interval(0.95, loc=values.mean(), scale=error)
    assert (found.low, found.high) == (pytest.approx(low, abs=0.03), pytest.approx(high, abs=0.03))


def test_several_metrics_at_once_have_the_figures_of_each_alone() -> None:
    samples = {"a": [0.1, 0.2, 0.4], "b": [1.0, 5.0, 2.0], "c": [1.0, 2.0], "d": [3.0], "e": []}
    found = estimates(samples)
    assert list(found) == ["a", "b", "c", "d"]
    assert all(found[name] == estimates({name: samples[name]})[name] for name in found)
    assert (found["c"].low, found["d"].std, found["d"].low) == (None, None, None)


def test_values_that_are_alike_and_values_that_are_none() -> None:
    same = estimates({"a": [0.5, 0.5, 0.5]})["a"]
    assert (same.mean, same.std, same.low, same.high) == (0.5, 0.0, 0.5, 0.5)
    diverged = estimates({"a": [0.5, math.nan]})["a"]
    assert math.isnan(diverged.mean)
    assert diverged.std is None


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=9))
def test_the_paired_test_is_that_of_the_formula(pairs: list[tuple[float, float]]) -> None:
    differences = [a - b for a, b in pairs]
    deviation = standard.stdev(differences)
    if deviation < 1e-3:
        return
    t = standard.fmean(differences) / (deviation / math.sqrt(len(pairs)))
    found = compare([a for a, _ in pairs], [b for _, b in pairs])
    assert found.pairs == len(pairs)
    assert found.difference == pytest.approx(standard.fmean(differences), rel=1e-6, abs=1e-6)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), len(pairs) - 1), rel=1e-4, abs=1e-9)


def test_a_published_paired_test() -> None:
    """Student (1908), hours of sleep gained by two drugs: t = -4.0621, df = 9, p = 0.002833 (R, t.test)."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = compare(first, second)
    assert found.difference == pytest.approx(-1.58)
    assert found.p == pytest.approx(0.002833, abs=5e-7)


def test_pairs_that_are_too_few_or_alike() -> None:
    assert compare([], []) == groups.Comparison(0)
    assert compare([1.0], [0.5]) == groups.Comparison(1, 0.5)
    assert compare([1.0, 2.0], [1.0, 2.0]) == groups.Comparison(2, 0.0, 1.0)
    assert compare([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]).p == 0.0
    assert compare([1.0, math.nan], [1.0, 2.0]) == groups.Comparison(2)


def test_few_pairs_never_get_below_six_percent_with_wilcoxon() -> None:
    """Why the test is Student's."""
    differences = [1.0, 1.1, 1.2, 1.3, 1.4]
    assert stats.wilcoxon(differences).pvalue == 0.0625
    assert compare(differences, [0.0] * 5).p < 1e-4
