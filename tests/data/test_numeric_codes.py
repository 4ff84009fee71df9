"""Whole numbers that are codes are known by the gaps between them; quantities of many shapes are not taken for such."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.files.samples import are_codes
from tests.thoroughness import examples

ROWS = 6_000


def counted(values: np.ndarray) -> Counter[int]:
    return Counter(map(int, values))


@given(seed=st.integers(0, 2**32 - 1), codes=st.integers(100, ROWS // 3), last=st.integers(20_000, 10**9))
def test_codes_drawn_at_random_are_known(seed: int, codes: int, last: int) -> None:
    """Some occur often, most do not, as resources, agents and shops do."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, codes + 1)
    values = random.choice(random.choice(last, codes, replace=False), ROWS, p=shares / shares.sum())
    assert are_codes(counted(values))


@examples(10)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(30, 1e5))
def test_quantities_are_no_codes(seed: int, scale: float) -> None:
    """Each is smooth, mostly zero or not known, skewed, or counts of rare events."""
    random = np.random.default_rng(seed)
    normal = random.normal(10 * scale, scale, ROWS)
    for values in (
        normal,
        np.where(random.random(ROWS) < 0.7, 0, normal),
        np.where(random.random(ROWS) < 0.4, random.choice([0, 99_999], ROWS, p=[0.3, 0.7]), normal),
        random.lognormal(np.log(scale), 1, ROWS),
        random.poisson(random.gamma(0.5, scale, ROWS)),
        random.integers(0, int(scale), ROWS),
    ):
        assert not are_codes(counted(np.rint(values)))


@pytest.mark.parametrize("step", [5, 100, 500])
def test_rounded_amounts_are_no_codes(step: int) -> None:
    prices = step * np.rint(np.random.default_rng(0).lognormal(np.log(300), 0.7, ROWS))
    assert not are_codes(counted(prices))


def test_few_rows_tell_nothing() -> None:
    codes = np.random.default_rng(0).choice(10**6, 50, replace=False)
    values = np.random.default_rng(1).choice(codes, ROWS)
    assert are_codes(counted(values))
    assert not are_codes(counted(values[:900]))
    assert not are_codes(Counter())
