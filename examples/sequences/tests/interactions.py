"""Interactions with a planted order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ITEMS, LENGTH, DIM = 40, 12, 16


def interactions(path: Path, users: int = 120, items: int = ITEMS, seed: int = 0) -> dict[str, list[str]]:
    """Writes rows in random order, and returns the histories. Three of four items follow from the item before."""
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
