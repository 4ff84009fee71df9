"""A matrix in a file: as it is stored, before conversion and any policy; and as it is converted into the cache.

What is converted is a folder of the cache, with `matrix.npy`, `tokens.arrow` if there are tokens, `scales.npy` of int8,
and `notes.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies import vocabulary
from embexp.errors import DataError, plural
from embexp.specs.pretrained import InvalidText, NonFinite
from embexp.specs.tables import RowType
from embexp.system import arrays
from embexp.system.parallel import Progress, quiet

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (np.dtype("f2"), BFLOAT16, np.dtype("f4"), np.dtype("f8"))
"""Types of numbers that vectors may be stored as, in any byte order."""
ROW_TYPES = {
    RowType.FLOAT32: np.dtype("<f4"),
    RowType.BFLOAT16: BFLOAT16,
    RowType.FLOAT16: np.dtype("<f2"),
    RowType.INT8: np.dtype("i1"),
}
HEADER_BYTES = 128
VERSION = 2
"""Of the converted files; part of the cache key."""
_MATRIX, _TOKENS, _SCALES, _NOTES = "matrix.npy", "tokens.arrow", "scales.npy", "notes.json"
_LEVELS = 127
"""Of int8 on either side of 0."""
CHUNK_BYTES = 16 * 1024 * 1024
"""Of rows that are converted at a time."""
_FINITE = f"expected finite numbers; to continue, set the policy to {NonFinite.ZERO} or {NonFinite.SKIP}"


@dataclass(frozen=True)
class Wanted:
    """What a reader of files is asked for.

    Attributes:
        cache: folder for what it has to unpack or convert.
        key: which matrix of a file that may hold several; None: the only one.
        token_column: where the tokens are, in a file of columns or datasets.
    """

    cache: Path
    key: str | None = None
    token_column: str | None = None
    progress: Progress = quiet


@dataclass(frozen=True)
class Place:
    """Place of a matrix in C order, with numbers as in `ROW_TYPES`, in a file from which it can be mapped."""

    path: Path
    offset: int


@dataclass(frozen=True)
class Stored:
    """A matrix in a file.

    Attributes:
        name: of the file, and of the matrix in it where there are several; how errors begin.
        dtype: as stored, one of `FLOATS`, or int8 with scales.
        read: rows start to stop as stored, [stop - start, dim].
        files: those of which the digest is taken.
        place: where it could be mapped; None: nowhere.
        tokens: gives the word of each row; None: it has none.
        notes: what reading removed or mended, with counts.
        finite: whether every number is already known to be one.
        check: raises a DataError where a stored checksum is wrong; None: the file has none.
        scales: gives what the numbers of each row are multiplied by, float32 [rows], aligned; None: 1.
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
    scales: Callable[[], np.ndarray] | None = None


def checked_shape(name: str, shape: Sequence[int], dtype: np.dtype) -> tuple[int, int]:
    """Rows and dim of an array.

    Raises:
        DataError: it is no matrix of floating-point numbers, or holds none.
    """
    if len(shape) != 2:
        raise DataError(f"{name}: found an array of {len(shape)} dimensions, {tuple(shape)}, expected 2, rows and dim")
    if dtype.newbyteorder("=") not in FLOATS:
        allowed = "float16, bfloat16, float32 or float64, or, in safetensors files, int8 with one scale per row"
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
    raise DataError(f"{path}: found {len(matrices)} matrices; set key to one of {listed}")


def tokens_path(path: Path) -> Path:
    """Where the tokens of a file of vectors are looked for: `a.tokens.txt` for `a.npy`."""
    return path.with_name(f"{path.stem}.tokens.txt")


def read_token_file(path: Path, rows: int) -> pa.LargeStringArray:
    """The tokens of a file, one per line.

    Args:
        path: of the file, UTF-8, with LF or CR LF.
        rows: how many there must be.

    Raises:
        DataError: it is not UTF-8, or has another number of lines.
    """
    tokens = vocabulary.token_lines(path)
    if len(tokens) != rows:
        raise DataError(f"{path}: found {plural(len(tokens), 'line')}, expected {rows:,}, one for each row")
    return tokens


