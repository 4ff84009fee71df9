"""From the rows of a table to the rows of a file: how tokens are matched, and how many are found."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.specs.pretrained import Match

_TOKENS_AT_ONCE = 65_536
_STEPS = {
    Match.EXACT: (Match.EXACT,),
    Match.LOWER: (Match.EXACT, Match.LOWER),
    Match.NORMALISED: (Match.EXACT, Match.LOWER, Match.NORMALISED),
}
"""Stricter comparisons come first: `us` never takes the vector of `US` where the file has one of its own."""


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
        normalize: what was done to them, and is to other tokens that equal none of them; None: nothing.
    """

    tokens: pa.LargeStringArray
    first: int = 0
    frequencies: np.ndarray | None = None
    normalize: Callable[[pa.LargeStringArray], pa.LargeStringArray] | None = None


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
        file_tokens: of the file's rows.
        how: when two tokens are the same.
        rows: of the table; those behind the last token are special.

    Raises:
        ValueError: there are more tokens than rows.
    """
    last = words.first + len(words.tokens)
    if last > rows:
        raise ValueError(f"a table of {rows} rows can't hold {last}")
    found, by = match(words.tokens, file_tokens, how)
    if words.normalize is not None:
        left = np.flatnonzero(found < 0)
        found[left], more = match(words.tokens.take(pa.array(left)), words.normalize(file_tokens), how)
        by = {step: count + more[step] for step, count in by.items()}
    file_rows = np.full(rows, -1, np.int64)
    file_rows[words.first : last] = found
    kinds = np.full(rows, RowKind.SPECIAL, np.uint8)
    kinds[words.first : last] = np.where(found >= 0, RowKind.PRETRAINED, RowKind.MISSING)
    return Alignment(file_rows, kinds, by)


def used_rows(alignment: Alignment, words: RowTokens) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Which rows of the file a table takes, and how often the tokens that take them were seen in training.

    Returns:
        int64, each row once, rising, None where the table takes all, row for row; int64, the count of each, None where
        tokens were not counted.
    """
    if not alignment.by:
        return None, None
    taken = alignment.file_rows[words.first : words.first + len(words.tokens)]
    found, places = np.unique(taken[taken >= 0], return_inverse=True)
    if words.frequencies is None:
        return found, None
    counts = np.zeros(len(found), np.int64)
    np.add.at(counts, places, words.frequencies[taken >= 0])
    return found, counts


def by_position(rows: int) -> Alignment:
    """Aligns a table with a file of as many rows that have no tokens: row for row."""
    # Such files may be huge and are often mapped: then this is all the memory that they take.
    kind = np.array(RowKind.PRETRAINED, np.uint8)
    numbers = np.int32 if rows <= np.iinfo(np.int32).max else np.int64
    return Alignment(np.arange(rows, dtype=numbers), np.broadcast_to(kind, rows))


def match(tokens: pa.LargeStringArray, among: pa.LargeStringArray, how: Match) -> tuple[np.ndarray, dict[Match, int]]:
    """Finds each token in a list; of several that are the same under a comparison, the first in the list.

    Args:
        how: the loosest comparison that is tried; each stricter one goes before it.

    Returns:
        int64 [tokens], place in the other list, -1 where there is none; and how many each comparison found.
    """
    rows = np.full(len(tokens), -1, np.int64)
    by = {}
    for step in _STEPS[how]:
        left = np.flatnonzero(rows < 0)
        found = _first(_formed(tokens.take(pa.array(left)), step), _formed(among, step))
        rows[left] = found
        by[step] = int((found >= 0).sum())
    return rows, by


def _formed(tokens: pa.LargeStringArray, how: Match) -> pa.LargeStringArray:
    """The texts of tokens that are compared."""
    match how:
        case Match.EXACT:
            return tokens
        case Match.LOWER:
            return _mapped(tokens, str.lower)
        case Match.NORMALISED:
            return _mapped(tokens, lambda token: " ".join(unicodedata.normalize("NFKC", token).casefold().split()))


