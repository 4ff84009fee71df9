"""New users and items: drawn by name and left out of all splits, so that it can be measured how they are served."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from embexp.data.scan import Scan
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import DataError
from embexp.fields.recommendation.specs import Newcomers as Draw
from embexp.system import digests


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
