"""Strings in a TensorFlow checkpoint, read without TensorFlow.

They are stored as all lengths (varints), a checksum of the lengths, and all characters.
Source: `WriteStringTensor` in tensorflow/core/util/tensor_bundle/tensor_bundle.cc
"""

from __future__ import annotations

import math

import google_crc32c

from embexp.errors import DataError
from embexp.tensor_bundle import wire
from embexp.tensor_bundle.index import Entry, masked
from embexp.tensor_bundle.rows import read_content
from embexp.tensor_bundle.types import STRING

_CHUNK_BYTES = 1 << 20


def read_strings(key: str, entry: Entry) -> list[bytes]:
    """All strings of a tensor, in row-major order.

    Args:
        key: of the tensor, for errors.
        entry: its place in the data files.

    Raises:
        DataError: it is no tensor of strings, or its data file is missing, cut short, or damaged.
    """
    piece = entry.pieces[0]
    if entry.kind != STRING:
        raise DataError(f"{piece.path}: found {key} of TensorFlow's type {entry.kind}, expected strings")
    if not piece.path.is_file():
        raise DataError(f"{piece.path}: found no such file, expected {key} in it")
    data = b"".join(read_content(key, piece, _CHUNK_BYTES, checked=False))
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
        length, at = wire.varint(data, at)
        lengths.append(length)
    return lengths, at
