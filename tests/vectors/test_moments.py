"""Means, variances and covariances, held against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.vectors import moments


@given(seed=st.integers(0, 100), rows=st.integers(1, 60), dim=st.integers(1, 5), size=st.integers(1, 60))
def test_moments_are_those_of_float64_numpy(seed: int, rows: int, dim: int, size: int) -> None:
    matrix = np.random.default_rng(seed).normal(1e4, 0.5, (rows, dim)).astype(np.float32)
    parts = [matrix[start : start + size] for start in range(0, rows, size)]
    exact = matrix.astype(np.float64)
    found = moments.measure(parts)
    crossed = moments.measure([lambda part=part: part for part in parts], covariance=True)  # type: ignore[misc]
    np.testing.assert_allclose(found.mean, exact.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.spread, exact.var(0), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(crossed.spread, np.atleast_2d(np.cov(exact, rowvar=False, ddof=0)), atol=1e-9)


def test_a_block_is_summed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "_AT_ONCE", 35)
    matrix = np.random.default_rng(0).normal(3, [0.1, 1, 10, 100, 5], (64, 5)).astype(np.float32)
    exact = matrix.astype(np.float64)
    for covariance, expected in ((False, exact.var(0)), (True, np.cov(exact, rowvar=False, ddof=0))):
        found = moments.measure([matrix[:40], matrix[40:]], covariance=covariance)
        np.testing.assert_allclose(found.mean, exact.mean(0), rtol=1e-12)
        np.testing.assert_allclose(found.spread, expected, rtol=1e-10)


def test_moments_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="a matrix without rows has no moments"):
        moments.measure([])


def test_moments_of_nan_are_refused() -> None:
    with pytest.raises(DataError, match=r"(?s)found NaN or .* set non_finite to zero or skip"):
        moments.measure([np.array([[1, np.nan]], np.float32)])
