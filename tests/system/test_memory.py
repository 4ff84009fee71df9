from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embexp.system.memory import PeakMemory, anonymous_bytes

pytestmark = pytest.mark.skipif(anonymous_bytes() is None, reason="this system has no /proc/self/status")


def test_what_was_allocated_and_freed_again_counts() -> None:
    with PeakMemory() as memory:
        array = np.ones(100_000_000, np.uint8)
        array[::4096] = 2
        del array
    assert memory.added is not None
    # The watching thread may see the array a few pages short of complete.
    assert 80_000_000 < memory.added < 130_000_000


def test_pages_of_a_mapped_file_do_not_count(tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.ones(50_000_000, np.uint8))
    mapped = np.load(tmp_path / "big.npy", mmap_mode="r")
    with PeakMemory() as memory:
        assert int(mapped.sum(dtype=np.int64)) == 50_000_000
    assert memory.added is not None
    assert memory.added < 20_000_000
