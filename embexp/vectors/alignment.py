"""From the rows of a table to the rows of a file: the provenance of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
import pyarrow as pa

from embexp.specs.pretrained import Match
from embexp.vectors import matching


class RowKind(IntEnum):
    """Where a row's initial values come from."""

    MISSING = 0
    """Its token is not in the file."""
    PRETRAINED = 1
    """The file."""
    SPECIAL = 2
    """It stands for no token of its own: the OOV row, and rows that the vocabulary leaves free."""


@dataclass(frozen=True)
class RowTokens:
    """What the rows of a table stand for.

    Attributes:
        tokens: of the rows `first`, `first` + 1, …
        first: the first row with a token of its own; those before are special.
        frequencies: int64 [tokens], how often each was seen in the training split; None where that was not counted.
    """

    tokens: pa.LargeStringArray
    first: int = 0
    frequencies: np.ndarray | None = None


@dataclass(frozen=True)
class Alignment:
    """The provenance of each row of a table.

    Attributes:
        file_rows: int32 or int64 [rows], row in the file, -1 where it has none.
        kinds: uint8 [rows], a `RowKind` each.
        by: how many rows were found by each comparison of tokens; empty where rows are taken by position.
    """

    file_rows: np.ndarray
    kinds: np.ndarray
    by: Mapping[Match, int] = field(default_factory=dict)

    @cached_property
    def pretrained(self) -> np.ndarray:
        """Bool [rows]: whether a row came from the file."""
        alike = self.kinds.strides == (0,)  # then a mask of all rows takes no memory either
        found: np.ndarray = (self.kinds[:1] if alike else self.kinds) == RowKind.PRETRAINED
        return np.broadcast_to(found, self.kinds.shape) if alike else found

    def count(self, kind: RowKind) -> int:
        """Number of rows of a kind."""
        return int(np.count_nonzero(self.kinds == kind))


def by_token(words: RowTokens, file_tokens: pa.LargeStringArray, how: Match, *, rows: int) -> Alignment:
    """Aligns a table with a file whose rows have tokens.

    Args:
        words: what the table's rows stand for.
        file_tokens: of the file's rows.
        how: when two tokens are the same.
        rows: of the table; those behind the last token are special.

    Raises:
        ValueError: there are more tokens than rows.
    """
    last = words.first + len(words.tokens)
    if last > rows:
        raise ValueError(f"a table of {rows} rows can't hold {last}")
    matched = matching.match(words.tokens, file_tokens, how)
    file_rows = np.full(rows, -1, np.int64)
    file_rows[words.first : last] = matched.rows
    kinds = np.full(rows, RowKind.SPECIAL, np.uint8)
    kinds[words.first : last] = np.where(matched.rows >= 0, RowKind.PRETRAINED, RowKind.MISSING)
    return Alignment(file_rows, kinds, matched.by)


def by_position(rows: int) -> Alignment:
    """Aligns a table with a file of as many rows that have no tokens: row for row."""
    # Such files may be huge and are often mapped: then this is all the memory that they take.
    kind = np.array(RowKind.PRETRAINED, np.uint8)
    numbers = np.int32 if rows <= np.iinfo(np.int32).max else np.int64
    return Alignment(np.arange(rows, dtype=numbers), np.broadcast_to(kind, rows))