class Writer:
    """Writes rows into a folder as they come, without the rows that the policies remove.

    Args:
        folder: an empty one.
        invalid_text: what becomes of tokens that are not UTF-8.
        non_finite: what becomes of numbers that are not finite.
        distinct: whether the tokens are words: only the first row of each is kept, and no row whose token is empty or
            white space alone; only of float32.
        stored_as: what numbers are written as, rounded to the nearest.
    """

    def __init__(
        self,
        folder: Path,
        dim: int,
        *,
        invalid_text: InvalidText = InvalidText.ERROR,
        non_finite: NonFinite = NonFinite.KEEP,
        distinct: bool = True,
        stored_as: RowType = RowType.FLOAT32,
    ) -> None:
        self._folder, self._dim, self._stored_as = folder, dim, stored_as
        self._scales: list[np.ndarray] = []
        if stored_as is RowType.INT8 and non_finite is NonFinite.KEEP:
            non_finite = NonFinite.ERROR  # int8 has none
        self._invalid_text, self._non_finite, self._distinct = invalid_text, non_finite, distinct
        self._tokens: list[pa.LargeStringArray] = []
        self._rows = 0
        self._notes: Counter[str] = Counter()
        self._file = (folder / _MATRIX).open("wb")
        self._file.write(bytes(HEADER_BYTES))

    def add(
        self,
        values: np.ndarray,
        tokens: pa.LargeStringArray | None,
        where: str,
        first: int,
        scales: np.ndarray | None = None,
    ) -> None:
        """Appends rows.

        Args:
            values: float32 [n, dim], which may be changed; or int8 with scales, written as they are.
            tokens: [n], perhaps not valid UTF-8; None: there are none.
            where: the file, and the word for a row of it, such as `a.txt, line`.
            first: number of the first of these rows in the file, for errors.
            scales: float32 [n], of int8.

        Raises:
            DataError: a token or a number that the policy doesn't allow.
        """
        kept = np.ones(len(values), bool)
        if tokens is not None:
            tokens = self._as_utf8(tokens, kept, where, first)
            if self._distinct and (rows := blank_rows(tokens)).size:
                kept[rows] = False
                self._notes["rows left out: tokens that are blanks"] += rows.size
        values[~kept] = 0
        rows = mended(values, self._non_finite, where, first)
        if rows.size and self._non_finite is NonFinite.ZERO:
            self._notes["rows with numbers that were not finite, set to 0"] += rows.size
        elif rows.size:
            kept[rows] = False
            self._notes["rows left out: numbers that are not finite"] += rows.size
        if not kept.all():
            values = values[kept]
            tokens = None if tokens is None else tokens.filter(pa.array(kept))
        if self._stored_as is RowType.INT8:
            values, scales = quantised(values) if scales is None else (values, scales[kept])
            self._scales.append(scales)
        self._file.write(self._rounded(values, where, first).view(np.uint8).data)
        self._rows += len(values)
        if tokens is not None:
            self._tokens.append(tokens)

    def finish(self, where: str) -> None:
        """Writes the tokens and the header; the folder is whole then.

        Raises:
            DataError: no row is left.
        """
        self._file.close()
        path = self._folder / _MATRIX
        if self._tokens:
            tokens = pa.concat_arrays(self._tokens)
            if self._distinct:
                tokens = self._first_of_each(path, tokens)
            batch = pa.record_batch([tokens], names=["token"])
            with pa.OSFile(str(self._folder / _TOKENS), "wb") as file, pa.ipc.new_file(file, batch.schema) as ipc:
                ipc.write_batch(batch)
        if not self._rows:
            raise DataError(f"{where}: found no row of vectors, expected at least one")
        with path.open("r+b") as file:
            file.write(header(self._rows, self._dim, ROW_TYPES[self._stored_as]))
        if self._scales:
            with arrays.ArrayWriter(self._folder / _SCALES, np.float32) as scales:
                for some in self._scales:
                    scales.append(some)
        notes = {"rows": self._rows, "dim": self._dim, "notes": dict(self._notes)}
        (self._folder / _NOTES).write_text(json.dumps(notes), encoding="utf-8")

    def close(self) -> None:
        """Closes the file, whole or not."""
        self._file.close()

    def _rounded(self, values: np.ndarray, where: str, first: int) -> np.ndarray:
        """Rows as they are written."""
        with np.errstate(over="ignore"):
            written = np.ascontiguousarray(values, ROW_TYPES[self._stored_as])
        beyond = self._stored_as is RowType.FLOAT16 and self._non_finite is not NonFinite.KEEP
        if beyond and (rows := non_finite_rows(written)).size:
            largest = np.abs(values[rows[0]]).max()
            raise DataError(
                f"{where} {first + rows[0]}: found {largest:g}, but the largest float16 number is 65,504; "
                f"choose dtype=bfloat16, which has the range of float32"
            )
        return written

    def _as_utf8(self, tokens: pa.LargeStringArray, kept: np.ndarray, where: str, first: int) -> pa.LargeStringArray:
        rows = invalid_rows(tokens)
        if not rows.size:
            return tokens
        written = tokens.cast(pa.large_binary()).to_pylist()
        if self._invalid_text is InvalidText.ERROR:
            found = repr(written[rows[0]])
            policies = f"{InvalidText.REPLACE} or {InvalidText.SKIP}"
            remedy = f"to continue, set the policy to {policies}"
            raise DataError(f"{where} {first + rows[0]}: found the token {found}, expected text in UTF-8; {remedy}")
        if self._invalid_text is InvalidText.SKIP:
            kept[rows] = False
            self._notes["rows left out: tokens that are not UTF-8"] += rows.size
        else:
            self._notes["tokens that were not UTF-8, wrong bytes replaced"] += rows.size
        return pa.array([token.decode("utf-8", "replace") for token in written], pa.large_string())

    def _first_of_each(self, path: Path, tokens: pa.LargeStringArray) -> pa.LargeStringArray:
        encoded = tokens.dictionary_encode()
        if len(encoded.dictionary) == len(tokens):
            return tokens
        # Codes are given in the order of first appearance, so these rows ascend.
        _, first = np.unique(encoded.indices.to_numpy(), return_index=True)
        self._notes["rows left out: tokens seen before"] += len(tokens) - first.size
        matrix = np.memmap(path, np.float32, "r+", HEADER_BYTES, (self._rows, self._dim))
        step = max(1, CHUNK_BYTES // (4 * self._dim))
        for start in range(0, first.size, step):  # rows only move towards the start, so none is overwritten unread
            chosen = first[start : start + step]
            matrix[start : start + chosen.size] = matrix[chosen]
        matrix.flush()
        del matrix
        self._rows = int(first.size)
        with path.open("r+b") as file:
            file.truncate(HEADER_BYTES + 4 * self._rows * self._dim)
        return tokens.take(pa.array(first))


def blank_rows(tokens: pa.LargeStringArray) -> np.ndarray:
    """Numbers of the tokens that are empty, or spaces and tabs alone. U+00A0 and the like are tokens of their own."""
    return np.flatnonzero(pc.equal(pc.binary_length(pc.utf8_trim(tokens, " \t")), 0))


def invalid_rows(tokens: pa.LargeStringArray) -> np.ndarray:
    """Numbers of the tokens that are not UTF-8."""
    try:
        tokens.validate(full=True)
    except pa.ArrowInvalid:
        written = tokens.cast(pa.large_binary()).to_pylist()
        whole = [token.decode("utf-8", "ignore").encode() == token for token in written]
        return np.flatnonzero(np.logical_not(whole))
    return np.empty(0, np.int64)


def quantised(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in 8 bits: int8 [n, dim], and a scale for each row, float32 [n].

    A number differs from int8 × scale, computed in float32, by at most (1/2 + 2^-16) × scale. The scale is the largest
    magnitude of the row / 127; but at least the smallest normal number, as smaller ones are 0 to some processors, and
    at most what 127 times is finite.

    Args:
        values: float32 [n, dim], finite.
    """
    largest = np.abs(values).max(axis=1)
    smallest, most = np.finfo(np.float32).smallest_normal, np.finfo(np.float32).max / np.float32(_LEVELS)
    scales = np.clip(largest / np.float32(_LEVELS), smallest, np.nextafter(most, np.float32(0)))
    return np.rint(values / scales[:, None].astype(np.float64)).astype(np.int8), scales


def header(rows: int, dim: int, dtype: np.dtype = ROW_TYPES[RowType.FLOAT32]) -> bytes:
    """The header of a `.npy` file in C order, `HEADER_BYTES` long, so that what follows is aligned."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}"
    room = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + room.to_bytes(2, "little") + text.ljust(room - 1).encode("ascii") + b"\n"


def read(
    folder: Path,
    *,
    name: str,
    files: list[Path],
    non_finite: NonFinite,
    stored_as: RowType = RowType.FLOAT32,
) -> Stored:
    """The matrix that a `Writer` wrote to a folder."""
    known = json.loads((folder / _NOTES).read_text("utf-8"))
    rows, dim = known["rows"], known["dim"]
    matrix = np.memmap(folder / _MATRIX, ROW_TYPES[stored_as], "r", HEADER_BYTES, (rows, dim))
    scales = folder / _SCALES
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=ROW_TYPES[stored_as],
        read=lambda start, stop: matrix[start:stop],
        files=files,
        place=Place(folder / _MATRIX, HEADER_BYTES),
        tokens=(lambda: tokens_of(folder)) if (folder / _TOKENS).exists() else None,
        notes=known["notes"],
        finite=non_finite is not NonFinite.KEEP,
        scales=(lambda: arrays.mapped_array(scales)) if scales.exists() else None,
    )


def tokens_of(folder: Path) -> pa.LargeStringArray:
    """The tokens in a folder of the cache, mapped."""
    with pa.memory_map(str(folder / _TOKENS)) as file, pa.ipc.open_file(file) as ipc:
        return ipc.get_batch(0).column(0)


def as_float32(values: np.ndarray, scales: np.ndarray | None = None) -> np.ndarray:
    """The values as C-contiguous float32 in memory of their own; what float32 can't hold becomes infinite.

    Args:
        scales: float32 [n], what the numbers of each row are multiplied by; None: 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN is invalid
        return arrays.widened(np.array(values, np.float32, order="C"), scales)


def non_finite_rows(values: np.ndarray) -> np.ndarray:
    """Numbers of the rows that hold a NaN or an infinity, int64, ascending."""
    # The sum of all is finite only if each value is (but it may overflow, so that it alone condemns nothing).
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(values, axis=None)):
            return np.empty(0, np.int64)
    return np.flatnonzero(~np.isfinite(values).all(axis=1))


def mended(values: np.ndarray, policy: NonFinite, where: str, first: int) -> np.ndarray:
    """Numbers of the rows that are not finite, none where all may be kept; under ZERO, what is not finite becomes 0.

    Args:
        values: [n, dim], changed in place.
        where: see `Writer.add`; so is `first`.

    Raises:
        DataError: there are some, under ERROR.
    """
    rows = np.empty(0, np.int64) if policy is NonFinite.KEEP else non_finite_rows(values)
    if rows.size and policy is NonFinite.ERROR:
        raise not_finite(values[rows[0]], f"{where} {first + rows[0]}")
    if rows.size and policy is NonFinite.ZERO:
        some = values[rows]
        some[~np.isfinite(some)] = 0
        values[rows] = some
    return rows


def not_finite(row: np.ndarray, where: str, rest: str = _FINITE) -> DataError:
    """The error of a row with a number that is not finite."""
    place = int(np.flatnonzero(~np.isfinite(row))[0])
    return DataError(f"{where}: found {row[place]} at place {place + 1} of {row.size}, {rest}")
