"""Recommendations of a run: their evaluation, the popularity baseline, and lists for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from embexp.data import batches
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.interactions import SEEN, HeldOut, Interactions
from embexp.errors import DataError
from embexp.runs.data import Data
from embexp.specs.run import RunSpec
from embexp.training import ranking
from embexp.training.loop import Runtime

_USER, _ITEM = 0, 1


@dataclass(frozen=True)
class Vectors:
    """The vectors of a run, of which scores are dot products.

    Attributes:
        users: float32 [N, d], of some examples' users.
        items: float32 [I, d], of the catalogue.
    """

    users: np.ndarray
    items: np.ndarray


def held_out_file(data: Data, examples: Examples) -> HeldOut:
    """The users of another file; they have seen what is in the training and validation splits.

    Raises:
        DataError: none of them can be evaluated.
    """
    scan = data.scan
    seen = [scan.splits[name] for name in SEEN["test"]]
    return _interactions(data).held_out(examples, np.arange(examples.count), scan.examples, seen)


def evaluation(
    spec: RunSpec, data: Data, held: HeldOut, columns: Columns, examples: Examples
) -> Callable[[Runtime], dict[str, float]]:
    """Prepares the evaluation of some users.

    Args:
        spec: of the run.
        data: of the run, with the catalogue.
        held: the users and their held-out items.
        columns: what is read of the held-out examples.
        examples: these.
    """

    def measured(runtime: Runtime) -> dict[str, float]:
        found = vectors(spec, data, runtime, columns, examples, held.examples)
        return _metrics(spec, held, ranking.products(found.users, found.items), len(found.items))

    return measured


def vectors(
    spec: RunSpec, data: Data, runtime: Runtime, columns: Columns, examples: Examples, rows: np.ndarray
) -> Vectors:
    """The vectors of the users of some examples, and of all items.

    Args:
        spec: of the run.
        data: of the run, with the catalogue.
        runtime: computes them.
        columns: what is read of the examples.
        examples: encoded.
        rows: int64 [N], which of them.
    """
    catalogue = _interactions(data).catalogue
    return Vectors(
        users=_side(spec, runtime, columns, examples, rows)[_USER],
        items=_side(spec, runtime, data.columns, data.scan.examples, catalogue.examples)[_ITEM],
    )


def lists(
    spec: RunSpec, data: Data, runtime: Runtime, users: np.ndarray | None, count: int
) -> Iterator[tuple[np.ndarray, ranking.Best]]:
    """The best items for users of the run's own data, without all that they have seen in any of its splits.

    A user's features are read from the last example of the user.

    Args:
        spec: of the run.
        data: of the run.
        runtime: computes vectors.
        users: int64, their rows in the vocabulary, rising; None: all that are known.
        count: items of each list.

    Yields:
        Some users, by their rows, and their lists.

    Raises:
        DataError: the data has no example of a user.
    """
    known, examples = _interactions(data), data.scan.examples
    splits = list(data.scan.splits.values())
    rows = np.sort(np.concatenate(splits))
    everyone, last = np.unique(known.pairs(examples, rows)[0][::-1], return_index=True)
    users = everyone[everyone >= known.special[0]] if users is None else users
    place = np.minimum(np.searchsorted(everyone, users), len(everyone) - 1)
    if (everyone[place] != users).any():
        raise DataError("the run's data has no example of some of these users")
    found = vectors(spec, data, runtime, data.columns, examples, rows[::-1][last[place]])
    seen = known.seen(examples, splits, users)
    scores = ranking.products(found.users, found.items)
    for start, stop, block in ranking.user_blocks(scores, len(users), len(found.items), seen):
        yield users[start:stop], ranking.best_items(block, count)


def popularity(spec: RunSpec, data: Data) -> dict[str, dict[str, float]]:
    """By split the metrics of lists of the items that are most frequent in the training split, the same for all."""
    counts = _interactions(data).catalogue.counts.astype(np.float64)
    found = {}
    for split, rows in data.scan.splits.items():
        if split != "train" and len(rows):
            found[split] = _metrics(spec, data.held_out(split), ranking.same_for_all(counts), len(counts))
    return found


def warnings(
    spec: RunSpec, data: Data, final: Mapping[str, Mapping[str, float]], baseline: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """What a user should know of the evaluation: users that were left out, and a model that learned too little.

    Args:
        spec: of the run.
        data: of the run.
        final: metrics of the model by split.
        baseline: those of popularity.
    """
    found = []
    first = f"ndcg_at_{spec.recommendation.cutoffs[0]}"
    for split, popular in baseline.items():
        if skipped := data.held_out(split).skipped:
            found.append(
                f"{split}: {skipped:,} users are not evaluated: the training split does not have them, or they have"
                " seen their held-out items before"
            )
        if split in final and final[split][first] <= popular[first]:
            found.append(
                f"{split}: {first} is {final[split][first]:.4f}, no better than that of the most popular items,"
                f" {popular[first]:.4f}: train longer, or try another learning rate or loss"
            )
    return found


def _interactions(data: Data) -> Interactions:
    assert data.interactions is not None  # the task is recommendation
    return data.interactions


def _metrics(spec: RunSpec, held: HeldOut, scores: ranking.Scores, items: int) -> dict[str, float]:
    return ranking.evaluate_lists(
        scores,
        items,
        relevant=held.relevant,
        unknown=held.unknown,
        seen=held.seen,
        cutoffs=spec.recommendation.cutoffs,
    )


def _side(
    spec: RunSpec, runtime: Runtime, columns: Columns, examples: Examples, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the users and of the items of some examples, float32 [N, d] each."""
    shown = batches.evaluation_batches(examples, rows, columns, batch_size=spec.evaluation_batch_size)
    found = np.concatenate([vectors for _, vectors in runtime.predict(shown)])
    return found[:, _USER], found[:, _ITEM]
