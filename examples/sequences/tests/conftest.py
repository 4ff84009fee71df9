"""Interactions with a planted order, and short runs on them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_HERE = Path(__file__).resolve().parents[1]
_INSTALLED = tempfile.TemporaryDirectory()


def install() -> None:
    """Makes the package look installed: its entry point is on the path of this process and its child processes."""
    record = Path(_INSTALLED.name) / "embexp_sequences-0.1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: embexp-sequences\nVersion: 0.1.0\n")
    (record / "entry_points.txt").write_text("[embexp.fields]\nsequences = embexp_sequences:FIELD\n")
    paths = [_INSTALLED.name, str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    sys.path[:0] = [*paths[:2], str(Path(__file__).parent)]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


install()  # before embexp looks for fields

from interactions import DIM, LENGTH, interactions  # noqa: E402

import embexp  # noqa: E402


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sequences")


@pytest.fixture(scope="session")
def histories(folder: Path) -> dict[str, list[str]]:
    return interactions(folder / "interactions.csv")


@pytest.fixture(scope="session")
def settings(folder: Path, histories: dict[str, list[str]]) -> list[str]:
    return [
        "experiment=sequences",
        f"data.path={folder / 'interactions.csv'}",
        f"features.history.max_sequence_length={LENGTH}",
        f"tables.item.dim={DIM}",
        "model.blocks=1",
        "model.heads=2",
        "train.epochs=null",
        "train.steps=80",  # less time than it takes to build the graph
        "train.evaluate_every=40",
        "train.batch_size=32",
        "train.early_stopping.patience=null",
        "optimizer.learning_rate=0.01",
        "dense_optimizer.learning_rate=0.01",
        "output.plots=false",
        "output.tensorboard=false",
        f"output.cache={folder / 'cache'}",
    ]


Train = Callable[..., embexp.RunResult]


@pytest.fixture(scope="session")
def train(settings: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains with additional settings, once for each combination of them."""
    known: dict[tuple[str, ...], embexp.RunResult] = {}

    def run(*overrides: str) -> embexp.RunResult:
        if overrides not in known:
            known[overrides] = embexp.run([*settings, *overrides], tmp_path_factory.mktemp("run"), quiet=True)
        return known[overrides]

    return run
