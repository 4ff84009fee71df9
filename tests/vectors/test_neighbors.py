"""Nearest rows, against float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from embexp.errors import DataError
from embexp.vectors import neighbors


@dataclass
class Matrix:
    values: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        return self.values.shape[1]

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


@pytest.mark.parametrize("chunk", [1, 400, 1 << 24])
def test_against_float64(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_CHUNK_BYTES", chunk)
    values = np.random.default_rng(0).normal(size=(200, 10)).astype(np.float32)
    found = neighbors.nearest(Matrix(values), [7, 199, 0], 5)
    exact = values.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    for row, near in zip([7, 199, 0], found, strict=True):
        cosines = exact @ exact[row]
        cosines[row] = -2
        assert [each.row for each in near] == np.argsort(-cosines)[:5].tolist()
        np.testing.assert_allclose([each.cosine for each in near], np.sort(cosines)[::-1][:5], atol=1e-6)


def test_few_rows_zeros_and_equals() -> None:
    values = np.array([[1, 0], [0, 0], [2, 0], [0, 1], [3, 0]], np.float32)
    (found,) = neighbors.nearest(Matrix(values), [0], 10)
    assert [(each.row, each.cosine) for each in found] == [(2, 1), (4, 1), (3, 0)]
    with pytest.raises(DataError, match="row 2 is all zeros or not finite"):
        neighbors.nearest(Matrix(values), [1], 10)


def test_rows_that_are_not_finite_are_near_to_none() -> None:
    values = np.array([[1, 0], [np.nan, 1], [1, 1], [np.inf, 0], [-1, 0]], np.float32)
    (found,) = neighbors.nearest(Matrix(values), [0], 10)
    assert [each.row for each in found] == [2, 4]
    with pytest.raises(DataError, match="row 4 is all zeros or not finite"):
        neighbors.nearest(Matrix(values), [3], 10)


def test_very_large_and_very_small_numbers() -> None:
    values = np.array([[1e30, 1e30], [1e-30, 1e-30], [1e30, -1e30]], np.float32)
    (found,) = neighbors.nearest(Matrix(values), [0], 2)
    assert [each.row for each in found] == [1, 2]
    np.testing.assert_allclose([each.cosine for each in found], [1, 0], atol=1e-6)
