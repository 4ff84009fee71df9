"""Tensors of a TensorFlow checkpoint as NumPy arrays, whole or some rows at a time, read without TensorFlow.

Strings in a TensorFlow checkpoint, read without TensorFlow. They are stored as all lengths (varints), a checksum of the
lengths, and all characters. Source: `WriteStringTensor` in tensorflow/core/util/tensor_bundle/tensor_bundle.cc
"""

from __future__ import annotations

import bisect
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import google_crc32c
import ml_dtypes
import numpy as np

from embexp.errors import DataError
from embexp.system import files
from embexp.system.tensor_bundle import index
from embexp.system.tensor_bundle.index import Entry, Piece, masked

_CHUNK_BYTES = 1 << 22
FLOAT32, INT64 = 1, 9
"""Their numbers in TensorFlow's types.proto."""
_STRING_CHUNK_BYTES = 1 << 20
STRING = 7
_NUMBERS: dict[int, tuple[str, np.dtype]] = {
    1: ("float32", np.dtype("<f4")),
    2: ("float64", np.dtype("<f8")),
    3: ("int32", np.dtype("<i4")),
    4: ("uint8", np.dtype("u1")),
    5: ("int16", np.dtype("<i2")),
    6: ("int8", np.dtype("i1")),
    8: ("complex64", np.dtype("<c8")),
    9: ("int64", np.dtype("<i8")),
    10: ("bool", np.dtype("?")),
    11: ("qint8", np.dtype("i1")),
    12: ("quint8", np.dtype("u1")),
    13: ("qint32", np.dtype("<i4")),
    14: ("bfloat16", np.dtype(ml_dtypes.bfloat16)),
    15: ("qint16", np.dtype("<i2")),
    16: ("quint16", np.dtype("<u2")),
    17: ("uint16", np.dtype("<u2")),
    18: ("complex128", np.dtype("<c16")),
    19: ("float16", np.dtype("<f2")),
    22: ("uint32", np.dtype("<u4")),
    23: ("uint64", np.dtype("<u8")),
    24: ("float8_e5m2", np.dtype(ml_dtypes.float8_e5m2)),
    25: ("float8_e4m3fn", np.dtype(ml_dtypes.float8_e4m3fn)),
    26: ("float8_e4m3fnuz", np.dtype(ml_dtypes.float8_e4m3fnuz)),
    27: ("float8_e4m3b11fnuz", np.dtype(ml_dtypes.float8_e4m3b11fnuz)),
    28: ("float8_e5m2fnuz", np.dtype(ml_dtypes.float8_e5m2fnuz)),
    29: ("int4", np.dtype(ml_dtypes.int4)),
    30: ("uint4", np.dtype(ml_dtypes.uint4)),
}
_OTHERS = {STRING: "string", 20: "resource", 21: "variant"}


