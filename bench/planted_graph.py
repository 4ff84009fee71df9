"""Generates a knowledge graph with planted structure, as sparse and as regular as WordNet's WN18RR.

    python -m bench.planted_graph FOLDER [--entities N] [--triples M] [--held-out K] [--seed S]

The program writes `train.txt`, `valid.txt` and `test.txt` into FOLDER, in the form that `data=triples` reads. Entities
form families of 20. Each family is a tree: a root, 3 children, 16 grandchildren. 50 families form a ring, and each ring
has a domain.

| relation | share of the triples | what is planted |
|---|---|---|
| parent | 0.34 | hierarchical: the tree |
| ancestor | 0.07 | composed: the parent's parent |
| similar | 0.27 | symmetric: siblings, stated in both directions |
| part, whole | 0.22 | inverses of each other: the same place in the next family of the ring |
| domain | 0.10 | many to one: a ring's domain, which is the first root of the ring |

So a held-out triple follows from others: from its own converse, from siblings, or from the pattern of families. The
same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from embexp.system import files

ENTITIES, TRIPLES, HELD_OUT = 40_000, 90_000, 3_000
"""As many as in WN18RR. `HELD_OUT` triples are for validation, and as many for the test."""
FAMILY, CHILDREN, RING = 20, 3, 50
SHARES = {"parent": 0.34, "ancestor": 0.07, "similar": 0.27, "part": 0.22, "domain": 0.10}
_PAIRED = ("similar", "part")


def facts(entities: int) -> dict[str, np.ndarray]:
    """All true facts by relation, int64 [n, 2]: head and tail; symmetric and inverse relations in one direction."""
    number = np.arange(entities)
    place, first = number % FAMILY, number // FAMILY * FAMILY
    # Place 0 is the root, places 1 to 3 are its children, and the others are their children in turn.
    parent = np.where(place <= CHILDREN, first, first + 1 + (place - 1 - CHILDREN) % CHILDREN)
    below, leaves = place > 0, place > CHILDREN
    ring = number // (FAMILY * RING) * (FAMILY * RING)
    following = ring + (number - ring + FAMILY) % (FAMILY * RING)
    sibling = number + CHILDREN
    together = leaves & (sibling < entities) & (sibling // FAMILY * FAMILY == first)
    domain = number[number != ring]
    return {
        "parent": np.stack([number, parent], 1)[below],
        "ancestor": np.stack([number, first], 1)[leaves],
        "similar": np.stack([number, sibling], 1)[together],
        "part": np.stack([number, following], 1)[following < entities],
        "domain": np.stack([domain, ring[domain]], 1),
    }


def triples(entities: int, count: int, seed: int) -> list[tuple[int, str, int]]:
    """Draws about `count` triples from the facts, in random order.

    Raises:
        ValueError: there are fewer facts.
    """
    random, known = np.random.default_rng(seed), facts(entities)
    found: list[tuple[int, str, int]] = []
    seen = np.zeros(entities, np.bool_)
    for relation in sorted(known, key="parent".__eq__):  # parents last, so that entities without a triple get one
        pairs = known[relation]
        wanted = round(SHARES[relation] * count / (2 if relation in _PAIRED else 1))
        if wanted > len(pairs):
            raise ValueError(f"{entities:,} entities have {len(pairs):,} facts of {relation!r}, not {wanted:,}")
        order = random.permutation(len(pairs))
        if relation == "parent":
            order = order[np.argsort(seen[pairs[order, 0]], kind="stable")]
        drawn = pairs[order[:wanted]]
        seen[drawn] = True
        found += [(head, relation, tail) for head, tail in drawn.tolist()]
        if relation in _PAIRED:
            found += [(tail, "whole" if relation == "part" else relation, head) for head, tail in drawn.tolist()]
    return [found[place] for place in random.permutation(len(found))]


def write_graph(
    folder: Path, *, entities: int = ENTITIES, count: int = TRIPLES, held_out: int = HELD_OUT, seed: int = 0
) -> Path:
    """Writes the three files, and returns the folder. The last two files have `held_out` triples each."""
    folder.mkdir(parents=True, exist_ok=True)
    names = np.random.default_rng([seed, 1]).permutation(entities)  # a name reveals nothing about the structure
    lines = [f"e{names[head]}\t{relation}\te{names[tail]}\n" for head, relation, tail in triples(entities, count, seed)]
    parts = {"valid": lines[:held_out], "test": lines[held_out : 2 * held_out], "train": lines[2 * held_out :]}
    for part, some in parts.items():
        files.write_text(folder / f"{part}.txt", "".join(some))
    return folder


def command(argv: list[str]) -> int:
    """Writes a graph into a folder."""
    parser = argparse.ArgumentParser(prog="bench.planted_graph")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--entities", type=int, default=ENTITIES)
    parser.add_argument("--triples", type=int, default=TRIPLES)
    parser.add_argument(
        "--held-out", type=int, default=HELD_OUT, help="number of triples for validation, and again for the test"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    write_graph(
        options.folder,
        entities=options.entities,
        count=options.triples,
        held_out=options.held_out,
        seed=options.seed,
    )
    print(f"{options.triples:,} triples of {options.entities:,} entities in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
