"""Making rows as long as a table's where the file's are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from embexp.specs.pretrained import Project
from embexp.vectors import moments
from embexp.vectors.source import VectorSource

_ROWS_AT_ONCE = 1_024


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
    found = moments.measure(moments.blocks(source), covariance=True)
    _, vectors = np.linalg.eigh(found.spread)  # by rising eigenvalue
    directions = vectors[:, ::-1][:, :dim]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
    return PrincipalComponents(found.mean, np.ascontiguousarray(directions * np.where(largest < 0, -1.0, 1.0)))
