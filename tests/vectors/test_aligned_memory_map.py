"""A table whose rows are those that a file begins with is one mapping of that file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embexp.vectors.alignment import Alignment, by_position
from embexp.vectors.initial_rows import AlignedRows


class File:
    """A mapped file of 7 rows."""

    def __init__(self, path: Path, mapped: bool) -> None:
        np.save(path, np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32))
        self.mapping = np.asarray(np.load(path, mmap_mode="c"))
        self.mapped, (self.rows, self.dim) = mapped, self.mapping.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.mapping[start:stop]

    def memory_map(self) -> np.ndarray | None:
        return self.mapping if self.mapped else None


class Zeros:
    def read(self, start: int, stop: int) -> np.ndarray:
        return np.zeros((stop - start, 5), np.float32)


class FirstThree:
    dim = 3

    def apply(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return rows[:, :3]


@pytest.mark.parametrize("rows", [7, 3])
def test_rows_in_the_files_order_are_its_mapping(tmp_path: Path, rows: int) -> None:
    file = File(tmp_path / "m.npy", mapped=True)
    found = AlignedRows(file, by_position(rows), Zeros()).memory_map()
    assert found is not None
    assert np.shares_memory(found, file.mapping)
    np.testing.assert_array_equal(found, file.mapping[:rows], strict=True)


@pytest.mark.parametrize("file_rows", [[1, 2], [0, -1], [0, 2, 1], [-1, 0], []])
def test_other_rows_are_none(tmp_path: Path, file_rows: list[int]) -> None:
    alignment = Alignment(np.array(file_rows, np.int64), np.ones(len(file_rows), np.uint8))
    assert AlignedRows(File(tmp_path / "m.npy", mapped=True), alignment, Zeros()).memory_map() is None


def test_neither_are_projected_ones_nor_those_of_a_file_that_is_not_mapped(tmp_path: Path) -> None:
    assert AlignedRows(File(tmp_path / "m.npy", mapped=False), by_position(7), Zeros()).memory_map() is None
    file = File(tmp_path / "m.npy", mapped=True)
    assert AlignedRows(file, by_position(7), Zeros(), FirstThree()).memory_map() is None
