"""A small knowledge graph: places on a circle, and relations that go some steps along it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

Triple = tuple[str, str, str]
STEPS = {"next": 1, "back": -1, "leap": 5}


def circle(places: int) -> list[Triple]:
    """All triples: none follows from how often something occurs."""
    steps = {**STEPS, "across": places // 2}
    return [
        (f"p{place}", relation, f"p{(place + step) % places}")
        for place in range(places)
        for relation, step in steps.items()
    ]


def write(folder: Path, **parts: Sequence[Triple]) -> Path:
    """Writes a folder with a file for each part (train, valid, test), and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, triples in parts.items():
        (folder / f"{name}.txt").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    return folder


def divided(folder: Path, triples: Sequence[Triple], *, test: int, valid: int) -> Path:
    """The same, with so many drawn by chance that test and validate; the rest trains."""
    order = np.random.default_rng(0).permutation(len(triples))
    mixed = [triples[number] for number in order]
    return write(folder, test=mixed[:test], valid=mixed[test : test + valid], train=mixed[test + valid :])


def read(folder: Path, part: str) -> list[Triple]:
    """What was written."""
    return [tuple(line.split("\t")) for line in (folder / f"{part}.txt").read_text().splitlines()]  # type: ignore[misc]
