"""The data of a run of recommendation: its interactions, new users and items, and what is held out of each split.

The catalogue is the items of the training split, numbered by their rows in the vocabulary, so by falling frequency.
Users and items without a row of their own (out of vocabulary) are unknown: nothing can be recommended to them, and they
can't be recommended.

New users and items are drawn by name and left out of all splits, so that it can be measured how they are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from embexp.data.examples import Examples, ListColumn, lists_of
from embexp.data.scan import Scan
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import DataError
from embexp.fields.recommendation.specs import Newcomers as Draw
from embexp.fields.recommendation.specs import Recommender
from embexp.runs.prepare import Data, with_histories
from embexp.specs.run import RunSpec
from embexp.system import digests

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
        raise DataError(f"{catalogue.size} items are in the training split; a recommendation needs at least two")
    return Interactions(user, item, frozenset(item_columns), catalogue, (special[user], special[item]))


def _contains(lists: ListColumn, place: np.ndarray, what: np.ndarray, size: int) -> np.ndarray:
    """For each pair, whether the item `what` is in the list at `place`."""
    listed = np.repeat(np.arange(len(lists.splits) - 1), np.diff(lists.splits)) * size + lists.values
    return np.isin(place * size + what, listed) & (what >= 0)


@dataclass(frozen=True)
class Newcomers:
    """Users and items that a run knows by name only, and their interactions, which it does not train.

    Attributes:
        users: int64, their rows in the vocabulary, rising.
        items: the same.
        of_items: int64, rows of the examples of other users with these items, of all splits.
        given: int64, rows of the examples of these users with other items, before the test split.
        asked: int64, rows of those in the test split.
    """

    users: np.ndarray
    items: np.ndarray
    of_items: np.ndarray
    given: np.ndarray
    asked: np.ndarray


def drawn(names: Iterable[str], kind: str, *, share: float, seed: int) -> list[str]:
    """A share of some names, at least one of them unless it is 0: a pure function of the names and the seed.

    Args:
        kind: of what they are names; those of each kind are drawn by themselves.
        share: fraction of them, rounded to a whole number.
    """
    if not share:
        return []
    found = sorted(names, key=lambda name: (digests.seed_of(seed, kind, name), name))
    return found[: max(1, round(share * len(found)))]


def without_newcomers(
    scan: Scan, columns: Sequence[str], vocabularies: Sequence[Vocabulary], draw: Draw
) -> tuple[Scan, Newcomers]:
    """The scan without the interactions of new users and items in its splits, and these interactions.

    Args:
        columns: of the user, and of the item.
        vocabularies: of users, and of items: rows that stand for no single one are never drawn.

    Raises:
        DataError: nothing is left to train on.
    """
    examples, new = scan.examples, []
    for kind, share, vocabulary in zip(("user", "item"), (draw.users, draw.items), vocabularies, strict=True):
        names = drawn(vocabulary.tokens(vocabulary.first), kind, share=share, seed=draw.seed)
        new.append(np.sort(vocabulary.rows(names)).astype(np.int64))
    kept, of_items, of_users = {}, {}, {}
    for split, rows in scan.splits.items():
        user, item = (np.isin(examples.column(name, rows), some) for name, some in zip(columns, new, strict=True))
        kept[split], of_items[split], of_users[split] = rows[~user & ~item], rows[item & ~user], rows[user & ~item]
    if not len(kept["train"]):
        raise DataError("every training example has a new user or a new item: set smaller shares in recommendation.new")
    found = Newcomers(
        new[0],
        new[1],
        np.sort(np.concatenate(list(of_items.values()))),
        np.sort(np.concatenate([of_users[split] for split in of_users if split != "test"])),
        of_users["test"],
    )
    users = [examples.column(columns[0], rows) for rows in (found.given, found.asked)]
    asked = int(np.isin(users[1], users[0]).sum())
    for kind, share, count in (("items", draw.items, len(found.of_items)), ("users", draw.users, asked)):
        if share and not count:
            what = (
                "interactions with known users" if kind == "items" else "known items both before and in the test split"
            )
            raise DataError(f"no new one of the {kind} has {what}: set a larger share, or another seed")
    key = digests.of_json([scan.key, draw.model_dump(mode="json")])
    return replace(scan, splits=kept, key=key), found


@dataclass(frozen=True)
class Recommended:
    """What is recommended, and to whom.

    Attributes:
        interactions: users, items and the catalogue.
        new: users and items that are in no split, and their interactions; None: there are none.
    """

    interactions: Interactions
    examples: Examples
    splits: Mapping[str, np.ndarray]
    new: Newcomers | None = None
    _held_out: dict[str, HeldOut] = field(default_factory=dict, init=False, repr=False, compare=False)

    def held_out(self, split: str) -> HeldOut:
        """The users of a split; what they have seen is in the splits before it.

        Raises:
            DataError: none of them can be evaluated.
        """
        if split not in self._held_out:  # the check before the training, each evaluation and popularity ask for it
            seen = [self.splits[name] for name in SEEN.get(split, SEEN["test"])]
            found = self.interactions.held_out(self.examples, self.splits[split], self.examples, seen)
            self._held_out[split] = found
        return self._held_out[split]


def complete(spec: RunSpec, data: Data) -> Data:
    """The data with what is recommended, without training examples of unknown items, and of new users and items.

    Raises:
        DataError: no user of a split can be evaluated, or nothing is left to train on.
    """
    assert isinstance(spec.model, Recommender)  # a rule between the settings
    names, new = spec.recommendation, None
    if names.new is not None:
        pair = names.user, names.item
        tables = [data.vocabularies[spec.features[each].table] for each in pair]
        scan, new = without_newcomers(data.scan, [spec.column_of(each) for each in pair], tables, names.new)
        data = replace(data, scan=scan)
    data = with_histories(data)
    examples, train = data.scan.examples, data.scan.splits["train"]
    by_ids = {spec.ids_of(name): data.vocabularies[feature.table] for name, feature in spec.features.items()}
    known = interactions(
        examples,
        train,
        user=spec.column_of(names.user),
        item=spec.column_of(names.item),
        item_columns=[spec.ids_of(name) for name in spec.model.item_side],
        special={column: vocabulary.first for column, vocabulary in by_ids.items()},
    )
    _, numbers = known.pairs(examples, train)
    splits = {**data.scan.splits, "train": train[numbers >= 0]} if (numbers < 0).any() else data.scan.splits
    found = Recommended(known, examples, splits, new)
    for split, rows in splits.items():
        if split != "train" and len(rows):
            found.held_out(split)  # which fails now, not after the training
    return replace(data, scan=replace(data.scan, splits=splits), candidates=found)
