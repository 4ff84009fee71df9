"""Rows of a tensor in a TensorFlow checkpoint, a block at a time in memory, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

import google_crc32c
import numpy as np

from embexp.errors import DataError
from embexp.tensor_bundle.index import Entry, Piece, masked

FLOAT32 = 1
"""Its number in TensorFlow's types.proto."""


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
        if not piece.path.is_file():
            raise DataError(f"{piece.path}: found no such file, expected {key} in it")
        for data in read_content(key, piece, 4 * rows * dim):
            yield np.frombuffer(data, "<f4").reshape(-1, dim)


def read_content(key: str, piece: Piece, size: int, *, checked: bool = True) -> Iterator[bytes]:
    """The bytes of a piece of a tensor, `size` at a time; its checksum is compared after the last.

    Raises:
        DataError: the file is cut short, or, unless it is not `checked`, damaged.
    """
    crc, left = 0, piece.size
    with piece.path.open("rb") as file:
        file.seek(piece.offset)
        while left:
            wanted = min(left, size)
            data = file.read(wanted)
            if len(data) < wanted:
                raise DataError(f"{piece.path}: the file is cut short, {key} is not in it whole")
            crc = google_crc32c.extend(crc, data)
            left -= wanted
            yield data
    if checked and masked(crc) != piece.checksum:
        raise DataError(
            f"{piece.path}: found the checksum {masked(crc):#010x} of {key}, expected {piece.checksum:#010x}:"
            " the file is damaged"
        )
