"""A frozen table that stays in its mapped file: which pages of it a worker has in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from embexp.initialization.filling import FileRows, TablePlan
from embexp.specs.inits import MemoryMap
from embexp.specs.tables import Storage
from embexp.strategies.cluster.partition import Partition
from embexp.strategies.cluster.rows import ShardedTable
from embexp.system import arrays

ROWS, DIM = 40_000, 256


class Lacking:
    """Initial values that are not read, as the file has all rows."""

    rows, dim = ROWS, DIM

    def read(self, start: int, stop: int) -> np.ndarray:
        raise AssertionError("read")

    def memory_map(self) -> None:
        return None


def in_memory(mapping: np.ndarray) -> float:
    """The share of a mapped file's pages that the machine has in memory."""
    first = mapping.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    size = mapping.ctypes.data + mapping.nbytes - first
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(size), pages) == 0
    return float(np.mean(np.frombuffer(pages, np.uint8) & 1))


def anonymous(path: Path) -> int:
    """Kilobytes of a file's mapping that this process has copied."""
    _, _, mapping = Path("/proc/self/smaps").read_text().partition(f" {path}\n")
    found = re.search(r"^Anonymous: +(\d+) kB$", mapping, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_a_worker_reads_the_pages_of_its_rows(tmp_path: Path) -> None:
    path, generator = tmp_path / "rows.npy", np.random.default_rng(0)
    values = generator.standard_normal((ROWS, DIM), dtype=np.float32)
    np.save(path, values)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapping = arrays.mapped_array(path)
    if in_memory(mapping) > 0.1:
        pytest.skip("this file system keeps files in memory")
    file_rows = FileRows(mapping, np.arange(ROWS), Lacking())
    plan = TablePlan("t", Lacking(), MemoryMap(), storage=Storage.MEMORY_MAP, by_reference=True, file=file_rows)
    partition = Partition.of(ROWS, 3, 16)
    table = ShardedTable(plan, partition, 1, None)
    assert in_memory(mapping) < 0.1
    count = partition.count(1)
    for start in range(0, count, 5_000):
        stop = min(start + 5_000, count)
        assert table.read_own(start, stop).tobytes() == values[partition.numbers(1, start, stop)].tobytes()
    last = partition.numbers(1, count - 1, count)
    assert table.own.gather(tf.constant([count - 1])).numpy().tobytes() == values[last].tobytes()
    assert 0.3 < in_memory(mapping) < 0.6  # of a third, with pages that have rows of two workers
    assert anonymous(path) == 0
