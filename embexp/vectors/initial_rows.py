"""Initial values of a table's rows: read from a file as an alignment maps them, or drawn by a pure function.

Rows of a file may be transformed on the way.

Rows for tokens that a file lacks, from rows that it has: of their parts, or of related tokens.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, assert_never

import numpy as np
import pyarrow as pa

from embexp.errors import DataError
from embexp.specs.pretrained import Match
from embexp.specs.tables import (
    Constant,
    GlorotNormal,
    GlorotUniform,
    Initializer,
    Normal,
    TruncatedNormal,
    Uniform,
)
from embexp.system import arrays, digests, files
from embexp.system.arrays import Rows, SomeRows
from embexp.vectors.alignment import Alignment, RowKind, RowTokens, match
from embexp.vectors.file_source import VectorSource

_PIECE_BYTES = 4 * 1024 * 1024
_WIDEST_GAP = 64
"""Rows between two wanted ones that are read along, where reading costs a call."""
_ROWS_FILLED = 4_096
BLOCK_BYTES = 8 * 1024 * 1024
"""Of rows whose moments are taken at a time; part of their bits."""
_OF_TRUNCATED = math.sqrt(1 - 2 * math.sqrt(2 / math.pi) * math.exp(-2) / math.erf(math.sqrt(2)))
"""Standard deviation of a standard normal distribution without what is beyond 2."""
_ROWS_LOOKED_AT = 1 << 20
ROWS_PER_DRAW = 4_096
"""Rows that are drawn together: each such block has a random stream of its own, so a range of rows costs at most
two blocks more than itself."""


Drawn = Uniform | Normal | TruncatedNormal | Constant
"""Initializers that don't depend on the number of rows."""


class Transform(Protocol):
    """Turns rows of a file into rows of a table; each row independently of others."""

    @property
    def dim(self) -> int:
        """Length of the rows that it makes."""

    def apply(self, rows: np.ndarray, numbers: np.ndarray, result: np.ndarray | None = None) -> np.ndarray:
        """Rows float32 [n, length of the file's rows], and their numbers in the file, to float32 [n, dim].

        Args:
            result: what to write them into; None: an array of its own.
        """


