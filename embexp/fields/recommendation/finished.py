"""What a finished run of recommendation can do besides: `Run.recommend`, `Run.vectors`, and exports of both sides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from embexp.errors import RunError, UsageError
from embexp.fields.recommendation import recommending
from embexp.fields.recommendation.recommending import Vectors, compute_vectors, recommender, with_new_items
from embexp.runs.finished import Written
from embexp.runs.prepare import read_recorded_data
from embexp.system import caching, files
from embexp.system.arrays import ArrayRows
from embexp.system.parallel import Progress, quiet
from embexp.vectors import neighbors
from embexp.vectors.write import write_vectors

if TYPE_CHECKING:
    from embexp.fields.recommendation.evaluation import ListEvaluator
    from embexp.runs.finished import Run


def recommend(
    run: Run,
    users: Sequence[str] | None = None,
    count: int = 10,
    *,
    histories: recommending.Histories | None = None,
    unknown: dict[str, int] | None = None,
    include_seen: bool = False,
    content: Path | str | None = None,
    only_new: bool = False,
    progress: Progress = quiet,
) -> dict[str, list[tuple[str, float]]]:
    """The best items for users of the run's own data or for new users; for task recommendation.

    Args:
        users: names of users; None: all users of the training split. Their features come from their last example.
        count: number of items per list; a user who has seen nearly everything gets fewer.
        histories: items by user name; these users are treated as new, see `recommending.vectors_of_new_users`. If the
            run knows none of a user's items, the list is empty.
        unknown: is filled with the items of `histories` that the run does not know, and the number of users that have
            each.
        include_seen: whether to list items that the user already has in any split of that data or in `histories`.
        content: a file with content vectors of items and their ids, to list items that the run does not know, as
            `study=new_items` measures; None: no new items.
        only_new: whether to list only new items.
        progress: called with each stage and the fraction of it that is done.

    Returns:
        By user, items and scores, the best first; ties are ordered by row.

    Raises:
        RunError: the task is not recommendation.
        UsageError: `count` is less than 1, `only_new` has no `content`, or `users` and `histories` are both given.
        VocabularyError: a user is unknown, or no user of `histories` has a known item.
        DataError: `content` is not a file of vectors, or lacks vectors of known or new items; or the run's own data has
            changed.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"Run.recommend: count must be a whole number of at least 1, not {count!r}")
    if only_new and content is None:
        raise UsageError("Run.recommend: only_new lists items by their content, but content is None")
    if users is not None and histories is not None:
        raise UsageError(
            "Run.recommend: users are in the run's data, but those of histories are not: give only one of them"
        )
    if histories is None:
        names, known = users, vectors(run, users, progress=progress)
    else:
        names, features = (
            list(histories),
            [run.spec.ids_of(name) for name in recommender(run).user_features],
        )
        evaluator, own = _evaluator(run), read_recorded_data(run.folder, run.spec, progress)
        known = recommending.vectors_of_new_users(
            evaluator, own, run.runtime, recommender(run), features, histories, unknown, progress
        )
    if content is not None:
        cache = caching.cache_folder(run.spec.output.cache)
        known = with_new_items(known, run.spec.model, str(content), only=only_new, cache=cache, progress=progress)
    found = known.named_lists(count, include_seen=include_seen, progress=progress)
    return found if names is None else {user: found.get(user, []) for user in names}


def vectors(run: Run, users: Sequence[str] | None = None, *, progress: Progress = quiet) -> Vectors:
    """Vectors of users and items of the run's own data, for task recommendation. Their dot products are the scores.

    Args:
        users: see `recommend`.
        progress: called with each stage and the fraction of it that is done.

    Raises:
        RunError: the task is not recommendation.
        VocabularyError: a user is unknown.
        DataError: the run's own data has changed.
    """
    recommender(run)
    evaluator, own = _evaluator(run), read_recorded_data(run.folder, run.spec, progress)
    return compute_vectors(evaluator, own, run.runtime, users, progress)


def _evaluator(run: Run) -> ListEvaluator:
    from embexp.fields.recommendation.evaluation import ListEvaluator

    found = run.evaluator()
    assert isinstance(found, ListEvaluator)  # the task is recommendation
    return found


_QUERIES = 2_000
"""Number of users whose vectors tune and measure an index."""


def write_sides(run: Run, directory: Path, out: Path, progress: Progress) -> Written:
    """Writes the vectors of users and items with their tokens.

    Raises:
        DivergedError: a vector is not finite.
        RunError: the task is not recommendation.
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
    if fault := neighbors.missing_faiss():
        raise RunError(fault)
    found = vectors(run, progress=progress)
    found.check_finite()
    few = np.random.default_rng(0).permutation(len(found.of_users))[:_QUERIES]
    built = neighbors.build_index(found.of_items, found.of_users[few], recall=recall, progress=progress)
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
