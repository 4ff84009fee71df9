"""The rows of a matrix that are nearest to some of its rows, by the cosine of their angle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from embexp.errors import DataError, VocabularyError
from embexp.system import arrays
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, quiet

_CHUNK_BYTES = 16 * 1024 * 1024
_LAST = (1 << 32) - 1


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
        DataError: one of the queries has no direction: it is all zeros, or not finite.
    """
    vectors = np.concatenate([matrix.read(row, row + 1) for row in queries])
    return [
        [Neighbor(int(row), float(cosine)) for row, cosine in zip(rows, cosines, strict=True) if row >= 0]
        for rows, cosines in zip(*nearest_rows(matrix, vectors, np.array(queries), count), strict=True)
    ]


def nearest_rows(
    matrix: Rows, vectors: np.ndarray, queries: np.ndarray, count: int, *, progress: Progress = quiet
) -> tuple[np.ndarray, np.ndarray]:
    """As `nearest`, as arrays.

    Args:
        vectors: [queries, dim], the rows whose neighbors are wanted.
        queries: int [queries], their numbers.

    Returns:
        Rows, int64 [queries, n], and cosines, float32; n is `count`, or less where the matrix has fewer rows. Where
        there are fewer neighbors, rows are -1.

    Raises:
        DataError: one of the queries has no direction: it is all zeros, or not finite.
    """
    wanted, nowhere = directions(vectors, np.float64)
    if nowhere.any():
        raise DataError(
            f"row {queries[nowhere][0] + 1} is all zeros or not finite, so it points nowhere and has no neighbors"
        )
    wanted = wanted.astype(np.float32)
    best = np.empty((len(queries), 0), np.int64)
    size = max(min(_CHUNK_BYTES, _CHUNK_BYTES // len(queries) * matrix.dim), 1)
    for start, values in arrays.blocks(matrix, size):
        units, nowhere = directions(values)
        found = wanted @ units.T
        found[:, nowhere] = -np.inf
        itself = np.flatnonzero((queries >= start) & (queries < start + len(values)))
        found[itself, queries[itself] - start] = -np.inf
        keys = _keys(found, np.arange(start, start + len(values)))
        if best.shape[1] == count:  # few rows of a later block are nearer to anything than what was found before
            keys = keys[:, (keys > best.min(axis=1, keepdims=True)).any(axis=0)]
        best = np.concatenate([best, keys], axis=1)
        if best.shape[1] > count:
            best = np.partition(best, -count, axis=1)[:, -count:]
        progress("finding neighbors", (start + len(values)) / matrix.rows)
    best = -np.sort(-best, axis=1)
    cosines = _ordered((best >> 32).astype(np.int32)).view(np.float32)
    return np.where(cosines > -np.inf, _LAST - (best & _LAST), -1), cosines


def _keys(cosines: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Integers in the order of cosines, and of equal ones the first row last: what sorts them finds no ties.

    Args:
        cosines: float32 [queries, rows].
        rows: int64 [rows], below 2³².
    """
    signed = _ordered((cosines + np.float32(0)).view(np.int32))  # which makes -0 the 0 that it is equal to
    return np.asarray((signed.astype(np.int64) << 32) | (_LAST - rows))


def _ordered(bits: np.ndarray) -> np.ndarray:
    """The bits of float32, as int32 in the order of the numbers; and back."""
    return np.asarray(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))


def directions(values: np.ndarray, dtype: DTypeLike = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Rows with length 1.

    Args:
        values: [rows, dim].
        dtype: to compute in.

    Returns:
        The rows, zeros where they have no direction; and whether they have none, bool [rows], as they are all zeros or
        not finite, which a policy may keep.
    """
    values = np.asarray(values, dtype)
    largest = np.abs(values).max(axis=1, keepdims=True)
    nowhere = ~((largest > 0) & (largest < np.inf))
    if nowhere.any():
        values, largest = np.where(nowhere, 0, values), np.where(nowhere, 1, largest)
    scaled = values / largest  # squares of very large or small numbers leave float32
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(nowhere, 1, lengths), nowhere[:, 0]


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
