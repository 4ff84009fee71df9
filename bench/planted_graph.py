"""A knowledge graph with planted structure, made by code: so sparse and so regular as WordNet's WN18RR.

    python -m bench.planted_graph FOLDER [--entities N] [--triples M] [--held-out K] [--seed S]

FOLDER gets `train.txt`, `valid.txt` and `test.txt`, as `data=triples` reads them. Entities live in families of 20, each
a tree: a root, 3 children, 16 grandchildren. Families form rings of 50, and each ring has a domain.

| relation | share of the triples | what is planted |
|---|---|---|
| parent | 0.34 | hierarchical: a tree |
| ancestor | 0.07 | composed: the parent's parent |
| similar | 0.27 | symmetric: siblings, stated in both directions |
| part, whole | 0.22 | inverse of each other: the same place in the next family of the ring |
| domain | 0.10 | many to one: a ring's domain, which is the first root of the ring |

So a triple that is held out follows from others: from its own converse, from siblings, or from how families go on. The
same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from embexp.system import files

ENTITIES, TRIPLES, HELD_OUT = 40_000, 90_000, 3_000
"""As many as in WN18RR, with as many for validation and as many for the test."""
FAMILY, CHILDREN, RING = 20, 3, 50
SHARES = {"parent": 0.34, "ancestor": 0.07, "similar": 0.27, "part": 0.22, "domain": 0.10}
_PAIRED = ("similar", "part")


def facts(entities: int) -> dict[str, np.ndarray]:
    """All that is true, by relation: int64 [n, 2], head and tail. Of symmetric and inverse relations one direction."""
    number = np.arange(entities)
    place, first = number % FAMILY, number // FAMILY * FAMILY
    # Place 0 is the root, 1 to 3 its children, and the others theirs, in turn.
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
    """About `count` triples, drawn from the facts, in random order.

    Raises:
        ValueError: there are fewer facts than that.
    """
    random, known = np.random.default_rng(seed), facts(entities)
    found: list[tuple[int, str, int]] = []
    seen = np.zeros(entities, np.bool_)
    for relation in sorted(known, key="parent".__eq__):  # parents last: entities without a triple get theirs
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
    """Writes the three files, the last two with `held_out` triples each, and returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = np.random.default_rng([seed, 1]).permutation(entities)  # a name tells nothing of the structure
    lines = [f"e{names[head]}\t{relation}\te{names[tail]}\n" for head, relation, tail in triples(entities, count, seed)]
    parts = {"valid": lines[:held_out], "test": lines[held_out : 2 * held_out], "train": lines[2 * held_out :]}
    for part, some in parts.items():
        files.write_text(folder / f"{part}.txt", "".join(some))
    return folder


def command(argv: list[str]) -> int:
    """Writes a graph."""
    parser = argparse.ArgumentParser(prog="bench.planted_graph")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--entities", type=int, default=ENTITIES)
    parser.add_argument("--triples", type=int, default=TRIPLES)
    parser.add_argument(
        "--held-out", type=int, default=HELD_OUT, help="triples for validation, and as many for the test"
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
