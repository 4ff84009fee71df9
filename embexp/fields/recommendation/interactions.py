"""Interactions of users with items, for recommendation: the catalogue, what each user has seen, what is held out.

The catalogue is the items of the training split, numbered by their rows in the vocabulary, so by falling frequency.
Users and items without a row of their own (out of vocabulary) are unknown: nothing can be recommended to them, and they
can't be recommended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embexp.data.examples import Examples, ListColumn, lists_of
from embexp.errors import DataError

SEEN = {"train": (), "validation": ("train",), "test": ("train", "validation")}
"""For each split that can be evaluated, the splits whose items are left out of a user's list."""


@dataclass(frozen=True)
class Catalogue:
    """The items that can be recommended.

    Attributes:
        rows: int64 [I], their rows in the vocabulary, rising; an item's place here is its number.
        examples: int64 [I], of each item the first training example, from which its features are read.
        counts: int64 [I], training examples of each item.
    """

    rows: np.ndarray
    examples: np.ndarray
    counts: np.ndarray

    @property
    def size(self) -> int:
        """I, the number of items."""
        return len(self.rows)

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """int64: the number of each item by its row in the vocabulary; -1 for one that is not in the catalogue."""
        places = np.minimum(np.searchsorted(self.rows, rows), self.size - 1)
        return np.where(self.rows[places] == rows, places, -1)


@dataclass(frozen=True)
class HeldOut:
    """N users and their held-out items, by numbers of the catalogue.

    Attributes:
        users: int64 [N], their rows in the vocabulary, rising.
        examples: int64 [N], of each user the first held-out example, from which its features are read.
        relevant: held-out items of each user, each once, rising.
        unknown: int64 [N], held-out items of each user that are not in the catalogue; nothing can recommend them.
        seen: items that are left out of each user's list, each once, rising.
        skipped: users that are not evaluated: unknown ones, and those who have seen all their held-out items before.
    """

    users: np.ndarray
    examples: np.ndarray
    relevant: ListColumn
    unknown: np.ndarray
    seen: ListColumn
    skipped: int

    def some(self, users: int) -> HeldOut:
        """At most so many of the users, evenly spaced."""
        chosen = np.arange(0, len(self.users), max(1, -(-len(self.users) // users)))
        lists = []
        for column in (self.relevant, self.seen):
            places, splits = column.taken(chosen)
            lists.append(ListColumn(column.values[places], splits))
        return HeldOut(
            self.users[chosen], self.examples[chosen], lists[0], self.unknown[chosen], lists[1], self.skipped
        )


@dataclass(frozen=True)
class Interactions:
    """The interactions of a run.

    Attributes:
        item_columns: all id columns with features of the item.
        special: rows in front of those of users, and of items, in their vocabularies, such as the OOV row.
    """

    user: str
    item: str
    item_columns: frozenset[str]
    catalogue: Catalogue
    special: tuple[int, int]

    def pairs(self, examples: Examples, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64 [n] each: the user's row in the vocabulary, and the item's number in the catalogue or -1."""
        return examples.column(self.user, rows), self.catalogue.numbers(examples.column(self.item, rows))

    def seen(self, examples: Examples, rows: Sequence[np.ndarray], users: np.ndarray) -> ListColumn:
        """The items of some examples, by user: each once, rising.

        Args:
            rows: of the examples that count.
            users: int64 [N], rows of the vocabulary, rising and distinct.
        """
        found = [self.pairs(examples, row) for row in rows]
        who = np.concatenate([np.empty(0, np.int64), *(pair[0] for pair in found)])
        what = np.concatenate([np.empty(0, np.int64), *(pair[1] for pair in found)])
        return lists_of(who, what, users, self.catalogue.size)

    def held_out(self, examples: Examples, rows: np.ndarray, before: Examples, seen: Sequence[np.ndarray]) -> HeldOut:
        """What is to be recommended to the users of some examples.

        Args:
            seen: rows of those whose items are left out.

        Raises:
            DataError: there is nobody to recommend anything to.
        """
        who, what = self.pairs(examples, rows)
        everyone, first = np.unique(who, return_index=True)
        left_out = self.seen(before, seen, everyone)
        kept = ~_contains(left_out, np.searchsorted(everyone, who), what, self.catalogue.size)
        known = everyone >= self.special[0]
        known &= np.bincount(np.searchsorted(everyone, who[kept]), minlength=len(everyone)) > 0
        if not known.any():
            raise DataError(
                f"none of {len(everyone):,} users has a held-out item: they are unknown, or have seen the items before"
            )
        users = everyone[known]
        misses = kept & (what < 0)
        items = examples.column(self.item, rows)[misses]
        lost = np.unique(np.stack([who[misses], items], axis=1), axis=0)[:, 0]
        return HeldOut(
            users=users,
            examples=rows[first[known]],
            relevant=lists_of(who[kept], what[kept], users, self.catalogue.size),
            unknown=np.bincount(np.searchsorted(everyone, lost), minlength=len(everyone))[known],
            seen=lists_of(np.repeat(everyone, np.diff(left_out.splits)), left_out.values, users, self.catalogue.size),
            skipped=int(len(everyone) - len(users)),
        )


def interactions(
    examples: Examples,
    train: np.ndarray,
    *,
    user: str,
    item: str,
    item_columns: Sequence[str],
    special: Mapping[str, int],
) -> Interactions:
    """The interactions of a run.

    Args:
        train: int64, rows of the training split, rising.
        item_columns: id columns with features of the item, that of the item among them.
        special: by column, the rows of its vocabulary in front of those of tokens.

    Raises:
        DataError: a column holds several values per example, or fewer than two items can be recommended.
    """
    for column, what in ((user, "user"), (item, "item")):
        if column in examples.lists:
            raise DataError(f"column {column!r} identifies the {what}, so it must hold one value per row")
    rows, first, counts = np.unique(examples.column(item, train), return_index=True, return_counts=True)
    known = rows >= special[item]
    catalogue = Catalogue(rows[known], train[first[known]], counts[known])
    if catalogue.size < 2:
        raise DataError(f"{catalogue.size} items of the training split are known; a recommendation needs two or more")
    return Interactions(user, item, frozenset(item_columns), catalogue, (special[user], special[item]))


def _contains(lists: ListColumn, place: np.ndarray, what: np.ndarray, size: int) -> np.ndarray:
    """Whether item `what` is in the list at `place`, for each pair."""
    listed = np.repeat(np.arange(len(lists.splits) - 1), np.diff(lists.splits)) * size + lists.values
    return np.isin(place * size + what, listed) & (what >= 0)
