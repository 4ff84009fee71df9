"""Mean, variance and covariance of the rows of a matrix, in one pass and in float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from embexp.errors import DataError
from embexp.system.rows import Rows

_BLOCK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Moments:
    """Of a matrix [rows, dim].

    Attributes:
        mean: float64 [dim].
        spread: float64, the variance of each column [dim], or the covariance of all [dim, dim]; of the whole
            matrix, so divided by rows, not by rows - 1.
    """

    mean: np.ndarray
    spread: np.ndarray


def blocks(source: Rows) -> Iterator[np.ndarray]:
    """All rows of a source, float32, in blocks whose size follows from its width alone."""
    rows = max(_BLOCK_BYTES // (8 * source.dim), 1)
    for start in range(0, source.rows, rows):
        yield source.read(start, min(start + rows, source.rows))


def measure(parts: Iterable[np.ndarray], *, covariance: bool = False) -> Moments:
    """Moments of a matrix that comes as blocks of rows.

    Each block is centred on its own mean before it is squared, and the blocks are merged by the formula of
    Chan, Golub and LeVeque (1983), so that a mean far from 0 costs no digits.

    Args:
        parts: [n, dim] each, n at least 1.
        covariance: between all columns, not only the variance of each.

    Raises:
        ValueError: there is no row.
        DataError: NaN or infinities are among the numbers.
    """
    count, mean, squares = 0, np.zeros(0), np.zeros(0)
    for part in parts:
        values = part.astype(np.float64)
        here = values.mean(axis=0)
        values -= here
        added = values.T @ values if covariance else np.einsum("ij,ij->j", values, values)
        if count == 0:
            count, mean, squares = len(values), here, added
            continue
        step = here - mean
        total = count + len(values)
        squares = squares + added + (np.outer(step, step) if covariance else step**2) * (count * len(values) / total)
        mean = mean + step * (len(values) / total)
        count = total
    if count == 0:
        raise ValueError("a matrix without rows has no moments")
    if not (np.isfinite(mean).all() and np.isfinite(squares).all()):
        raise DataError(
            "the file's rows have no mean and variance: found NaN or infinities, which non_finite=keep lets pass\n"
            "    set non_finite to zero or skip, or missing and project to what needs no mean"
        )
    return Moments(mean, squares / count)
