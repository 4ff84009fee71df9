"""Chosen rows of a source: any range of them, read with their neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.system import arrays
from embexp.system.arrays import SomeRows


class Source:
    def __init__(self, rows: int) -> None:
        self.values = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        self.rows, self.dim = self.values.shape
        self.asked: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        self.asked.append((start, stop))
        return self.values[start:stop]


@given(numbers=st.lists(st.integers(0, 9_999), max_size=30), data=st.data())
def test_any_range(numbers: list[int], data: st.DataObject) -> None:
    source = Source(10_000)
    some = SomeRows(source, np.array(numbers, np.int32))
    start = data.draw(st.integers(0, len(numbers)))
    stop = data.draw(st.integers(start, len(numbers)))
    found = some.read(start, stop)
    np.testing.assert_array_equal(found, source.values[np.array(numbers, np.int64)[start:stop]])
    assert arrays.can_be_taken_over(found) or not found.size
    assert (some.rows, some.dim, some.memory_map()) == (len(numbers), 2, None)


def test_neighbours_are_read_together_and_nothing_across_the_table() -> None:
    source = Source(20_000)
    some = SomeRows(source, np.array([5, 6, 9, 12_000, 12_001, 19_999]))
    some.read(0, 6)
    assert source.asked == [(5, 10), (12_000, 12_002), (19_999, 20_000)]


def test_a_range_beyond_the_rows() -> None:
    with pytest.raises(ValueError, match=r"there are rows 0 to 1, asked for \[1, 3\)"):
        SomeRows(Source(5), np.array([1, 2])).read(1, 3)
