"""Exports of recommendation: vectors of users and items, and an index of the items."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from embexp.errors import RunError
from embexp.fields.recommendation.finished import vectors
from embexp.fields.recommendation.recommending import Vectors
from embexp.runs.exporting import Written
from embexp.system import files
from embexp.system.arrays import ArrayRows
from embexp.system.parallel import Progress
from embexp.vectors import search_index
from embexp.vectors.write import write_vectors

if TYPE_CHECKING:
    from embexp.runs.finished import Run

_QUERIES = 2_000
"""Users whose vectors tune and measure an index."""


def write_sides(run: Run, directory: Path, out: Path, progress: Progress) -> Written:
    """Writes the vectors of users and items with their tokens.

    Raises:
        DivergedError: a vector is not finite.
        RunError: the task is another.
        DataError: a token has a line end.
    """
    return _written(vectors(run, progress=progress), directory, out, progress)


def write_index(run: Run, directory: Path, out: Path, progress: Progress, *, recall: float = 0.99) -> Written:
    """Writes the same, and an index of the items by faiss.

    Args:
        recall: the share of the best 10 items that a search is to find.

    Raises:
        RunError: faiss is missing, or does not reach the recall.
    """
    if fault := search_index.missing():
        raise RunError(fault)
    found = vectors(run, progress=progress)
    found.check_finite()
    few = np.random.default_rng(0).permutation(len(found.of_users))[:_QUERIES]
    built = search_index.build(found.of_items, found.of_users[few], recall=recall, progress=progress)
    built.index.save(directory / "items.faiss", built.effort)
    files.write_text(directory / "index.json", json.dumps(built.facts, indent=2) + "\n")
    return replace(_written(found, directory, out, progress), facts=built.facts)


def _written(found: Vectors, directory: Path, out: Path, progress: Progress) -> Written:
    found.check_finite()
    sides = {"users": found.of_users, "items": found.of_items}
    for (name, rows), tokens in zip(sides.items(), found.tokens(), strict=True):
        texts, file = pa.array(tokens, pa.large_string()), f"{name}.npy"
        write_vectors(
            ArrayRows(rows),
            texts,
            directory / file,
            named=out / file,
            any_token="embexp.load_run(RUN).vectors() in Python",
            progress=progress,
        )
    return Written({name: rows.shape for name, rows in sides.items()})
