"""Rows for tokens that a file lacks, from rows that it has: of their parts, or of related tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.errors import DataError
from embexp.specs.pretrained import Match
from embexp.system import files
from embexp.system.arrays import Rows, SomeRows
from embexp.vectors.alignment import Alignment, RowKind, RowTokens, match
from embexp.vectors.file_source import VectorSource
from embexp.vectors.initial_rows import Transform

_BETWEEN_PARTS = re.compile(r"[\s_]+")
_SHORTEST, _LONGEST = 3, 6
"""Characters of an n-gram, as in fastText (Bojanowski et al. 2017)."""


@dataclass(frozen=True)
class Sources:
    """Which rows of a file a row of a table is the mean of.

    Attributes:
        rows: int64, rows of the table, rising; each has at least one.
        starts: int64 [rows + 1], where in `file_rows` those of each begin.
        file_rows: int64, rows of the file.
    """

    rows: np.ndarray
    starts: np.ndarray
    file_rows: np.ndarray


@dataclass(frozen=True)
class Means:
    """Rows that are means of rows of a file, after their transform, and others for those without.

    Attributes:
        others: rows for those that are a mean of nothing.
        transform: of the file's rows; None: they are taken as they are.
    """

    others: Rows
    source: VectorSource
    sources: Sources
    transform: Transform | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.others.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.others.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim]; each mean is taken in float64."""
        found = np.array(self.others.read(start, stop))
        low, high = np.searchsorted(self.sources.rows, [start, stop])
        if low == high:
            return found
        starts = self.sources.starts[low : high + 1]
        wanted, places = np.unique(self.sources.file_rows[starts[0] : starts[-1]], return_inverse=True)
        rows = SomeRows(self.source, wanted).read(0, len(wanted))
        if self.transform is not None:
            rows = self.transform.apply(rows, wanted)
        sums = np.add.reduceat(rows[places].astype(np.float64), starts[:-1] - starts[0])
        found[self.sources.rows[low:high] - start] = sums / np.diff(starts)[:, None]
        return found


def parts(token: str) -> list[str]:
    """What a token is made of: what stands between white space and underscores; of one without, nothing."""
    found = [part for part in _BETWEEN_PARTS.split(token) if part]
    return list(dict.fromkeys(found)) if len(found) > 1 else []


def ngrams(token: str) -> list[str]:
    """The 3 to 6 neighbouring characters of `<token>`, each once, but for the token itself."""
    marked = f"<{token}>"
    lengths = range(_SHORTEST, min(_LONGEST, len(marked)) + 1)
    found = dict.fromkeys(marked[start : start + n] for n in lengths for start in range(len(marked) - n + 1))
    return [each for each in found if each not in (token, marked)]


def of_subwords(alignment: Alignment, words: RowTokens, file_tokens: pa.LargeStringArray, how: Match) -> Sources:
    """For each token that a file lacks the rows of its parts that the file has, or else of its n-grams."""
    rows, tokens = _missing(alignment, words)
    wholes = _found({row: parts(token) for row, token in zip(rows, tokens, strict=True)}, file_tokens, how)
    rest = {row: ngrams(token) for row, token in zip(rows, tokens, strict=True) if row not in wholes}
    return _sources(wholes | _found(rest, file_tokens, how))


def of_neighbours(
    alignment: Alignment, words: RowTokens, file_tokens: pa.LargeStringArray, how: Match, path: Path
) -> Sources:
    """For each token that a file lacks the rows of the related tokens that the file has.

    Args:
        path: a file with a token, a tab and a related token per line; a token may have several lines.

    Raises:
        DataError: a line has another form.
    """
    related: dict[str, list[str]] = {}
    with files.opened(path) as file:
        for number, line in enumerate(file, 1):
            text = _text(path, number, line).rstrip("\r\n")
            fields = text.split("\t")
            if text and len(fields) != 2:
                rule = "expected a token, a tab and a related token"
                raise DataError(f"{path}, line {number}: found {len(fields)} columns, {rule}")
            if text:
                related.setdefault(fields[0], []).append(fields[1])
    rows, tokens = _missing(alignment, words)
    wanted = {row: list(dict.fromkeys(related.get(token, ()))) for row, token in zip(rows, tokens, strict=True)}
    return _sources(_found(wanted, file_tokens, how))


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: found bytes that are not UTF-8, expected text in UTF-8") from error


def _missing(alignment: Alignment, words: RowTokens) -> tuple[list[int], list[str]]:
    """Rows of a table whose tokens the file lacks, and these tokens."""
    kinds = alignment.kinds[words.first : words.first + len(words.tokens)]
    places = np.flatnonzero(kinds == RowKind.MISSING)
    return (places + words.first).tolist(), words.tokens.take(pa.array(places)).to_pylist()


def _found(wanted: Mapping[int, Iterable[str]], file_tokens: pa.LargeStringArray, how: Match) -> dict[int, list[int]]:
    """By row of a table the rows of a file that some tokens have, each once; without rows that would have none."""
    distinct = list(dict.fromkeys(token for tokens in wanted.values() for token in tokens))
    places, _ = match(pa.array(distinct, pa.large_string()), file_tokens, how)
    row_of = dict(zip(distinct, places.tolist(), strict=True))
    found = {
        row: list(dict.fromkeys(row_of[token] for token in tokens if row_of[token] >= 0))
        for row, tokens in wanted.items()
    }
    return {row: rows for row, rows in found.items() if rows}


def _sources(found: Mapping[int, list[int]]) -> Sources:
    rows = sorted(found)
    starts = np.cumsum([0, *(len(found[row]) for row in rows)], dtype=np.int64)
    taken = [place for row in rows for place in found[row]]
    return Sources(np.array(rows, np.int64), starts, np.array(taken, np.int64))
