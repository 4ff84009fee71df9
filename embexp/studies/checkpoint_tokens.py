"""The tokens of the rows of a checkpoint's tables, where it lies in a run's directory."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from embexp.data.vocabularies.buckets import same_rows, stands_for_tokens
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.records.folder import around

if TYPE_CHECKING:
    from collections.abc import Callable

    from embexp.checkpoints.contents import Contents
    from embexp.checkpoints.difference import RowMatch


def vocabularies(contents: Contents) -> Callable[[str], Vocabulary | None]:
    """Reads vocabularies of tables by name; None for a table that has none, as the checkpoint is in no run.

    Args:
        contents: of a checkpoint, which is in `checkpoints/NAME` of its run.
    """
    run = around(contents.source)
    folder = None if run is None else run.vocabularies

    @cache
    def read(table: str) -> Vocabulary | None:
        if folder is None or not any((folder / f"{table}{end}").is_file() for end in (".tsv", ".json")):
            return None
        return Vocabulary.read(folder / table)

    return read


def row_matches(
    a: Contents, vocabulary_a: Callable[[str], Vocabulary | None], vocabulary_b: Callable[[str], Vocabulary | None]
) -> dict[str, RowMatch]:
    """Which rows of B have the tokens of rows of A, by key in A: for tables and slots whose vocabularies differ."""
    matches: dict[str, RowMatch] = {}
    partners: dict[str, RowMatch | None] = {}
    for key, entry in a.entries.items():
        table = entry.info.table
        if table is None:
            continue
        if table not in partners:
            first, second = vocabulary_a(table), vocabulary_b(table)
            same = first is None or second is None or _equal(first, second)
            partners[table] = None if same else _match(first, second)  # type: ignore[arg-type]
        if (match := partners[table]) is not None:
            matches[key] = match
    return matches


def token(vocabulary: Vocabulary | None, row: int) -> str | None:
    """The token of a row; None where it has none."""
    if vocabulary is None or row >= vocabulary.size:
        return None
    return vocabulary.tokens(row, row + 1)[0]


def tokens_of(table: str | None, vocabulary: Callable[[str], Vocabulary | None]) -> Callable[[int], str | None]:
    """The tokens of a table's rows, by row; of what is no table, none."""
    return lambda row: None if table is None else token(vocabulary(table), row)


def _equal(a: Vocabulary, b: Vocabulary) -> bool:
    return type(a) is type(b) and a.digest == b.digest


def _match(a: Vocabulary, b: Vocabulary) -> RowMatch:
    @cache
    def rows() -> np.ndarray:
        found = np.full(a.size, -1, np.int64)
        if stands_for_tokens(a) and stands_for_tokens(b):
            partners = b.rows(a.known if isinstance(a, TokenVocabulary) else a.tokens(a.first))
            found[a.first :] = np.where(partners < b.first, -1, partners)  # rows that unknown tokens have there
        mine, theirs = same_rows(a, b)
        found[mine] = theirs
        return found

    def match(start: int, stop: int) -> np.ndarray:
        found = rows()[start:stop]
        # A table may have more rows than its vocabulary.
        return np.concatenate([found, np.full(stop - start - len(found), -1, np.int64)])

    return match
