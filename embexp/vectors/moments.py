"""Means, variances and covariances of matrices that come as blocks of rows, in one pass: in float64, unless asked."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import ThreadpoolController

from embexp.errors import DataError
from embexp.system.parallel import in_order

Part = np.ndarray | Callable[[], np.ndarray]
_AT_ONCE = 1 << 18
"""Numbers whose squares are summed at a time: as many as fit a processor's cache."""
TINY = float(np.finfo(np.float64).tiny)
_LOST_IN_SINGLE = 4e-7
"""Of a sum of a few thousand products in float32: roundings of 6e-8 of its parts, independent."""
_CANCELLED = 1 / 400
"""The square of what sums of products that cancel each other lose, in that of sums of squares, which do not."""


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

    @property
    def variance(self) -> np.ndarray:
        """Of each column, float64 [dim]."""
        return self.spread if self.spread.ndim == 1 else np.diagonal(self.spread)

    @property
    def covariance(self) -> np.ndarray:
        """Of all columns, float64 [dim, dim].

        Raises:
            ValueError: only variances were measured.
        """
        if self.spread.ndim == 1:
            raise ValueError("only the variance of each column was measured")
        return self.spread

    def error_in_single(self, rows: int) -> float:
        """What a variance loses if products are summed in float32, as a part of it.

        Args:
            rows: of the matrix.
        """
        return _LOST_IN_SINGLE / math.sqrt(max(rows // _rows_at_once(len(self.mean)), 1))

    @classmethod
    def load(cls, folder: Path) -> Moments:
        """What `save` wrote."""
        return cls(*(np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("mean", "spread")))

    def save(self, folder: Path) -> None:
        """Writes them into a folder."""
        np.save(folder / "mean.npy", self.mean, allow_pickle=False)
        np.save(folder / "spread.npy", self.spread, allow_pickle=False)

    @functools.cached_property
    def components(self) -> tuple[np.ndarray, np.ndarray]:
        """The directions in which rows vary, by falling variance.

        An eigenvector's sign is free: here its largest element, by magnitude, is positive (the first of equal ones).

        Returns:
            float64 [dim], the variances; float64 [dim, dim], orthonormal columns.
        """
        values, vectors = np.linalg.eigh(self.covariance)  # by rising eigenvalue
        directions = vectors[:, ::-1]
        largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
        return np.maximum(values[::-1], 0), directions * np.where(largest < 0, -1.0, 1.0)

    def whitening(self, floor: float, *, components: bool = False) -> np.ndarray:
        """The matrix that gives deviations from the mean the covariance 1, float64 [dim, dim].

        Args:
            floor: smaller variances count as this part of the largest.
            components: along the principal components, instead of the axes of the rows.
        """
        variances, directions = self.components
        matrix = directions / np.sqrt(np.maximum(variances, max(floor * variances[0], TINY)))
        return np.ascontiguousarray(matrix if components else matrix @ directions.T)

    @functools.cached_property
    def turns(self) -> np.ndarray:
        """How far components turn towards others by errors as those of `error_in_single`, if it is 1.

        To the first order, a component turns by the error of the covariance of the two, divided by the difference of
        their variances. Errors are independent, and in proportion to a sum; where it cancels, to its deviation.

        Returns:
            float64 [dim, dim], squares of the angles.
        """
        variances, directions = self.components
        errors = np.square(self.covariance) + _CANCELLED * np.outer(self.variance, self.variance)
        between = np.square(directions).T @ errors @ np.square(directions)
        gaps = np.subtract.outer(variances, variances)
        np.fill_diagonal(gaps, np.inf)
        return np.asarray(between / np.square(gaps))

    def growth(self, matrix: np.ndarray) -> float:
        """How much larger the terms of (x - mean) @ matrix are than the products, at most, as a ratio of variances.

        Where variance is little, a number is a small difference of large terms.
        """
        terms, made = self.variance @ np.square(matrix), self.after(matrix).variance
        return float(np.max(terms / np.maximum(made, TINY)))

    def after(self, matrix: np.ndarray) -> Moments:
        """Those of (x - mean) @ matrix; only of matrices whose covariance is known."""
        return Moments(np.zeros(matrix.shape[1]), matrix.T @ self.covariance @ matrix)

    def of_columns(self, columns: np.ndarray) -> Moments:
        """Those of some columns."""
        spread = self.spread[columns] if self.spread.ndim == 1 else self.spread[np.ix_(columns, columns)]
        return Moments(self.mean[columns], spread)

    def padded(self, dim: int) -> Moments:
        """Those with columns of zeros behind."""
        more = (0, dim - len(self.mean))
        return Moments(np.pad(self.mean, more), np.pad(self.spread, [more] * self.spread.ndim))


def measure(parts: Iterable[Part], *, covariance: bool = False, single: bool = False) -> Moments:
    """Moments of a matrix that comes as blocks of rows, several of which are worked on at a time.

    Of each block the squares of deviations from a row near its mean are summed, and the blocks are merged by the
    formula of Chan, Golub and LeVeque (1983), so that a mean far from 0 costs no digits.

    Args:
        parts: [n, dim] each, n at least 1, or what makes it, in a thread.
        covariance: between all columns, not only the variance of each.
        single: whether products are summed in float32 over some rows, then in float64, which takes half as long.

    Raises:
        ValueError: there is no row.
        DataError: NaN or infinities are among the numbers.
    """
    count, mean, squares = 0, np.zeros(0), np.zeros(0)
    # Products of blocks are too small for several threads, which would wait for each other.
    with linear_algebra().limit(limits=1, user_api="blas"):
        for rows, here, added in in_order(functools.partial(_sums, covariance=covariance, single=single), parts):
            if count == 0:
                count, mean, squares = rows, here, added
                continue
            step = here - mean
            total = count + rows
            squares += added + (np.outer(step, step) if covariance else step**2) * (count * rows / total)
            mean += step * (rows / total)
            count = total
    if count == 0:
        raise ValueError("a matrix without rows has no moments")
    if not (np.isfinite(mean).all() and np.isfinite(squares).all()):
        raise DataError(
            "the file's rows have no mean and variance: found NaN or infinities, which non_finite=keep lets pass\n"
            "    set non_finite to zero or skip, or choose missing and transform settings that need no mean"
        )
    return Moments(mean, squares / count)


def _rows_at_once(dim: int) -> int:
    """Whose products are summed at a time: at least `dim`, so that adding up the sums takes less than making them."""
    return max(_AT_ONCE // dim, dim)


def _sums(part: Part, *, covariance: bool, single: bool) -> tuple[int, np.ndarray, np.ndarray]:
    """Of a block: its rows, their mean, and the sums of squares, or of products, of deviations from it."""
    rows = part() if callable(part) else part
    count, dim = rows.shape
    step = min(_rows_at_once(dim), count)
    dtype = np.float32 if single else np.float64
    deviations, ones = np.empty((step, dim), dtype), np.ones(step, dtype)
    product = np.empty((dim, dim) if covariance else dim, dtype)
    shift = rows[:step].mean(axis=0, dtype=np.float64).astype(dtype)
    total, squares = np.zeros(dim), np.zeros(product.shape)
    for start in range(0, count, step):
        some = rows[start : start + step]
        values = deviations[: len(some)]
        values[:] = some  # in one go with the next it takes longer
        values -= shift
        total += ones[: len(some)] @ values
        squares += (
            np.matmul(values.T, values, out=product)
            if covariance
            else np.einsum("ij,ij->j", values, values, out=product)
        )
    mean = total / count
    squares -= (np.outer(mean, mean) if covariance else mean**2) * count
    return count, shift + mean, squares


@functools.cache
def linear_algebra() -> ThreadpoolController:
    """The libraries that NumPy has loaded."""
    return ThreadpoolController()
