"""Vectors of the users and items of a finished run of task recommendation, and lists of the best items.

A score is the dot product of the two float32 vectors in float64, rounded to float32. So it does not depend on the order
in which a library adds, and whatever lists items by these vectors lists the same ones in the same order.

`Run.recommend`, `Run.vectors` and the exports of both are here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from embexp.data.examples import ListColumn
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import DataError, DivergedError, RunError, UsageError, VocabularyError
from embexp.fields.recommendation import cold_starts
from embexp.fields.recommendation.cold_starts import with_new_items
from embexp.fields.recommendation.specs import Recommender
from embexp.runs.exporting import Written
from embexp.runs.prepare import read_recorded_data
from embexp.specs.base import summarize_names
from embexp.system import caching, files
from embexp.system.arrays import ArrayRows
from embexp.system.parallel import Progress, quiet
from embexp.training import ranking
from embexp.vectors import search_index
from embexp.vectors.write import write_vectors

if TYPE_CHECKING:
    from embexp.fields.recommendation.evaluation import ListEvaluator
    from embexp.runs.finished import Run
    from embexp.runs.prepare import Data
    from embexp.training.loop import Predictor


@dataclass(frozen=True)
class Vectors:
    """Vectors of U users and of the I items of the catalogue.

    Attributes:
        users: int64 [U], their rows in the vocabulary, rising.
        items: int64 [I], their rows in the vocabulary, rising; an item's place here is its number.
        of_users: float32 [U, d].
        of_items: float32 [I, d], then those of new items; a bias is one more number, where that of the user is 1.
        counts: int64 [I], the items' interactions in the training split.
        seen: numbers of the items that each user has in any split, each once, rising.
        vocabularies: of users, and of items.
        new_items: names of items that are not of the catalogue; they come after it.
        new_users: names of all users, where the run does not know them; then `users` are their places here.
    """

    users: np.ndarray
    items: np.ndarray
    of_users: np.ndarray
    of_items: np.ndarray
    counts: np.ndarray
    seen: ListColumn
    vocabularies: tuple[Vocabulary, Vocabulary]
    new_items: tuple[str, ...] = ()
    new_users: tuple[str, ...] = ()

    def tokens(self) -> tuple[list[str], list[str]]:
        """The tokens of the users, and of the items."""
        users, items = (vocabulary.tokens() for vocabulary in self.vocabularies)
        named = [items[row] for row in self.items.tolist()]
        return [*self.new_users] or [users[row] for row in self.users.tolist()], [*named, *self.new_items]

    def check_finite(self) -> None:
        """Raises DivergedError if a vector has a number that is not finite."""
        if not (np.isfinite(self.of_users).all() and np.isfinite(self.of_items).all()):
            raise DivergedError("vectors of users or items are not finite numbers: the training has diverged")

    def lists(
        self, count: int, *, include_seen: bool = False, progress: Progress = quiet
    ) -> Iterator[tuple[int, ranking.Best]]:
        """The best items for each user, without those that the user has seen.

        Args:
            count: items of each list.

        Yields:
            The number of the first of some users, and their lists.

        Raises:
            DivergedError: a score is not finite.
        """
        columns = np.ascontiguousarray(self.of_items.T, np.float64)
        users = len(self.users)

        def scores(start: int, stop: int) -> np.ndarray:
            progress("ranking items", start / max(1, users))
            return np.asarray(self.of_users[start:stop].astype(np.float64) @ columns, np.float32)

        nothing = ListColumn(np.empty(0, np.int64), np.zeros(users + 1, np.int64))
        hidden = nothing if include_seen else self.seen
        for start, _, block in ranking.user_blocks(scores, users, len(self.of_items), hidden):
            yield start, ranking.best_items(block, count)

    def named_lists(
        self, count: int, *, include_seen: bool = False, progress: Progress = quiet
    ) -> dict[str, list[tuple[str, float]]]:
        """What `lists` yields, by user: items and scores, the best first."""
        (names, tokens), found = self.tokens(), {}
        for start, best in self.lists(count, include_seen=include_seen, progress=progress):
            listed = zip(names[start : start + len(best.items)], best.items.tolist(), best.scores.tolist(), strict=True)
            for user, items, scores in listed:
                found[user] = [(tokens[item], score) for item, score in zip(items, scores, strict=True) if item >= 0]
        return found


def compute_vectors(
    evaluator: ListEvaluator,
    data: Data,
    runtime: Predictor,
    users: Sequence[str] | None = None,
    progress: Progress = quiet,
) -> Vectors:
    """Vectors of users of the run's own data, and of all items.

    A user's features are read from the last example of the user.

    Args:
        users: their tokens; None: all that have a row of their own.

    Raises:
        VocabularyError: a user is unknown.
        DataError: the data has no example of a user.
    """
    interactions, examples = data.candidates.interactions, data.scan.examples
    assert interactions is not None  # the task is recommendation
    shared = data.columns.ids
    known, items = (data.vocabularies[shared[column]] for column in (interactions.user, interactions.item))
    splits = list(data.scan.splits.values())
    rows = np.sort(np.concatenate(splits))
    everyone, last = np.unique(interactions.pairs(examples, rows)[0][::-1], return_index=True)
    who = everyone[everyone >= interactions.special[0]]
    if users is not None:
        who = known.rows(list(users))
        unknown = [user for user, row in zip(users, who, strict=True) if row < known.first]
        if unknown:
            raise VocabularyError(
                f"{summarize_names([repr(user) for user in unknown])}: not in the training split of the run, so it"
                " has learned nothing of them"
            )
        who = np.unique(who)
    place = np.minimum(np.searchsorted(everyone, who), len(everyone) - 1)
    if (everyone[place] != who).any():
        raise DataError("the run's data has no example of some of these users")
    of_users, of_items = evaluator.vectors(data, runtime, data.columns, examples, rows[::-1][last[place]], progress)
    of_users, of_items = (np.ascontiguousarray(each, np.float32) for each in (of_users, of_items))
    seen = interactions.seen(examples, splits, who)
    catalogue = interactions.catalogue
    return Vectors(who, catalogue.rows, of_users, of_items, catalogue.counts, seen, (known, items))


def recommender(run: Run) -> Recommender:
    """The model of a run of task recommendation; raises RunError if the task is another."""
    if not isinstance(run.spec.model, Recommender):
        raise RunError(
            f"{run.folder.path}: task {run.spec.task} gives users and items no vectors; those, recommend and"
            " indexes are for task recommendation"
        )
    return run.spec.model


def recommend(
    run: Run,
    users: Sequence[str] | None = None,
    count: int = 10,
    *,
    histories: cold_starts.Histories | None = None,
    unknown: dict[str, int] | None = None,
    include_seen: bool = False,
    content: Path | str | None = None,
    only_new: bool = False,
    progress: Progress = quiet,
) -> dict[str, list[tuple[str, float]]]:
    """The best items for users of the run's own data, or new ones, of task recommendation.

    Args:
        users: their names; None: all users of the training split. Their features are those of their last example.
        count: items of each list; a user who has seen nearly everything gets fewer.
        histories: items of users by name, who are taken for new ones; see `cold_starts.vectors_of_new_users`. A user
            none of whose items the run knows gets an empty list.
        unknown: gets the items of `histories` that the run does not know, and how many of the users have each.
        include_seen: list items too that the user has in any split of that data, or in `histories`.
        content: file of vectors of the content of items, with their ids, to list those that the run does not know,
            as `study=new_items` measures it; None: no new items.
        only_new: list nothing but new items.
        progress: called with stages, and how much of each is done.

    Returns:
        By user the items and their scores, the best first; equal ones by rising row.

    Raises:
        RunError: the task is another.
        UsageError: `count` is less than 1, `only_new` has no `content`, or `users` and `histories` are both given.
        VocabularyError: a user is unknown, or nobody of `histories` has a known item.
        DataError: `content` is no file of vectors, or has none of known items, or of new ones; or the run's own
            data have changed.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"Run.recommend: count must be a whole number of at least 1, not {count!r}")
    if only_new and content is None:
        raise UsageError("Run.recommend: only_new lists items by their content, and content is None")
    if users is not None and histories is not None:
        raise UsageError("Run.recommend: users are of the run's data, and those of histories are not: give one")
    if histories is None:
        names, known = users, vectors(run, users, progress=progress)
    else:
        names, features = (
            list(histories),
            [run.spec.ids_of(name) for name in recommender(run).user_features],
        )
        evaluator, own = _evaluator(run), read_recorded_data(run.folder, run.spec, progress)
        known = cold_starts.vectors_of_new_users(
            evaluator, own, run.runtime, recommender(run), features, histories, unknown, progress
        )
    if content is not None:
        cache = caching.cache_folder(run.spec.output.cache)
        known = with_new_items(known, run.spec.model, str(content), only=only_new, cache=cache, progress=progress)
    found = known.named_lists(count, include_seen=include_seen, progress=progress)
    return found if names is None else {user: found.get(user, []) for user in names}


def vectors(run: Run, users: Sequence[str] | None = None, *, progress: Progress = quiet) -> Vectors:
    """Vectors of users and items of the run's own data, for task recommendation: products are scores.

    Args:
        users: see `recommend`.
        progress: called with stages, and how much of each is done.

    Raises:
        RunError: the task is another.
        VocabularyError: a user is unknown.
        DataError: the run's own data have changed.
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
