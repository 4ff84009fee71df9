"""Histories: of each user the items of all training examples, as Koren's SVD++ reads them (2008, eq. 15).

They are of the training split only, whatever example is read: an item of the validation or test split is in none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples, History
from embexp.data.vocabularies.vocabulary import Vocabulary


def added(examples: Examples, columns: Columns, train: np.ndarray, vocabularies: Mapping[str, Vocabulary]) -> Examples:
    """The examples with the histories that the columns name.

    Args:
        train: int64, rows of the training split.
        vocabularies: by table.
    """
    found = {}
    for name, history in columns.histories.items():
        users, items = examples.column(history.user, train), examples.column(history.column, train)
        vocabulary = vocabularies[columns.ids[history.user]]
        # Those who share a row of unknown, rare or missing values share no taste.
        known = users >= vocabulary.first
        pairs = np.unique(np.stack([users[known], items[known]]), axis=1)
        lengths = np.bincount(pairs[0], minlength=vocabulary.size)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        found[name] = History(pairs[1].astype(np.int32), splits, history.user)
    return replace(examples, histories=found) if found else examples
