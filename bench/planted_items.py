"""Generates interactions with a long tail of items: nested tastes, and a popularity that follows Zipf's law.

    python -m bench.planted_items FILE [--users N] [--items M] [--seed S]

FILE is a CSV file with `user,item,time`. Items belong to random genres, and to random styles within them. An item's
popularity is 1 / (rank + 10), whatever its style. A user has two genres, and four styles of these. With p = 0.6, an
interaction is with an item of the user's styles, with p = 0.25 with an item of the two genres, and otherwise with any
item. Within these, the item is drawn by popularity. The number of a user's interactions is geometric, at least 10 and
40 on average. No user has an item twice. Half of the items have at most three interactions. The same arguments give the
same bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from embexp.system import files

USERS, ITEMS = 20_000, 100_000
GENRES, STYLES = 20, 25
"""Number of genres, and of styles per genre."""
LEAST, MEAN = 10, 40
"""Number of interactions per user: the least, and the mean."""
BY_STYLE, BY_GENRE = 0.6, 0.25


def interactions(users: int, items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The users and items of the interactions, each int64 [n], grouped by user and in order of time."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / (random.permutation(items) + 10)
    style = random.integers(0, GENRES * STYLES, items)
    by_style = [np.flatnonzero(style == each) for each in range(GENRES * STYLES)]
    by_genre = [np.flatnonzero(style // STYLES == each) for each in range(GENRES)]
    totals = {id(pool): np.cumsum(popularity[pool]) for pool in (*by_style, *by_genre)}
    everything = np.arange(items)
    totals[id(everything)] = np.cumsum(popularity)

    def drawn(pool: np.ndarray, count: int) -> np.ndarray:
        """Draws items from a pool by popularity, by inversion."""
        sums = totals[id(pool)]
        chosen: np.ndarray = pool[np.searchsorted(sums, random.random(count) * sums[-1])] if len(pool) else pool
        return chosen

    found = []
    for _ in range(users):
        genres = random.choice(GENRES, 2, replace=False)
        styles = genres[random.integers(0, 2, 4)] * STYLES + random.integers(0, STYLES, 4)
        wanted = LEAST + random.geometric(1 / (MEAN - LEAST))
        pools = random.choice(3, 2 * wanted, p=[BY_STYLE, BY_GENRE, 1 - BY_STYLE - BY_GENRE])
        which = random.integers(0, 4, 2 * wanted)
        parts = [drawn(by_style[styles[each]], int(np.sum((pools == 0) & (which == each)))) for each in range(4)]
        parts += [drawn(by_genre[genres[each]], int(np.sum((pools == 1) & (which % 2 == each)))) for each in range(2)]
        parts.append(drawn(everything, int(np.sum(pools == 2))))
        found.append(random.permutation(np.unique(np.concatenate(parts)))[:wanted])
    return np.repeat(np.arange(users), [len(each) for each in found]), np.concatenate(found)


def write(file: Path, users: int = USERS, items: int = ITEMS, seed: int = 0) -> Path:
    """Writes the CSV file."""
    numbers = enumerate(zip(*interactions(users, items, seed), strict=True))
    files.write_text(file, "user,item,time\n" + "".join(f"u{user},i{item},{time}\n" for time, (user, item) in numbers))
    return file


def main(argv: list[str]) -> int:
    """Writes the file, and prints what it contains."""
    parser = argparse.ArgumentParser(prog="python -m bench.planted_items", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    write(options.file, options.users, options.items, options.seed)
    print(f"{options.file}: {options.users:,} users, {options.items:,} items")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
