"""One tensor of a TensorFlow checkpoint as NumPy arrays, of any rank and type, read without TensorFlow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from embexp.errors import DataError
from embexp.tensor_bundle import types
from embexp.tensor_bundle.index import Entry, Piece
from embexp.tensor_bundle.rows import read_content
from embexp.tensor_bundle.strings import read_strings

_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Tensor:
    """A tensor in the data files of a checkpoint. The rows of a tensor are its slices along the first dimension.

    Attributes:
        name: how errors begin: the index and the key.
        key: of the tensor.
        entry: its place in the data files.
    """

    name: str
    key: str
    entry: Entry

    @property
    def dtype(self) -> np.dtype | None:
        """NumPy's type of its numbers, `object` for strings; None: NumPy has none, so it can't be read."""
        return np.dtype(object) if self.entry.kind == types.STRING else types.number_type(self.entry.kind)

    def check_place(self) -> None:
        """Checks that the data files have room for it. Reads no values, so damaged ones go unnoticed.

        Raises:
            DataError: a data file is missing or cut short, or the pieces are not the tensor.
        """
        dtype = types.number_type(self.entry.kind)
        for piece in self.entry.pieces:
            if not piece.path.is_file():
                raise DataError(f"{self.name}: found no file {piece.path.name} beside the index, which names it")
            size = piece.path.stat().st_size
            if size < piece.offset + piece.size:
                found = f"{size:,} bytes in {piece.path.name}"
                raise DataError(
                    f"{self.name}: found {found}, expected {piece.offset + piece.size:,}: the file is cut short"
                )
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
            raise DataError(f"{self.name}: it is a scalar and has no rows")
        rows, *rest = self.entry.shape
        if not 0 <= start <= stop <= rows:
            raise DataError(f"{self.name}: there are no rows {start:,} to {stop:,}, it has {rows:,}")
        dtype = self._readable()
        self.check_place()
        parts = [
            (piece, max(start, piece.start[0]), min(stop, piece.start[0] + piece.shape[0]))
            for piece in self.entry.pieces
            if piece.start[0] < stop and piece.start[0] + piece.shape[0] > start
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

    def verify(self) -> None:
        """Reads all of it, a block at a time, and compares the checksums.

        Raises:
            DataError: one is wrong, or a data file is missing or cut short.
        """
        self.check_place()
        for piece in self.entry.pieces:
            if self.entry.kind == types.STRING:
                self._strings(piece)
            else:
                for _ in read_content(self.key, piece, _CHUNK_BYTES):
                    pass

    def _readable(self) -> np.dtype:
        if self.dtype is None:
            raise DataError(f"{self.name}: found a tensor of {types.name_of(self.entry.kind)}, which NumPy lacks")
        return self.dtype

    def _values(self, piece: Piece, start: int, stop: int) -> np.ndarray:
        if self.entry.kind == types.STRING:
            return self._strings(piece)[start:stop]
        dtype, shape = self._readable(), (stop - start, *piece.shape[1:])
        if not math.prod(shape):
            return np.empty(shape, dtype)
        # Only these rows are mapped: what a process has looked at counts as its memory while it is mapped.
        offset = piece.offset + start * math.prod(piece.shape[1:]) * dtype.itemsize
        return np.memmap(piece.path, dtype, "r", offset, shape)

    def _strings(self, piece: Piece) -> np.ndarray:
        values = np.empty(math.prod(piece.shape), object)
        values[:] = read_strings(self.key, Entry(piece.shape, types.STRING, (piece,)))
        return values.reshape(piece.shape)
