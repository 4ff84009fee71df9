"""Rows of a tensor in a TensorFlow checkpoint, a block at a time in memory, read without TensorFlow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import google_crc32c
import numpy as np

from embexp.errors import DataError
from embexp.system import regular
from embexp.tensor_bundle.index import Entry, Piece, masked

FLOAT32, INT64 = 1, 9
"""Their numbers in TensorFlow's types.proto."""


def read_blocks(key: str, entry: Entry, rows: int) -> Iterator[np.ndarray]:
    """The rows of a float32 matrix in their order; each piece's checksum is compared behind its last block.

    Args:
        key: of the tensor, for errors.
        entry: its place in the data files.
        rows: of a block, at most.

    Yields:
        float32 [n, dim], which can't be written to.

    Raises:
        DataError: it is no such matrix, or a data file is missing, cut short, or damaged.
    """
    if entry.kind != FLOAT32 or len(entry.shape) != 2:
        raise DataError(
            f"{entry.pieces[0].path}: found {key} of TensorFlow's type {entry.kind} and shape {list(entry.shape)},"
            " expected a matrix of float32"
        )
    dim = entry.shape[1]
    for piece in entry.pieces:
        if piece.shape[1:] != (dim,) or piece.size != 4 * piece.shape[0] * dim:
            raise DataError(f"{piece.path}: found {key} in a piece of {list(piece.shape)}, expected rows of {dim}")
        for data in read_content(key, piece, 4 * rows * dim):
            yield np.frombuffer(data, "<f4").reshape(-1, dim)


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


class PieceReader:
    """Reads the bytes of a piece of a tensor in order, and computes their checksum."""

    def __init__(self, key: str, piece: Piece) -> None:
        """Opens the data file.

        Args:
            key: of the tensor, for errors.
            piece: its place.

        Raises:
            DataError: there is no such file.
        """
        if not piece.path.exists():
            raise DataError(f"{piece.path}: found no such file, expected {key} in it")
        if fault := regular.fault_of(piece.path):
            raise DataError(f"{piece.path}: {fault}")
        self._key, self._piece, self._crc, self._left = key, piece, 0, piece.size
        self._file = regular.opened(piece.path)
        if piece.offset + piece.size > os.fstat(self._file.fileno()).st_size:
            self._file.close()
            raise DataError(f"{piece.path}: the file is cut short, {key} is not in it whole")
        self._file.seek(piece.offset)

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the piece.

        Raises:
            DataError: the file is cut short.
        """
        wanted = min(self._left, size)
        data = self._file.read(wanted)
        if len(data) < wanted:
            raise DataError(f"{self._piece.path}: the file is cut short, {self._key} is not in it whole")
        self._crc = google_crc32c.extend(self._crc, data)
        self._left -= wanted
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
