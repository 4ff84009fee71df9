"""Rows of animals that come day by day, and an experiment on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

QUIET = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")
COLUMNS = "user,item,age,size,label"
EXPERIMENT = """\
# @package _global_
defaults:
  - /table@tables.user: embedding
  - /table@tables.item: embedding
  - /table@tables.size: embedding
  - /feature@features.user: id
  - /feature@features.item: id
  - /feature@features.size: id
  - override /data: csv
  - override /graph: null
  - override /model: mlp
  - override /optimizer: adam
name: animals
task: classification
data:
  label: label
  dense_features: {age: {transform: standardize}}
tables:
  user: {dim: 4}
  item: {dim: 4}
  size: {dim: 4}
features:
  user: {table: user}
  item: {table: item}
  size: {table: size, buckets: {quantiles: 5}}
model: {hidden: [8]}
train: {epochs: 2, steps: null, batch_size: 32}
"""


def write(path: Path, users: range, count: int, seed: int, classes: str = "cat,cow,dog") -> Path:
    """Rows whose label depends on user, item and age; ages and sizes shift with the seed."""
    random = np.random.default_rng(seed)
    names, lines = classes.split(","), [COLUMNS]
    for _ in range(count):
        user, item, age = random.integers(users.start, users.stop), random.integers(8), random.normal(30 + 5 * seed, 9)
        label = names[(user + item + (age > 30)) % len(names)]
        lines.append(f"u{user},i{item},{age:.3f},{random.exponential(10 * (1 + seed)):.3f},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_experiment(folder: Path) -> list[str]:
    """Writes the experiment into a folder; returns the words that choose it."""
    own = folder / "own/experiment"
    own.mkdir(parents=True)
    (own / "animals.yaml").write_text(EXPERIMENT)
    return ["experiment=animals", "--config-dir", str(folder / "own")]
