"""A field that embexp does not ship: the package of sequential recommendation in examples/sequences."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import preloaded, stranger
from tests.size import code_lines
from tests.thoroughness import thorough

PACKAGE = Path(__file__).resolve().parents[1] / "examples" / "sequences"
PACKAGE_NAME = "embexp_sequences"
LEFT_OUT = (
    "test_learns_an_order[binary]",
    "test_learns_an_order[sampled_softmax]",
    "test_two_workers[softmax]",
    "test_two_workers[sampled_softmax]",
    "test_two_workers[binary]",
    "test_interrupted_and_resumed_is_as_if_never[softmax]",
    "test_interrupted_and_resumed_is_as_if_never[sampled_softmax]",
    "test_checkpoint_grow",
    "test_frozen_pretrained_vectors_stay[assign]",
)
"""Cases that `make test` leaves out: another loss has the same, or the contract (tests/contracts/test_fields.py)."""


@pytest.mark.slow
def test_its_own_tests_pass(tmp_path: Path) -> None:
    """In a process of their own, in which the package is as if installed; it and all that they start are forked."""
    stranger.install(tmp_path, PACKAGE_NAME, field="sequences")
    path = os.pathsep.join([str(tmp_path), str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment["PYTHONPATH"] = path
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "tests"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hydra's plugin is imported before pytest is
    words += [] if thorough() else [f"--deselect=tests/test_runs.py::{case}" for case in LEFT_OUT]
    with TemporaryDirectory() as folder, preloaded.commands(Path(folder), environment) as commands:
        python = preloaded.with_jobs(commands) / "python"
        ended = subprocess.run(
            [python, *words], cwd=PACKAGE, env=environment, capture_output=True, text=True, timeout=1_800, check=False
        )
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-20_000:]
    assert thorough() or f" {len(LEFT_OUT)} deselected" in ended.stdout


def test_it_is_small_and_nothing_in_embexp_knows_it() -> None:
    lines = sum(code_lines(path.read_text("utf-8")) for path in (PACKAGE / PACKAGE_NAME).rglob("*.py"))
    assert lines <= 500
    core = (PACKAGE.parents[1] / "embexp").rglob("*.py")
    assert not [path for path in core if "sasrec" in (text := path.read_text("utf-8").lower()) or "next_item" in text]
