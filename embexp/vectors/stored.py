"""A matrix as stored in a file, before conversion to float32 and before any policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow as pa

from embexp.errors import DataError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (np.dtype("f2"), BFLOAT16, np.dtype("f4"), np.dtype("f8"))
"""Types of numbers that vectors may be stored as, in any byte order."""


@dataclass(frozen=True)
class Place:
    """Place of a float32 matrix in C order in a file, from which it can be mapped."""

    path: Path
    offset: int


@dataclass(frozen=True)
class Stored:
    """A matrix in a file.

    Attributes:
        name: of the file, and of the matrix in it where there are several; how errors begin.
        rows: number of rows.
        dim: numbers per row.
        dtype: as stored, one of `FLOATS`.
        read: rows start to stop as stored, [stop - start, dim].
        files: those of which the digest is taken.
        place: where it could be mapped; None: nowhere.
        tokens: gives the word of each row; None: it has none.
        notes: what reading removed or mended, with counts.
        finite: whether every number is already known to be one.
        check: raises a DataError where a stored checksum is wrong; None: the file has none.
    """

    name: str
    rows: int
    dim: int
    dtype: np.dtype
    read: Callable[[int, int], np.ndarray]
    files: Sequence[Path]
    place: Place | None = None
    tokens: Callable[[], pa.LargeStringArray] | None = None
    notes: Mapping[str, int] = field(default_factory=dict)
    finite: bool = False
    check: Callable[[], None] | None = None


def checked_shape(name: str, shape: Sequence[int], dtype: np.dtype) -> tuple[int, int]:
    """Rows and dim of an array.

    Raises:
        DataError: it is no matrix of floating-point numbers, or holds none.
    """
    if len(shape) != 2:
        raise DataError(f"{name}: found an array of {len(shape)} dimensions, {tuple(shape)}, expected 2, rows and dim")
    if dtype.newbyteorder("=") not in FLOATS:
        allowed = "float16, bfloat16, float32 or float64"
        raise DataError(f"{name}: found numbers of type {dtype}, expected {allowed}")
    rows, dim = map(int, shape)
    if rows < 1 or dim < 1:
        raise DataError(f"{name}: found {rows} rows of dimension {dim}, expected at least one of each")
    return rows, dim


def only_key(path: Path, shapes: Mapping[str, Sequence[int]], key: str | None, what: str) -> str:
    """The name of the matrix to read: the key, or the only one there is.

    Args:
        path: of the file.
        shapes: of everything in the file, by name.
        key: name of the matrix; None: the only array of two dimensions.
        what: the word for one of them, such as "array".

    Raises:
        DataError: there is no such name, or none or several could be meant.
    """
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    listed = ", ".join(f"{name} {list(shapes[name])}" for name in matrices[:20])
    listed += f", and {len(matrices) - 20} more" if len(matrices) > 20 else ""
    if key is not None:
        if key in shapes:
            return key
        raise DataError(f"{path}: found no {what} {key!r}; the matrices in it are {listed or 'none'}")
    if len(matrices) == 1:
        return matrices[0]
    if not matrices:
        raise DataError(f"{path}: found no {what} of two dimensions, rows and dim")
    raise DataError(f"{path}: found {len(matrices)} matrices, expected a key that says which: {listed}")


def shown(text: object) -> str:
    """A piece of a file, short enough for an error."""
    written = repr(text)
    return written if len(written) <= 60 else f"{written[:60]}…"


def counted(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
