"""Filling a table chunk by chunk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.initialization.assign import Assign
from embexp.initialization.initializer import Initializer
from embexp.specs.running import RuntimeKind


class Matrix:
    """A source that remembers what was read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        self.reads.append((start, stop))
        return self.values[start:stop]


class Written:
    """A table that takes rows."""

    def __init__(self, rows: int, dim: int) -> None:
        self.name, self.rows, self.dim = "item", rows, dim
        self.values = np.full((rows, dim), np.nan, np.float32)

    def write(self, start: int, values: np.ndarray) -> None:
        assert np.isnan(self.values[start : start + len(values)]).all(), "a row was written twice"
        self.values[start : start + len(values)] = values


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 300))
def test_every_row_is_written_once_in_chunks_of_at_most_so_many_bytes(rows: int, dim: int, chunk_bytes: int) -> None:
    source = Matrix(np.arange(rows * dim, dtype=np.float32).reshape(rows, dim))
    table = Written(rows, dim)
    method: Initializer = Assign(chunk_bytes)
    method.apply(table, source)
    np.testing.assert_array_equal(table.values, source.values)
    largest = max(stop - start for start, stop in source.reads)
    assert largest == 1 or largest * dim * 4 <= chunk_bytes
    assert [(chunk.start, chunk.stop) for chunk in method.plan(rows, dim)] == source.reads


def test_a_source_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="table 'item' is 3 × 2, its source of rows is 3 × 4"):
        Assign().apply(Written(3, 2), Matrix(np.zeros((3, 4), np.float32)))


def test_it_works_in_the_function_runtime() -> None:
    assert RuntimeKind.FUNCTION in Assign().runtimes
