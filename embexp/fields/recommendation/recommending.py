"""Vectors of the users and items of a finished run of task recommendation, and lists of the best items.

A score is the dot product of the two float32 vectors in float64, rounded to float32. So it does not depend on the order
in which a library adds, and whatever lists items by these vectors lists the same ones in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from embexp.data.examples import ListColumn
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import DataError, DivergedError, RunError, VocabularyError
from embexp.fields.recommendation.specs import Recommender
from embexp.specs.base import summarize_names
from embexp.system.parallel import Progress, quiet
from embexp.training import ranking

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
