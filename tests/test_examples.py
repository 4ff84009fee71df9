"""The programs in examples/ do what they say, and say nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_an_estimator_of_ones_own(tmp_path: Path) -> None:
    items = np.random.default_rng(5).normal(size=(50_000, 16)).astype(np.float32)
    np.save(tmp_path / "items.npy", items)
    command = [sys.executable, str(ROOT / "examples" / "own_estimator.py"), "--items", str(tmp_path / "items.npy")]
    result = subprocess.run(
        [*command, "--model-dir", str(tmp_path / "model")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "WARNING:" not in result.stderr.replace("WARNING: All log messages before absl", "")
    first, second, stored = result.stdout.splitlines()
    accuracies = [float(re.fullmatch(r"step \d+: accuracy (\d\.\d+)", line)[1]) for line in (first, second)]  # type: ignore[index]
    assert 0.6 < accuracies[0] < accuracies[1]
    assert second.startswith("step 128:")
    assert stored == "in the checkpoint: global_step [], user [200, 16], user/Adagrad [200, 16]"
    for file in (tmp_path / "model").rglob("*"):
        assert file.stat().st_size < items.nbytes / 4, f"{file.name} holds something of the matrix"
    np.testing.assert_array_equal(np.load(tmp_path / "items.npy"), items)