@dataclass(frozen=True)
class AlignedRows:
    """A table's initial values: rows of a file, and others where it has none. Any range of rows can be read.

    A row depends on nothing but its number: not on which others are read with it.

    Attributes:
        alignment: which row comes from where.
        missing: rows for those that the file lacks, by their number in the table.
        transform: of the file's rows; None: they are taken as they are.
    """

    source: VectorSource
    alignment: Alignment
    missing: Rows
    transform: Transform | None = None

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(self.alignment.file_rows)

    @property
    def dim(self) -> int:
        """Length of a row."""
        return self.source.dim if self.transform is None else self.transform.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim]; may be a view of the file, so not to be written to.

        Beside the result it takes memory for a few megabytes of rows.
        """
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"the table has rows 0 to {self.rows - 1}, asked for [{start}, {stop})")
        wanted = self.alignment.file_rows[start:stop]
        if self.transform is None and _consecutive(wanted):
            return self._range(int(wanted[0]), int(wanted[-1]) + 1)
        values = arrays.empty((stop - start, self.dim), np.float32)
        self._gather(wanted, values)
        for low, high in _groups(np.flatnonzero(wanted < 0), start):
            filled = self.missing.read(start + low, start + high)
            lacking = wanted[low:high] < 0
            values[low:high][lacking] = filled[lacking]
        return values

    def memory_map(self) -> np.ndarray | None:
        """All rows as one mapping: float32 [rows, dim], see `MappableRows.memory_map`.

        None where the table is not, row for row, what the file begins with, or where the file can't be mapped.
        """
        wanted = self.alignment.file_rows
        if self.transform is not None or not self.rows or not _in_order(wanted) or self._mapping is None:
            return None
        return self._mapping[: self.rows]

    @functools.cached_property
    def _mapping(self) -> np.ndarray | None:
        found = self.source.memory_map()
        return found if found is None or found.dtype == np.float32 else None

    def _range(self, start: int, stop: int) -> np.ndarray:
        return self.source.read(start, stop) if self._mapping is None else self._mapping[start:stop]

    def _gather(self, wanted: np.ndarray, values: np.ndarray) -> None:
        """Fills the rows of `values` that the file has, in the order of the file."""
        places = np.flatnonzero(wanted >= 0)
        rows = wanted[places]
        if np.any(rows[1:] < rows[:-1]):
            order = np.argsort(rows, kind="stable")
            places, rows = places[order], rows[order]
        size = max(_PIECE_BYTES // (4 * self.source.dim), 1)
        for start in range(0, len(rows), size):
            some = slice(start, start + size)
            read = self._rows(rows[some], size)
            into = places[some]
            to = slice(into[0], into[-1] + 1) if _consecutive(into) else into  # a slice is several times as fast
            if self.transform is None:
                values[to] = read
            elif isinstance(to, slice):
                self.transform.apply(read, rows[some], values[to])
            else:
                values[to] = self.transform.apply(read, rows[some])

    def _rows(self, rows: np.ndarray, most: int) -> np.ndarray:
        """Rows of the file, rising."""
        if self._mapping is not None:
            found: np.ndarray = self._mapping[rows[0] : rows[-1] + 1] if _consecutive(rows) else self._mapping[rows]
            return found
        found = np.empty((len(rows), self.source.dim), np.float32)
        low = 0
        while low < len(rows):
            # As far as no gap is wide and the range is no longer than a piece.
            reach = int(np.searchsorted(rows, rows[low] + most))
            wide = np.flatnonzero(np.diff(rows[low:reach]) > _WIDEST_GAP)
            high = low + int(wide[0]) + 1 if wide.size else reach
            first = int(rows[low])
            found[low:high] = self.source.read(first, int(rows[high - 1]) + 1)[rows[low:high] - first]
            low = high
        return found


def _consecutive(rows: np.ndarray) -> bool:
    return len(rows) > 0 and int(rows[0]) >= 0 and bool(np.all(np.diff(rows) == 1))


def _in_order(wanted: np.ndarray) -> bool:
    """Whether these are rows 0, 1, 2, …; looked at in pieces, as there may be many."""
    return all(
        np.array_equal(
            wanted[start : start + _ROWS_LOOKED_AT], np.arange(start, min(start + _ROWS_LOOKED_AT, len(wanted)))
        )
        for start in range(0, len(wanted), _ROWS_LOOKED_AT)
    )


def _groups(places: np.ndarray, start: int) -> Iterator[tuple[int, int]]:
    """Ranges [low, high) that cover rising places, none wider than a block of drawn rows."""
    blocks = (places + start) // _ROWS_FILLED
    ends = np.flatnonzero(np.diff(blocks)) + 1
    for group in np.split(places, ends):
        if group.size:
            yield int(group[0]), int(group[-1]) + 1


@dataclass(frozen=True)
class InitializerRows:
    """The rows that an initializer gives a table; `MappableRows`.

    Attributes:
        dim: width of a row.
    """

    initializer: Initializer
    rows: int
    dim: int
    seed: int
    table: str

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32; a row does not depend on which others are read.

        Nor does it depend on how many there are, except for `glorot_*`: there the scale does.
        """
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"table {self.table!r} has rows 0 to {self.rows - 1}, asked for [{start}, {stop})")
        values = arrays.empty((stop - start, self.dim), np.float32)
        for block in range(start // ROWS_PER_DRAW, -(-stop // ROWS_PER_DRAW)):
            first = block * ROWS_PER_DRAW
            low, high = max(start, first), min(stop, first + ROWS_PER_DRAW)
            values[low - start : high - start] = self._draw(block)[low - first : high - first]
        return values

    def memory_map(self) -> np.ndarray | None:
        """None: no file holds these rows."""
        return None

    def _draw(self, block: int) -> np.ndarray:
        key = digests.seed_of(self.seed, "initial values", self.table, block)
        # Always the whole block, even at the end of the table: its rows then stay the same when the table grows.
        initializer = of_shape(self.initializer, self.rows, self.dim)
        return _drawn(initializer, np.random.Generator(np.random.Philox(key=key)), ROWS_PER_DRAW, self.dim)


@dataclass(frozen=True)
class LikeTheFile:
    """Rows whose columns have the mean, and the standard deviation or the covariance, of a file's.

    Attributes:
        noise: rows of mean 0 and variance 1; rows of 0 give the mean itself.
        mean: float64 [dim].
        deviation: float64 [dim]; or [dim, dim], a square root of the covariance, which rows of noise are multiplied by.
    """

    noise: Rows
    mean: np.ndarray
    deviation: np.ndarray

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.noise.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return len(self.mean)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim]."""
        noise = self.noise.read(start, stop)
        if self.deviation.ndim == 1:
            return np.asarray(noise * self.deviation + self.mean, np.float32)
        # Not a product of matrices: that may round a row otherwise where others are read with it.
        return np.asarray(np.einsum("ij,jk->ik", noise.astype(np.float64), self.deviation) + self.mean, np.float32)


def like_the_file(
    noise: Rows, source: VectorSource, transform: Transform | None, *, covariance: bool = False
) -> LikeTheFile:
    """Rows like those of a source after its transform; reads it once, whole.

    Args:
        covariance: whether columns vary together, too.
    """
    from embexp.vectors.moments import measure

    def parts() -> Iterator[np.ndarray]:
        for start, values in arrays.blocks(source, BLOCK_BYTES):
            yield values if transform is None else transform.apply(values, np.arange(start, start + len(values)))

    found = measure(parts(), covariance=covariance)
    if not covariance:
        return LikeTheFile(noise, found.mean, np.sqrt(found.spread))
    variances, directions = found.components
    return LikeTheFile(noise, found.mean, (directions * np.sqrt(variances)).T)


def of_shape(initializer: Initializer, rows: int, dim: int) -> Drawn:
    """The initializer of a table of shape [rows, dim]: Glorot's depend on it, with rows as fan-in and dim as fan-out.

    The limit is sqrt(6 / (rows + dim)), the standard deviation sqrt(2 / (rows + dim)) (Glorot & Bengio 2010).
    """
    match initializer:
        case GlorotUniform():
            return Uniform(scale=math.sqrt(6 / (rows + dim)))
        case GlorotNormal():
            return TruncatedNormal(stddev=math.sqrt(2 / (rows + dim)) / _OF_TRUNCATED)
        case _:
            return initializer


def deviation_of(initializer: Drawn, dim: int) -> float:
    """Standard deviation of the numbers that an initializer draws for rows of `dim`.

    Raises:
        ValueError: it draws none.
    """
    match initializer:
        case Uniform():
            return initializer.scale / math.sqrt(3)
        case Normal():
            return initializer.stddev
        case TruncatedNormal():
            return _OF_TRUNCATED * (1 / math.sqrt(dim) if initializer.stddev is None else initializer.stddev)
        case Constant():
            raise ValueError("a constant has no standard deviation")
        case _:
            assert_never(initializer)


def _drawn(initializer: Drawn, generator: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    match initializer:
        case Uniform():
            # 2u - 1 is exact and below 1, so the upper bound stays open but for the rounding of the product.
            unit = generator.random((rows, dim), dtype=np.float32)
            return (2 * unit - 1) * np.float32(initializer.scale)
        case Normal():
            return generator.standard_normal((rows, dim), dtype=np.float32) * np.float32(initializer.stddev)
        case TruncatedNormal():
            stddev = 1 / math.sqrt(dim) if initializer.stddev is None else initializer.stddev
            return _truncated(generator, rows, dim) * np.float32(stddev)
        case Constant():
            return np.full((rows, dim), initializer.value, np.float32)
        case _:
            assert_never(initializer)


def _truncated(generator: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    """Standard normal values, those beyond 2 drawn again until none is left."""
    values = generator.standard_normal(rows * dim, dtype=np.float32)
    beyond = np.flatnonzero(np.abs(values) > 2)
    while beyond.size:
        again = generator.standard_normal(beyond.size, dtype=np.float32)
        values[beyond] = again
        beyond = beyond[np.abs(again) > 2]
    return values.reshape(rows, dim)


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
