"""Means, variances and covariances of matrices that come as blocks of rows, in float64 and in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from embexp.errors import DataError


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

    def after(self, shift: np.ndarray, matrix: np.ndarray) -> Moments:
        """Those of (x - shift) @ matrix; only of matrices whose covariance is known."""
        return Moments((self.mean - shift) @ matrix, matrix.T @ self.covariance @ matrix)

    def of_columns(self, columns: np.ndarray) -> Moments:
        """Those of some columns."""
        spread = self.spread[columns] if self.spread.ndim == 1 else self.spread[np.ix_(columns, columns)]
        return Moments(self.mean[columns], spread)

    def padded(self, dim: int) -> Moments:
        """Those with columns of zeros behind."""
        more = (0, dim - len(self.mean))
        return Moments(np.pad(self.mean, more), np.pad(self.spread, [more] * self.spread.ndim))


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
            "    set non_finite to zero or skip, or missing and transform to what needs no mean"
        )
    return Moments(mean, squares / count)
