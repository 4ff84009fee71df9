"""Interactions with a long tail of items, made by code: nested tastes, and a popularity that falls by Zipf's law.

    python -m bench.planted_items FILE [--users N] [--items M] [--seed S]

FILE is a CSV of `user,item,time`. Items belong to genres, and to styles within them, at random; an item's popularity is
1 / (rank + 10), whatever its style. A user has two genres and four styles of these. An interaction is with a style of
the user's with p = 0.6, with any item of one of the two genres with p = 0.25, and else with any item; there the item is
drawn by popularity. A user has 10 interactions or more, 40 on average, of a geometric distribution, and no item twice.
So half of the items have three interactions at most. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from embexp.system import files

USERS, ITEMS = 20_000, 100_000
GENRES, STYLES = 20, 25
"""Genres, and styles of each."""
LEAST, MEAN = 10, 40
"""Interactions of a user."""
BY_STYLE, BY_GENRE = 0.6, 0.25


def interactions(users: int, items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The users and items of interactions, each int64 [n]; those of a user follow each other, in the order of time."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / (random.permutation(items) + 10)
    style = random.integers(0, GENRES * STYLES, items)
    by_style = [np.flatnonzero(style == each) for each in range(GENRES * STYLES)]
    by_genre = [np.flatnonzero(style // STYLES == each) for each in range(GENRES)]
    totals = {id(pool): np.cumsum(popularity[pool]) for pool in (*by_style, *by_genre)}
    everything = np.arange(items)
    totals[id(everything)] = np.cumsum(popularity)

    def drawn(pool: np.ndarray, count: int) -> np.ndarray:
        """Items of a pool by popularity, by inversion."""
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
    """Writes the CSV."""
    numbers = enumerate(zip(*interactions(users, items, seed), strict=True))
    files.write_text(file, "user,item,time\n" + "".join(f"u{user},i{item},{time}\n" for time, (user, item) in numbers))
    return file


def main(argv: list[str]) -> int:
    """Writes the file, and says what is in it."""
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
