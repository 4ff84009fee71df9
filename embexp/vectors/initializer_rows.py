"""Initial values of rows that no file has, drawn by a pure function of the seed, the table's name and the row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from embexp.specs.tables import Constant, Initializer, Normal, TruncatedNormal, Uniform
from embexp.system import arrays, digests
from embexp.system.rows import Rows
from embexp.vectors import moments
from embexp.vectors.projection import Projection
from embexp.vectors.source import VectorSource

ROWS_PER_DRAW = 4_096
"""Rows that are drawn together: each such block has a random stream of its own, so a range of rows costs at most
two blocks more than itself."""


@dataclass(frozen=True)
class InitializerRows:
    """The rows that an initializer gives a table; `MappableRows`.

    Attributes:
        initializer: the distribution.
        rows: vocabulary size.
        dim: width of a row.
        seed: of the run.
        table: name of the table: tables of one run differ.
    """

    initializer: Initializer
    rows: int
    dim: int
    seed: int
    table: str

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32; a row does not depend on which others are read, or on how many there are."""
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
        return _drawn(self.initializer, np.random.Generator(np.random.Philox(key=key)), ROWS_PER_DRAW, self.dim)


@dataclass(frozen=True)
class LikeTheFile:
    """Rows whose columns have the mean, and the standard deviation, of a file's.

    Attributes:
        noise: rows of mean 0 and variance 1; rows of 0 give the mean itself.
        mean: float64 [dim].
        deviation: float64 [dim].
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
        rows = self.noise.read(start, stop) * self.deviation + self.mean
        return np.asarray(rows, np.float32)


def like_the_file(noise: Rows, source: VectorSource, projection: Projection | None) -> LikeTheFile:
    """Rows like those of a source after projection; reads it once, whole."""
    parts = moments.blocks(source)
    found = moments.measure(parts if projection is None else map(projection.apply, parts))
    return LikeTheFile(noise, found.mean, np.sqrt(found.spread))


def _drawn(initializer: Initializer, generator: np.random.Generator, rows: int, dim: int) -> np.ndarray:
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
