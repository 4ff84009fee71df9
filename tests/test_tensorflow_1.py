"""The parts for programs of one's own in a process of TensorFlow 1, where `disable_v2_behavior` was called."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

CHECKS = {
    "rows": ["sgd", "adagrad", "adagrad_momentum", "adam", "ftrl"],
    "frozen": ["range", "list", "empty list", "array", "mask", "tensor", "placeholder"],
    "fill": ["scaffold", "scaffold, local", "assign", "placeholder_feed", "variable_load", "constant"],
    "checkpoint": ["name", "object"],
    "partitioned": ["V2"],
    "monitored": ["name", "object"],
    "estimator": ["scaffold"],
    "api": ["run"],
}
"""Of each function `check_…` of the program, its cases."""
CASES = [(name, case) for name, cases in CHECKS.items() for case in cases]


@pytest.fixture(scope="module")
def outcomes(forked: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What came of each check: nothing, or the error."""
    program = root / "tests" / "tensorflow_1_program.py"
    done = subprocess.run(
        [forked / "python", str(program), json.dumps(CASES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=(folder := tmp_path_factory.mktemp("tensorflow_1")),
        env={**os.environ, "PYTHONWARNINGS": "ignore", "XDG_CACHE_HOME": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("check", "case"), CASES)
def test_it_works_in_a_process_of_tensorflow_1(outcomes: dict[str, str], check: str, case: str) -> None:
    assert not outcomes[f"{check} {case}"]
