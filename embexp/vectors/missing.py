"""Rows that the file has nothing for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from embexp.system.rows import Rows
from embexp.vectors import moments
from embexp.vectors.projection import Projection
from embexp.vectors.source import VectorSource


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
        """As many as there are of the noise."""
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
