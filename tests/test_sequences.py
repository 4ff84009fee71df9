"""A field that embexp does not ship: the package of sequential recommendation in examples/sequences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.size import code_lines
from tests.thoroughness import thorough

PACKAGE = Path(__file__).resolve().parents[1] / "examples" / "sequences"
LEFT_OUT = (
    "test_two_workers[softmax]",
    "test_two_workers[sampled_softmax]",
    "test_interrupted_and_resumed_is_as_if_never[softmax]",
)
"""Cases of a loss that `make test` leaves out, as other losses have them."""


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(path.name for path in (PACKAGE / "tests").glob("test_*.py")))
def test_its_own_tests_pass(file: str) -> None:
    """In a process of their own, in which the package is as if installed."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{file}"]
    words += [] if thorough() else [f"--deselect=tests/test_runs.py::{case}" for case in LEFT_OUT]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ended = subprocess.run(
        words, cwd=PACKAGE, env=environment, capture_output=True, text=True, timeout=1_800, check=False
    )
    assert ended.returncode == 0, ended.stdout[-20_000:]


def test_it_is_small_and_nothing_in_embexp_knows_it() -> None:
    lines = sum(code_lines(path.read_text("utf-8")) for path in (PACKAGE / "embexp_sequences").rglob("*.py"))
    assert lines <= 500
    core = (PACKAGE.parents[1] / "embexp").rglob("*.py")
    assert not [path for path in core if "sasrec" in (text := path.read_text("utf-8").lower()) or "next_item" in text]
