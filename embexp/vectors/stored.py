"""A matrix as stored in a file, before conversion to float32 and before any policy, and the files of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.errors import DataError
from embexp.system import files
from embexp.system.parallel import Progress, quiet

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (np.dtype("f2"), BFLOAT16, np.dtype("f4"), np.dtype("f8"))
"""Types of numbers that vectors may be stored as, in any byte order."""
TOKENS_SUFFIX = ".tokens.txt"


@dataclass(frozen=True)
class Wanted:
    """What a reader of files is asked for.

    Attributes:
        cache: folder for what it has to unpack or convert.
        key: which matrix of a file that may hold several; None: the only one.
        token_column: where the tokens are, in a file of columns or datasets.
        progress: called as reading goes on.
    """

    cache: Path
    key: str | None = None
    token_column: str | None = None
    progress: Progress = quiet


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


def excerpt(text: object) -> str:
    """A piece of a file, short enough for an error."""
    written = repr(text)
    return written if len(written) <= 60 else f"{written[:60]}…"


def plural(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tokens_path(path: Path) -> Path:
    """Where the tokens of a file of vectors are looked for: `a.tokens.txt` for `a.npy`."""
    return path.with_name(path.stem + TOKENS_SUFFIX)


def token_lines(path: Path) -> pa.LargeStringArray:
    """The lines of a file.

    Args:
        path: of the file, UTF-8, with LF or CR LF.

    Raises:
        DataError: it is not UTF-8, or no file.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    data = path.read_bytes().replace(b"\r\n", b"\n")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"bytes that are not UTF-8 ({data[error.start : error.end]!r})"
        raise DataError(f"{path}, line {line}: found {found}, expected text in UTF-8") from None
    if not text:
        return pa.array([], pa.large_string())
    # Not as Python's strings, which take several times the memory.
    return pc.split_pattern(pa.scalar(text.removesuffix("\n"), pa.large_string()), "\n").values


def read_token_file(path: Path, rows: int) -> pa.LargeStringArray:
    """The tokens of a file, one per line.

    Args:
        path: of the file, UTF-8, with LF or CR LF.
        rows: how many there must be.

    Raises:
        DataError: it is not UTF-8, or has another number of lines.
    """
    tokens = token_lines(path)
    if len(tokens) != rows:
        raise DataError(f"{path}: found {plural(len(tokens), 'line')}, expected {rows:,}, one for each row")
    return tokens
