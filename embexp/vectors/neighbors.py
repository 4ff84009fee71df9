"""The rows of a matrix that are nearest to some of its rows, by the cosine of their angle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.errors import DataError, VocabularyError
from embexp.system import arrays
from embexp.system.arrays import Rows

_CHUNK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Neighbor:
    """A row near another.

    Attributes:
        cosine: of the angle between the two, in [-1, 1] but for rounding.
    """

    row: int
    cosine: float


def nearest(matrix: Rows, queries: Sequence[int], count: int) -> list[list[Neighbor]]:
    """For each of some rows, the others with the greatest cosine, greatest first; of equals the first rows.

    Rows of zeros have no direction and are near to none. Memory is bounded by a chunk of rows.

    Args:
        queries: the rows whose neighbors are wanted.

    Raises:
        DataError: one of the queries is a row of zeros.
    """
    vectors = np.concatenate([matrix.read(row, row + 1) for row in queries]).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    for row, length in zip(queries, lengths[:, 0], strict=True):
        if not length:
            raise DataError(f"row {row + 1} is all zeros, so it points nowhere and has no neighbors")
    directions = (vectors / lengths).astype(np.float32)
    best_rows = np.empty((len(queries), 0), np.int64)
    best = np.empty((len(queries), 0), np.float32)
    for start, values in arrays.blocks(matrix, _CHUNK_BYTES):
        rows = np.arange(start, start + len(values))
        found = _cosines(values, directions)
        for number, row in enumerate(queries):
            if start <= row < start + len(values):
                found[number, row - start] = -np.inf
        best = np.concatenate([best, found], axis=1)
        best_rows = np.concatenate([best_rows, np.broadcast_to(rows, found.shape)], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :count]
        best, best_rows = np.take_along_axis(best, order, 1), np.take_along_axis(best_rows, order, 1)
    return [
        [Neighbor(int(row), float(cosine)) for row, cosine in zip(rows, cosines, strict=True) if cosine > -np.inf]
        for rows, cosines in zip(best_rows, best, strict=True)
    ]


def row_of_token(tokens: pa.Array, token: str, where: str) -> int:
    """The row of a token.

    Args:
        tokens: of each row.
        where: what has the tokens, for the error.

    Raises:
        VocabularyError: there is none.
    """
    row = pc.index(tokens, token).as_py()
    if row >= 0:
        return int(row)
    alike = tokens.filter(pc.equal(pc.utf8_lower(tokens), token.lower())).to_pylist()
    hint = f"; did you mean {alike[0]!r}?" if alike else ""
    raise VocabularyError(f"{where}: found no token {token!r} among {len(tokens):,}{hint}")


def _cosines(values: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """float32 [queries, rows]; minus infinity for rows of zeros."""
    largest = np.abs(values).max(axis=1, keepdims=True)
    nowhere = largest[:, 0] == 0
    scaled = values / np.where(largest == 0, 1, largest)  # squares of very large or small numbers leave float32
    lengths = np.linalg.norm(scaled, axis=1)
    cosines = (directions @ scaled.T) / np.where(nowhere, 1, lengths)
    cosines[:, nowhere] = -np.inf
    return np.asarray(cosines)
