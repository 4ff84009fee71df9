"""Hashes of rows: every change of a bit shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import RunError
from embexp.training.freezing.watching import RowHashes, row_hashes


def blocks(matrix: np.ndarray, size: int) -> list[np.ndarray]:
    return [matrix[start : start + size] for start in range(0, len(matrix), size)]


@given(row=st.integers(0, 8), column=st.integers(0, 4), bit=st.integers(0, 31), seed=st.integers(0, 100))
def test_one_bit_changes_the_hash_of_its_row_and_no_other(row: int, column: int, bit: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((9, 5)).astype(np.float32)
    before = row_hashes(matrix)
    matrix.view(np.uint32)[row, column] ^= np.uint32(1 << bit)
    assert np.flatnonzero(row_hashes(matrix) != before).tolist() == [row]


def test_hashes_do_not_depend_on_how_rows_are_cut() -> None:
    matrix = np.random.default_rng(0).standard_normal((20_000, 3)).astype(np.float32)
    np.testing.assert_array_equal(row_hashes(matrix)[9_000:9_100], row_hashes(matrix[9_000:9_100]))
    assert len(set(row_hashes(matrix).tolist())) == 20_000


def test_rows_that_changed_are_told() -> None:
    matrix = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    matrix[4, 1] = 0.0
    remembered = RowHashes(blocks(matrix, 4))
    assert not remembered.changed(blocks(matrix, 3)).any()
    matrix[7] += 1
    assert np.flatnonzero(remembered.changed(blocks(matrix, 4))).tolist() == [7]
    matrix[4, 1] = -0.0  # equal, and yet another bit
    matrix[0, 0] += 1
    assert np.flatnonzero(remembered.changed(blocks(matrix, 10))).tolist() == [0, 4, 7]
    remembered.close()
    remembered = RowHashes(blocks(matrix, 4))
    matrix[[2, 9]] = np.nan
    assert np.flatnonzero(remembered.changed(blocks(matrix, 4))).tolist() == [2, 9]
    remembered.close()


def test_nowhere_to_write(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"hashes of rows can't be written to .*set TMPDIR"):
        RowHashes([], folder=tmp_path / "nowhere")
