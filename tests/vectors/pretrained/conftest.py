"""Ratings of items that a GloVe-like file has vectors for, most of them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.specs.run import RunSpec

DIM = 5


@dataclass(frozen=True)
class World:
    folder: Path
    vectors: dict[str, list[float]]

    @property
    def glove(self) -> Path:
        return self.folder / "glove.txt"

    def spec(self, *overrides: str) -> RunSpec:
        """Of a run on the ratings, with tables as wide as the file."""
        return embexp.compose(
            [
                "experiment=ratings",
                f"data.path={self.folder / 'ratings.csv'}",
                "data.label=rating",
                "train.epochs=null",
                "train.steps=1",
                f"tables.user.dim={DIM}",
                f"output.cache={self.folder / 'cache'}",
                "output.plots=false",
                "output.baselines=false",
                "output.tensorboard=false",
                *overrides,
            ]
        )


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("pretrained")
    random = np.random.default_rng(0)
    with (folder / "ratings.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "rating"])
        for _ in range(600):
            writer.writerow([f"u{random.integers(8)}", f"Item-{random.integers(12)}", random.integers(1, 6)])
    vectors = {f"Item-{number}": random.normal(1, 2, DIM).round(3).tolist() for number in (0, 2, 3, 5, 7, 8, 40, 41)}
    vectors["item-9"] = random.normal(1, 2, DIM).round(3).tolist()
    lines = [" ".join([token, *map(str, values)]) for token, values in vectors.items()]
    (folder / "glove.txt").write_text("\n".join(lines) + "\n")
    return World(folder, vectors)
