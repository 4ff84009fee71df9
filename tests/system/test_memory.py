from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embexp.system import machine
from embexp.system.machine import PeakMemory, anonymous_bytes, keep_freed

pytestmark = pytest.mark.skipif(anonymous_bytes() is None, reason="this system has no /proc/self/status")


def test_what_was_allocated_and_freed_again_counts() -> None:
    with PeakMemory() as watched:
        array = np.ones(100_000_000, np.uint8)
        array[::4096] = 2
        del array
    assert watched.added is not None
    # The watching thread may see the array a few pages short of complete.
    assert 80_000_000 < watched.added < 130_000_000


def test_pages_of_a_mapped_file_do_not_count(tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.ones(50_000_000, np.uint8))
    mapped = np.load(tmp_path / "big.npy", mmap_mode="r")
    with PeakMemory() as watched:
        assert int(mapped.sum(dtype=np.int64)) == 50_000_000
    assert watched.added is not None
    assert watched.added < 20_000_000


@pytest.mark.parametrize(("arrays", "size", "onednn"), [(20, 2_000_000, "1"), (3, 50_000_000, "0")])
def test_freed_memory_is_kept_for_the_next_allocation(arrays: int, size: int, onednn: str) -> None:
    """In a process of its own, whose malloc is as glibc starts it; oneDNN keeps what is large itself."""
    script = """
import resource, sys
from embexp.system.machine import keep_freed
import numpy as np
if sys.argv[1] == "kept" and not keep_freed():
    sys.exit("not glibc")
def step():
    for array in [np.empty(int(sys.argv[3]), np.uint8) for _ in range(int(sys.argv[2]))]:
        array[::4096] = 1
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    environment = {name: value for name, value in os.environ.items() if name not in machine._SETTINGS}
    environment[machine.ONEDNN] = onednn
    faults = {}
    for how in ("default", "kept"):
        command = [sys.executable, "-c", script, how, str(arrays), str(size)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if "not glibc" in done.stderr:
            pytest.skip("the C library is not glibc")
        faults[how] = int(done.stdout)
    assert faults["kept"] < 1_000 < faults["default"]


def test_memory_is_left_to_a_user_who_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
    assert not keep_freed()
