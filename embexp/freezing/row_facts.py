"""What freeze policies know of the rows of a table, and what they return: a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from embexp.data.vocabularies.vocabulary import Vocabulary


@dataclass(frozen=True)
class RowFacts:
    """Facts about a table's rows.

    Attributes:
        rows: vocabulary size.
        rows_of: int64 row of each token, -1 for one without a row of its own; None: no vocabulary is at hand.
        pretrained: bool [rows], whether a row came from a file or a checkpoint; None: the table has none.
        old: bool [rows], whether a row came from a checkpoint as a trained one; None: the table has none.
    """

    rows: int
    rows_of: Callable[[Sequence[str]], np.ndarray] | None = None
    pretrained: np.ndarray | None = None
    old: np.ndarray | None = None


@dataclass(frozen=True)
class NamedRows:
    """The rows of a table that a rule names.

    Attributes:
        mask: bool [rows].
        shortfall: why it names fewer rows than the config lists, or "".
    """

    mask: np.ndarray
    shortfall: str = ""


Naming = Callable[[RowFacts], NamedRows]
"""A freeze policy: which rows of a table it names.

Raises:
    DataError: a file that it reads is malformed.
    ValueError: it is about tokens, and no vocabulary is at hand.
"""


def row_facts(
    vocabulary: Vocabulary | None, rows: int, pretrained: np.ndarray | None, old: np.ndarray | None
) -> RowFacts:
    """The facts about a table.

    Args:
        vocabulary: what its rows stand for; None: it is not at hand.
        rows: how many there are.
        pretrained: see `RowFacts`.
        old: see `RowFacts`.
    """
    return RowFacts(rows, None if vocabulary is None else partial(_own_rows, vocabulary), pretrained, old)


def _own_rows(vocabulary: Vocabulary, tokens: Sequence[str]) -> np.ndarray:
    """Row of each token; -1 also for those that share a row, such as the OOV row or a hash bucket."""
    rows = vocabulary.rows(list(tokens))
    return np.where(rows < vocabulary.first, -1, rows)