@dataclass(frozen=True)
class Tensor:
    """A tensor in the data files of a checkpoint. The rows of a tensor are its slices along the first dimension.

    Attributes:
        name: how errors begin: the index and the key.
    """

    name: str
    key: str
    entry: Entry

    @property
    def dtype(self) -> np.dtype | None:
        """NumPy's type of its numbers, `object` for strings; None: NumPy has none, so it can't be read."""
        return np.dtype(object) if self.entry.kind == STRING else number_type(self.entry.kind)

    def check_place(self) -> None:
        """Checks that the data files have room for it. Reads no values, so damaged ones go unnoticed.

        Raises:
            DataError: a data file is missing or cut short, or the pieces are not the tensor.
        """
        dtype = number_type(self.entry.kind)
        for piece in self.entry.pieces:
            _check_there(self.key, piece)
            if dtype is not None and piece.size != math.prod(piece.shape) * dtype.itemsize:
                found = f"{piece.size:,} bytes"
                raise DataError(f"{self.name}: found {found} for numbers of {dtype} {list(piece.shape)}")
        files = sum(path.stat().st_size for path in {piece.path for piece in self.entry.pieces})
        if (size := sum(piece.size for piece in self.entry.pieces)) > files:
            raise DataError(f"{self.name}: found pieces of {size:,} bytes together, in files of {files:,}")
        found_numbers = sum(math.prod(piece.shape) for piece in self.entry.pieces)
        if found_numbers != math.prod(self.entry.shape):
            expected = f"{math.prod(self.entry.shape):,} of {list(self.entry.shape)}"
            raise DataError(f"{self.name}: found pieces of {found_numbers:,} values together, expected {expected}")

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop; numbers of one piece are a mapping of the file, which can't be written to.

        No checksum is compared, as there is one for the whole tensor only; see `verify`. Those of strings are.

        Raises:
            DataError: there are no such rows, NumPy lacks the type, or a data file is missing or cut short.
        """
        if not self.entry.shape:
            raise DataError(f"{self.name}: it is a scalar, so it has no rows")
        rows, *rest = self.entry.shape
        if not 0 <= start <= stop <= rows:
            raise DataError(f"{self.name}: there are no rows {start:,} to {stop:,}, it has {rows:,}")
        dtype = self._readable()
        starts, ends = self._extent
        some = self.entry.pieces[bisect.bisect_right(ends, start) : bisect.bisect_left(starts, stop)]
        for piece in {piece.path: piece for piece in some}.values():
            _check_there(self.key, piece)
        parts = [
            (piece, max(start, piece.start[0]), min(stop, piece.start[0] + piece.shape[0]))
            for piece in some
            if piece.start[0] + piece.shape[0] > start
        ]
        if len(parts) == 1 and parts[0][0].shape[1:] == tuple(rest):
            [(piece, low, high)] = parts
            return self._values(piece, low - piece.start[0], high - piece.start[0])
        values = np.zeros((stop - start, *rest), dtype)
        for piece, low, high in parts:
            columns = (slice(at, at + n) for at, n in zip(piece.start[1:], piece.shape[1:], strict=True))
            place = (slice(low - start, high - start), *columns)
            values[place] = self._values(piece, low - piece.start[0], high - piece.start[0])
        return values

    @cached_property
    def _extent(self) -> tuple[list[int], list[int]]:
        """Of each piece, its first row, and where it or one before it ends at the latest; once all are known to fit."""
        self.check_place()
        ends = accumulate((piece.start[0] + piece.shape[0] for piece in self.entry.pieces), max)
        return [piece.start[0] for piece in self.entry.pieces], list(ends)

    def value(self) -> np.ndarray:
        """All of it, see `read`; of a scalar, an array without dimensions.

        Raises:
            DataError: NumPy lacks the type, or a data file is missing or cut short.
        """
        if self.entry.shape:
            return self.read(0, self.entry.shape[0])
        self._readable()
        self.check_place()
        (piece,) = self.entry.pieces
        return self._values(Piece((1,), (0,), piece.path, piece.offset, piece.size, piece.checksum), 0, 1).reshape(())

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All rows in order; each piece's checksum is compared after its last block.

        Args:
            rows: of a block, at most.

        Yields:
            [n, ...], which can't be written to.

        Raises:
            DataError: NumPy lacks the type, a piece is not of whole rows, or a data file is missing, cut short, or
                damaged.
        """
        dtype, row = self._readable(), self.entry.shape[1:]
        size = math.prod(row) * dtype.itemsize
        for piece in self.entry.pieces:
            whole_rows = piece.shape and piece.shape[1:] == row and piece.size == piece.shape[0] * size
            if self.entry.kind == STRING or not whole_rows:
                raise DataError(
                    f"{piece.path}: found {self.key} in a piece of {list(piece.shape)}, expected whole rows"
                )
            for data in read_content(self.key, piece, rows * size):
                yield np.frombuffer(data, dtype).reshape(-1, *row)

    def verify(self) -> None:
        """Reads all of it, a block at a time, and compares the checksums.

        Raises:
            DataError: one is wrong, or a data file is missing or cut short.
        """
        self.check_place()
        for piece in self.entry.pieces:
            self.verify_piece(piece)

    def verify_piece(self, piece: Piece) -> None:
        """`verify` for one of its pieces."""
        if self.entry.kind == STRING:
            self._strings(piece)
        else:
            for _ in read_content(self.key, piece, _CHUNK_BYTES):
                pass

    def _readable(self) -> np.dtype:
        if self.dtype is None:
            raise DataError(f"{self.name}: found a tensor of {type_name(self.entry.kind)}, which NumPy lacks")
        return self.dtype

    def _values(self, piece: Piece, start: int, stop: int) -> np.ndarray:
        if self.entry.kind == STRING:
            return self._strings(piece)[start:stop]
        dtype, shape = self._readable(), (stop - start, *piece.shape[1:])
        if not math.prod(shape):
            return np.empty(shape, dtype)
        # Only these rows are mapped: what a process has looked at counts as its memory while it is mapped.
        offset = piece.offset + start * math.prod(piece.shape[1:]) * dtype.itemsize
        return np.memmap(piece.path, dtype, "r", offset, shape)

    def _strings(self, piece: Piece) -> np.ndarray:
        values = np.empty(math.prod(piece.shape), object)
        values[:] = read_strings(self.key, Entry(piece.shape, STRING, (piece,)))
        return values.reshape(piece.shape)


