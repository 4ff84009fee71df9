"""The tokens of the rows of a checkpoint's tables, where it lies in a run's directory."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from embexp.data.vocabulary import IdentityVocabulary, TokenVocabulary, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from embexp.checkpoints.contents import Contents
    from embexp.checkpoints.difference import RowMatch


def vocabularies(contents: Contents) -> Callable[[str], Vocabulary | None]:
    """Reads vocabularies of tables by name; None for a table that has none, as the checkpoint is in no run.

    Args:
        contents: of a checkpoint, which is in `checkpoints/NAME` of its run.
    """
    # DIR/checkpoints/NAME/checkpoint, or one folder further down for the second index of a name-based one.
    above = list(contents.source.absolute().parents)[:4]
    folder = next((each / "vocabularies" for each in above if (each / "spec.json").is_file()), None)

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
    if isinstance(a, TokenVocabulary) and isinstance(b, TokenVocabulary):
        return a.oov == b.oov and a.known.equals(b.known)
    return isinstance(a, IdentityVocabulary) and isinstance(b, IdentityVocabulary) and a.size == b.size


def _match(a: Vocabulary, b: Vocabulary) -> RowMatch:
    @cache
    def rows() -> np.ndarray:
        first = int(a.oov)
        tokens = a.known if isinstance(a, TokenVocabulary) else a.tokens(first)
        partners = b.rows(tokens)
        if b.oov:  # an unknown token's row there
            partners = np.where(partners == 0, -1, partners)
        return np.concatenate([[0 if b.oov else -1], partners]) if a.oov else partners

    def match(start: int, stop: int) -> np.ndarray:
        found = rows()[start:stop]
        # A table may have more rows than its vocabulary.
        return np.concatenate([found, np.full(stop - start - len(found), -1, np.int64)])

    return match
