"""The histories of users: the items of their training examples, in whatever example a user stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples, History, ListColumn
from embexp.data.vocabularies.vocabulary import Vocabulary


def with_histories(
    examples: Examples, columns: Columns, train: np.ndarray, vocabularies: Mapping[str, Vocabulary]
) -> Examples:
    """The examples with the histories that the columns name, as Koren's SVD++ reads them (2008, eq. 15).

    They are of the training split only, whatever example is read: an item of the validation or test split is in none.

    Args:
        train: int64, rows of the training split.
        vocabularies: by table.
    """
    found = {}
    for name, history in columns.histories.items():
        users, items = examples.column(history.user, train), examples.column(history.column, train)
        vocabulary = vocabularies[columns.ids[history.user]]
        # The rows of unknown, rare and missing users stand for several people: they have no history.
        known = users >= vocabulary.first
        everyone, size = np.arange(vocabulary.size), int(items.max(initial=0)) + 1
        lists = lists_of(users[known], items[known], everyone, size)
        found[name] = History(lists.values.astype(np.int32), lists.splits, history.user)
    return replace(examples, histories=found) if found else examples


def lists_of(who: np.ndarray, what: np.ndarray, users: np.ndarray, size: int) -> ListColumn:
    """Items below `size` by user of `users`, each once, rising; other users, and items of -1, are left out."""
    place = np.minimum(np.searchsorted(users, who), len(users) - 1)
    kept = (users[place] == who) & (what >= 0)
    place, what = np.divmod(np.unique(place[kept] * size + what[kept]), size)
    return ListColumn(what, np.searchsorted(place, np.arange(len(users) + 1)))
