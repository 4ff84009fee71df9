"""Exports of recommendation: vectors of users and items, and an index of the items."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from embexp.errors import RunError
from embexp.fields.recommendation.finished import vectors
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


def write(
    run: Run, directory: Path, out: Path, progress: Progress, *, index: str | None = None, recall: float = 0.99
) -> Written:
    """Writes the vectors of users and items with their tokens and, with a library, its index of the items.

    Args:
        index: its library: faiss, hnswlib or usearch; None: there is none.
        recall: the share of the best 10 items that a search is to find.

    Raises:
        DivergedError: a vector is not finite.
        RunError: the task is another, a library is missing, or the index does not reach the recall.
        DataError: a token has a line end.
    """
    library = None if index is None else search_index.Library(index)
    if library is not None and (fault := search_index.missing(library)):
        raise RunError(fault)
    found = vectors(run, progress=progress)
    found.check_finite()
    users, items, facts = found.of_users, found.of_items, dict[str, Any]()
    if library is not None:
        few = np.random.default_rng(0).permutation(len(users))[:_QUERIES]
        built = search_index.build(items, users[few], library, recall=recall, progress=progress)
        if built.added:
            users, items = search_index.with_zero(users), search_index.lengthened(items)
        built.index.save(directory / f"items.{library}", built.effort)
        facts = built.facts
        files.write_text(directory / "index.json", json.dumps(facts, indent=2) + "\n")
    for name, rows, tokens in zip(("users", "items"), (users, items), found.tokens(), strict=True):
        file, other = f"{name}.npy", "embexp.load_run(RUN).vectors() in Python"
        write_vectors(
            ArrayRows(rows),
            pa.array(tokens, pa.large_string()),
            directory / file,
            named=out / file,
            any_token=other,
            progress=progress,
        )
    return Written({"users": users.shape, "items": items.shape}, facts)
