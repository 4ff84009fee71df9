"""Interactions with a planted order, and short runs on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import embexp

ITEMS, LENGTH, DIM = 40, 12, 16


def interactions(path: Path, users: int = 120, items: int = ITEMS, seed: int = 0) -> dict[str, list[str]]:
    """Writes rows in no order; of four next items, three follow from the item before. Returns the histories."""
    random = np.random.default_rng(seed)
    following, rows, histories = np.random.default_rng(0).permutation(items), [], {}
    for user in range(users):
        item, had = int(random.integers(items)), []
        for time in range(int(random.integers(1, 2 * LENGTH))):
            rows.append(f"u{user},i{item},{1000 + time}")
            had.append(f"i{item}")
            item = int(following[item] if random.random() < 0.75 else random.integers(items))
        histories[f"u{user}"] = had
    random.shuffle(rows)
    path.write_text("\n".join(["user,item,timestamp", *rows, ""]))
    return histories


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sequences")


@pytest.fixture(scope="session")
def histories(folder: Path) -> dict[str, list[str]]:
    return interactions(folder / "interactions.csv")


@pytest.fixture(scope="session")
def settings(folder: Path, histories: dict[str, list[str]]) -> list[str]:
    return [
        "fields=[embexp_sequences:FIELD]",
        "experiment=sequences",
        f"data.path={folder / 'interactions.csv'}",
        f"features.history.max_sequence_length={LENGTH}",
        f"tables.item.dim={DIM}",
        "model.heads=2",
        "train.epochs=null",
        "train.steps=24",
        "train.evaluate_every=12",
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
    """Runs with some settings more, once for each of them."""
    known: dict[tuple[str, ...], embexp.RunResult] = {}

    def run(*overrides: str) -> embexp.RunResult:
        if overrides not in known:
            known[overrides] = embexp.run([*settings, *overrides], tmp_path_factory.mktemp("run"), quiet=True)
        return known[overrides]

    return run
