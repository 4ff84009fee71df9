"""Which row of a file holds the vector of a token."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Matched:
    """What a comparison of two lists of tokens found.

    Attributes:
        rows: int64 [tokens], place in the other list, -1 where there is none.
        by: how many were found by each comparison, the strictest first.
    """

    rows: np.ndarray
    by: dict[Match, int]


def match(tokens: pa.LargeStringArray, among: pa.LargeStringArray, how: Match) -> Matched:
    """Finds each token in a list; of several that are the same under a comparison, the first in the list.

    Args:
        tokens: to look for.
        among: to look in.
        how: the loosest comparison that is tried; each stricter one goes before it.
    """
    rows = np.full(len(tokens), -1, np.int64)
    by = {}
    for step in _STEPS[how]:
        left = np.flatnonzero(rows < 0)
        found = _first(_formed(tokens.take(pa.array(left)), step), _formed(among, step))
        rows[left] = found
        by[step] = int((found >= 0).sum())
    return Matched(rows, by)


def form(token: str, how: Match) -> str:
    """The text of a token that is compared."""
    match how:
        case Match.EXACT:
            return token
        case Match.LOWER:
            return token.lower()
        case Match.NORMALISED:
            return " ".join(unicodedata.normalize("NFKC", token).casefold().split())


def _formed(tokens: pa.LargeStringArray, how: Match) -> pa.LargeStringArray:
    if how is Match.EXACT:
        return tokens
    return _mapped(tokens, lambda token: form(token, how))


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
