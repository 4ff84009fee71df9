"""Making rows as long as a table's where the file's are not, by the moments of the file's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from embexp.errors import DataError
from embexp.specs.pretrained import Project
from embexp.system.arrays import Rows
from embexp.vectors.file_source import VectorSource

_ROWS_AT_ONCE = 1_024
_BLOCK_BYTES = 16 * 1024 * 1024


class Projection(Protocol):
    """Turns rows of one length into rows of another; each row independently of others."""

    @property
    def dim(self) -> int:
        """Length of a projected row."""
        ...

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """float32 [n, length of the file's rows] -> float32 [n, dim]."""
        ...


@dataclass(frozen=True)
class Truncation:
    """The first numbers of each row."""

    dim: int

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """The first `dim` numbers of each row: float32 [n, dim]."""
        return rows[:, : self.dim]


@dataclass(frozen=True)
class ZeroPadding:
    """Each row with zeros behind it."""

    dim: int

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Each row with zeros behind it: float32 [n, dim]."""
        padded = np.zeros((len(rows), self.dim), np.float32)
        padded[:, : rows.shape[1]] = rows
        return padded


@dataclass(frozen=True)
class PrincipalComponents:
    """Each row's deviation from the mean, along the directions in which the file's rows vary most.

    Attributes:
        mean: float64 [length of the file's rows].
        directions: float64 [length of the file's rows, dim], orthonormal columns, by falling variance.
    """

    mean: np.ndarray
    directions: np.ndarray

    @property
    def dim(self) -> int:
        """Length of a row: the number of directions."""
        return int(self.directions.shape[1])

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """The rows along the directions: float32 [n, dim]."""
        result = np.empty((len(rows), self.dim), np.float32)
        # A matrix product may round a row otherwise in a product of another shape, so the shape is always the same.
        block = np.zeros((_ROWS_AT_ONCE, len(self.mean)))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            np.subtract(part, self.mean, out=block[: len(part)])
            result[start : start + len(part)] = (block @ self.directions)[: len(part)]
        return result


def mismatch(project: Project, file_dim: int, dim: int) -> str:
    """Why rows of a file can't become rows of a table, as a sentence without a full stop, or "" if they can."""
    lengths = f"the file's rows have {file_dim} numbers, the table's {dim}"
    if file_dim == dim:
        return ""
    match project:
        case Project.NONE:
            return lengths
        case Project.TRUNCATE | Project.PCA:
            return "" if file_dim > dim else f"{lengths}, and {project} makes rows shorter, never longer"
        case Project.ZERO_PAD:
            return "" if file_dim < dim else f"{lengths}, and {project} makes rows longer, never shorter"


def fit(project: Project, source: VectorSource, dim: int) -> Projection | None:
    """What turns a source's rows into rows of `dim`; None where they are that already.

    Raises:
        ValueError: see `mismatch`.
    """
    if reason := mismatch(project, source.dim, dim):
        raise ValueError(reason)
    if source.dim == dim:
        return None
    match project:
        case Project.TRUNCATE:
            return Truncation(dim)
        case Project.ZERO_PAD:
            return ZeroPadding(dim)
        case Project.PCA:
            return principal_components(source, dim)
        case Project.NONE:
            raise ValueError("rows of another length need a projection")


def principal_components(source: VectorSource, dim: int) -> PrincipalComponents:
    """The `dim` directions in which all rows of a source vary most, from their covariance in float64.

    An eigenvector's sign is free: here its largest element, by magnitude, is positive (the first of equal ones).
    """
    found = measure(blocks(source), covariance=True)
    _, vectors = np.linalg.eigh(found.spread)  # by rising eigenvalue
    directions = vectors[:, ::-1][:, :dim]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
    return PrincipalComponents(found.mean, np.ascontiguousarray(directions * np.where(largest < 0, -1.0, 1.0)))


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
