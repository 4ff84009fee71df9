"""What changed in a table, and the table that it makes of the earlier one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.runs import deltas
from embexp.system.arrays import ArrayRows
from embexp.vectors.stored import BFLOAT16

FLOAT32, FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)


@given(
    before=st.integers(1, 40),
    more=st.integers(0, 40),
    moved=st.lists(st.integers(0, 39), max_size=10),
    dtype=st.sampled_from([FLOAT32, FLOAT16, BFLOAT16]),
    block=st.sampled_from([1, 32, 1 << 20]),
    seed=st.integers(0, 9),
)
def test_a_delta_makes_the_later_table(
    before: int, more: int, moved: list[int], dtype: np.dtype, block: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(before + more, 3)).astype(dtype).astype(np.float32)
    earlier = rows[:before].copy()
    moved = sorted({row for row in moved if row < before})
    earlier[moved, 1] = -earlier[moved, 1]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(deltas, "_BLOCK_BYTES", block)
        new = [range(before, before + more)]
        counts = deltas.write_changes(ArrayRows(earlier), ArrayRows(rows), new, Path(folder), "t", dtype=dtype)
        numbers = np.load(Path(folder, "t.rows.npy"))
        assert np.load(Path(folder, "t.values.npy")).dtype.itemsize == dtype.itemsize
        made = deltas.changed_rows(ArrayRows(earlier), Path(folder), "t", rows=before + more, dtype=dtype)
        np.testing.assert_array_equal(made.read(0, before + more), rows)
        middle = (before + more) // 2
        np.testing.assert_array_equal(made.read(middle, before + more), rows[middle:])
    assert counts == deltas.Counts(more, len(moved), before - len(moved))
    assert numbers.tolist() == [*moved, *range(before, before + more)]


def test_a_row_of_a_new_token_is_there_though_its_numbers_are_the_same(tmp_path: Path) -> None:
    rows = ArrayRows(np.ones((4, 2), np.float32))
    counts = deltas.write_changes(rows, rows, [range(2, 3)], tmp_path, "t", dtype=FLOAT32)
    assert counts == deltas.Counts(1, 0, 3)
    assert np.load(tmp_path / "t.rows.npy").tolist() == [2]


@pytest.mark.parametrize(("kind", "dtype"), [(np.uint16, BFLOAT16), (np.uint16, FLOAT16), (np.uint32, FLOAT32)])
def test_rows_are_compared_and_kept_by_their_bits(kind: type, dtype: np.dtype, tmp_path: Path) -> None:
    """Of each other NaN, of zero and its negative."""
    whole = {FLOAT32: [0x7F800001, 0xFFC00002, 0, 1 << 31], FLOAT16: [0x7C01, 0xFE05, 0, 1 << 15]}
    bits = np.array(whole.get(dtype, [0x7F81, 0xFFC1, 0, 1 << 15]), kind)
    later = bits.view(dtype)[:, None].astype(np.float32)
    earlier = later[[1, 0, 3, 2]]
    counts = deltas.write_changes(ArrayRows(earlier), ArrayRows(later), [], tmp_path, "t", dtype=dtype)
    assert counts == deltas.Counts(0, 4, 0)
    assert np.load(tmp_path / "t.values.npy").view(kind).reshape(-1).tolist() == bits.tolist()
    made = deltas.changed_rows(ArrayRows(earlier), tmp_path, "t", rows=4, dtype=dtype).read(0, 4)
    assert made.view(np.uint32).tolist() == later.view(np.uint32).tolist()


@pytest.mark.parametrize(
    ("numbers", "values"),
    [
        ([1, 1], np.ones((2, 2), np.float32)),
        ([0, 4], np.ones((2, 2), np.float32)),
        ([-1, 3], np.ones((2, 2), np.float32)),
        ([0], np.ones((1, 2), np.float32)),  # row 3, which the earlier table lacks, is not there
        ([3], np.ones((2, 2), np.float32)),
        ([3], np.ones((1, 3), np.float32)),
        ([3], np.ones((1, 2), np.float64)),
    ],
)
def test_files_that_are_no_delta_of_the_table(numbers: list[int], values: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "t.rows.npy", np.array(numbers, np.int64))
    np.save(tmp_path / "t.values.npy", values)
    with pytest.raises(DataError, match=r"t\.(rows|values)\.npy: found .*expected"):
        deltas.changed_rows(ArrayRows(np.zeros((3, 2), np.float32)), tmp_path, "t", rows=4, dtype=FLOAT32)