def _mapped(tokens: pa.LargeStringArray, change: Callable[[str], str]) -> pa.LargeStringArray:
    """A changed copy, made piece by piece: Python's strings take ten times the memory of Arrow's."""
    pieces = [
        pa.array(map(change, tokens.slice(start, _TOKENS_AT_ONCE).to_pylist()), pa.large_string())
        for start in range(0, len(tokens), _TOKENS_AT_ONCE)
    ]
    return pa.concat_arrays([pa.array([], pa.large_string()), *pieces])


def _first(tokens: pa.LargeStringArray, among: pa.LargeStringArray) -> np.ndarray:
    """int64 place of each token's first occurrence in `among`, or -1.

    The hash table is one of `tokens`, a vocabulary, not of `among`, which may be far longer and on disk.
    """
    encoded = tokens.dictionary_encode()
    found = pc.index_in(among, value_set=encoded.dictionary)
    places = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    codes = found.drop_null().to_numpy()
    first = np.full(len(encoded.dictionary), -1, np.int64)
    first[codes[::-1]] = places[::-1]  # of several assignments to one place the last stays
    result: np.ndarray = first[encoded.indices.to_numpy()]
    return result


@dataclass(frozen=True)
class Coverage:
    """What a file has for a table.

    Attributes:
        pretrained: rows that it fills.
        missing: rows whose token it lacks.
        special: rows that stand for no token.
        by: rows found by each comparison of tokens.
        occurrences: how often the tokens were seen in the training split; None where that was not counted.
        occurrences_pretrained: how often those that it has.
        commonest_missing: tokens that it lacks and how often each was seen (None where that was not counted), the
            most frequent first.
    """

    pretrained: int
    missing: int
    special: int
    by: dict[str, int]
    occurrences: int | None
    occurrences_pretrained: int | None
    commonest_missing: tuple[tuple[str, int | None], ...]

    def summary(self, where: str = "file") -> str:
        """The counts in a line; `where` is the word for what has the rows."""
        named = self.pretrained + self.missing
        counts = f"{self.pretrained:,} of {named:,} rows found in the {where}"
        if self.occurrences:
            counts += f", {(self.occurrences_pretrained or 0) / self.occurrences:.1%} of what the training split holds"
        return counts

    def as_json(self) -> dict[str, Any]:
        """The counts in coverage.json."""
        return {
            "rows_pretrained": self.pretrained,
            "rows_missing": self.missing,
            "rows_special": self.special,
            "matched": self.by,
            "occurrences": self.occurrences,
            "occurrences_pretrained": self.occurrences_pretrained,
            "commonest_missing": [{"token": token, "frequency": count} for token, count in self.commonest_missing],
        }


def coverage(alignment: Alignment, words: RowTokens, *, shown: int = 20) -> Coverage:
    """Counts what an alignment found.

    Args:
        shown: how many of the missing tokens are named.
    """
    kinds = alignment.kinds[words.first : words.first + len(words.tokens)]
    lacking = np.flatnonzero(kinds == RowKind.MISSING)
    counts = words.frequencies
    if counts is not None:
        lacking = lacking[np.argsort(-counts[lacking], kind="stable")]
    lacking = lacking[:shown]
    names = words.tokens.take(pa.array(lacking)).to_pylist()
    return Coverage(
        pretrained=alignment.count(RowKind.PRETRAINED),
        missing=alignment.count(RowKind.MISSING),
        special=alignment.count(RowKind.SPECIAL),
        by={how.value: count for how, count in alignment.by.items()},
        occurrences=None if counts is None else int(counts.sum()),
        occurrences_pretrained=None if counts is None else int(counts[kinds == RowKind.PRETRAINED].sum()),
        commonest_missing=tuple(
            (name, None if counts is None else int(counts[place])) for name, place in zip(names, lacking, strict=True)
        ),
    )
