"""Filling a table chunk by chunk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.initialization.method import assign_rows, chunks
from embexp.tables.table import EmbeddingTable


class Matrix:
    """A source that remembers what was read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        self.reads.append((start, stop))
        return self.values[start:stop]

    def memory_map(self) -> np.ndarray | None:
        return None


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
    assign_rows(table, source, chunk_bytes)
    np.testing.assert_array_equal(table.values, source.values)
    largest = max(stop - start for start, stop in source.reads)
    assert largest == 1 or 2 * largest * dim * 4 <= chunk_bytes  # one is read while another is written
    assert [(chunk.start, chunk.stop) for chunk in chunks(rows, dim, chunk_bytes // 2)] == source.reads


@given(st.integers(100, 2_000), st.integers(1, 70), st.integers(64 * 4 * 70, 100_000))
def test_chunks_of_an_aligned_matrix_are_aligned(rows: int, dim: int, chunk_bytes: int) -> None:
    starts = [chunk.start for chunk in chunks(rows, dim, chunk_bytes)]
    assert [start * dim * 4 % 64 for start in starts] == [0] * len(starts)
    assert chunks(rows, dim, chunk_bytes)[-1].stop == rows


@pytest.mark.parametrize("dim", [3, 16])
def test_a_mapped_file_gets_into_a_table(tmp_path: Path, dim: int) -> None:
    values = np.random.default_rng(0).standard_normal((1_000, dim)).astype(np.float32)
    np.save(tmp_path / "m.npy", values)
    table = EmbeddingTable("item", 1_000, dim)
    assign_rows(table, Matrix(np.asarray(np.load(tmp_path / "m.npy", mmap_mode="c"))), 2_000)
    np.testing.assert_array_equal(table.read(0, 1_000), values, strict=True)


MEMORY = """
import sys, numpy as np
from embexp.initialization.method import assign_rows
from embexp.system.machine import PeakMemory
from embexp.tables.table import EmbeddingTable
class Mapped:
    def __init__(self, values):
        self.read, (self.rows, self.dim) = (lambda start, stop: values[start:stop]), values.shape
def fill(values):
    table = EmbeddingTable("item", *values.shape)
    assign_rows(table, Mapped(values))
    return table
mapping = np.asarray(np.load(sys.argv[1], mmap_mode="c"))
fill(mapping[:100_000])
with PeakMemory() as peak:
    table = fill(mapping)
print(peak.added / mapping.nbytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_a_mapped_file_is_in_memory_once(tmp_path: Path, root: Path, forked: Path) -> None:
    made = np.lib.format.open_memmap(tmp_path / "m.npy", "w+", np.float32, (1_000_000, 64))  # 244 MiB
    made[:] = 1
    made.flush()
    command = [forked / "python", "-c", MEMORY, str(tmp_path / "m.npy")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert 0.8 <= float(result.stdout) <= 1.15  # a chunk that is copied on the way would be 0.26 more


def test_a_source_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="table 'item' is 3 × 2, its source of rows is 3 × 4"):
        assign_rows(Written(3, 2), Matrix(np.zeros((3, 4), np.float32)))