def read_content(key: str, piece: Piece, size: int, *, checked: bool = True) -> Iterator[bytes]:
    """The bytes of a piece of a tensor, `size` at a time; its checksum is compared after the last.

    Raises:
        DataError: the file is cut short, or, unless it is not `checked`, damaged.
    """
    with contextlib.closing(PieceReader(key, piece)) as reader:
        while data := reader.read(size):
            yield data
        if checked:
            reader.check()


def _check_there(key: str, piece: Piece) -> None:
    if not piece.path.exists():
        raise DataError(f"{piece.path}: found no such file, expected {key} in it")
    if fault := files.fault_of(piece.path):
        raise DataError(f"{piece.path}: {fault}")
    if (size := piece.path.stat().st_size) < (end := piece.offset + piece.size):
        raise DataError(
            f"{piece.path}: found {size:,} bytes, expected {end:,}: the file is cut short, so {key} is incomplete"
        )


class PieceReader:
    """Reads the bytes of a piece of a tensor in order, and computes their checksum."""

    def __init__(self, key: str, piece: Piece) -> None:
        """Opens the data file.

        Raises:
            DataError: there is no such file, or it is cut short.
        """
        _check_there(key, piece)
        self._key, self._piece, self._crc, self._left = key, piece, 0, piece.size
        self._file = files.opened(piece.path)
        self._file.seek(piece.offset)

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the piece.

        Raises:
            DataError: the file is cut short.
        """
        data = self._file.read(expected := min(self._left, size))
        if len(data) < expected:
            raise DataError(f"{self._piece.path}: the file is cut short, so {self._key} is incomplete")
        self._crc = google_crc32c.extend(self._crc, data)
        self._left -= expected
        return data

    def check(self) -> None:
        """Compares the checksum, once all bytes are read.

        Raises:
            DataError: the file is damaged.
        """
        if masked(self._crc) != self._piece.checksum:
            raise DataError(
                f"{self._piece.path}: found the checksum {masked(self._crc):#010x} of {self._key},"
                f" expected {self._piece.checksum:#010x}: the file is damaged"
            )

    def close(self) -> None:
        """Closes the data file."""
        self._file.close()


def read_strings(key: str, entry: Entry) -> list[bytes]:
    """All strings of a tensor, in row-major order.

    Raises:
        DataError: it is no tensor of strings, or its data file is missing, cut short, or damaged.
    """
    piece = entry.pieces[0]
    if entry.kind != STRING:
        raise DataError(f"{piece.path}: found {key} of TensorFlow's type {entry.kind}, expected strings")
    data = b"".join(read_content(key, piece, _STRING_CHUNK_BYTES, checked=False))
    try:
        lengths, start = _lengths(data, math.prod(entry.shape))
    except (IndexError, ValueError):
        raise DataError(f"{piece.path}: the lengths of the strings of {key} are damaged") from None
    # The checksum is taken over the lengths as fixed integers, not over the varints in the file.
    crc = google_crc32c.value(b"".join(each.to_bytes(4 if each < 1 << 32 else 8, "little") for each in lengths))
    crc = google_crc32c.extend(crc, data[start:])
    if len(data) != start + 4 + sum(lengths) or masked(crc) != piece.checksum:
        raise DataError(f"{piece.path}: {key} differs from its checksum: the file is damaged")
    found, at = [], start + 4
    for length in lengths:
        found.append(data[at : at + length])
        at += length
    return found


def _lengths(data: bytes, count: int) -> tuple[list[int], int]:
    """So many varints, and where they end."""
    lengths, at = [], 0
    for _ in range(count):
        length, at = index.varint(data, at)
        lengths.append(length)
    return lengths, at


def type_name(kind: int) -> str:
    """TensorFlow's name of a type."""
    if kind in _NUMBERS:
        return _NUMBERS[kind][0]
    return _OTHERS.get(kind, f"type {kind}")


def bytes_of(entry: Entry) -> int:
    """Bytes of all values; those of strings as they are in the file."""
    dtype = number_type(entry.kind)
    return sum(piece.size for piece in entry.pieces) if dtype is None else math.prod(entry.shape) * dtype.itemsize


MATRICES = {1, 14, 19}
"""Numbers of the types of matrices that are written: float32, bfloat16 and float16."""


def number_type(kind: int) -> np.dtype | None:
    """NumPy's type for numbers of a type, little-endian; None: they are no numbers, or NumPy has no such type."""
    return _NUMBERS[kind][1] if kind in _NUMBERS else None
