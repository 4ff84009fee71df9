"""Writing a TensorFlow checkpoint piece by piece, without TensorFlow: no tensor is ever in memory whole.

`index` has the form and its sources. Every tensor is in one piece and begins at a multiple of 64 bytes, so that it
can be mapped and used without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import google_crc32c
import numpy as np

from embexp.errors import DataError
from embexp.system import arrays
from embexp.tensor_bundle.index import (
    FOOTER_BYTES,
    MAGIC,
    TRAILER_BYTES,
    Entry,
    data_file,
    index_of,
    masked,
    read_encoded,
)
from embexp.tensor_bundle.tensor import FLOAT32, INT64, STRING, read_content

_CHUNK_BYTES = 1 << 24
_VERSION = b"\x1a\x02\x08\x01"
"""The part of a BundleHeaderProto that says it is as producers of version 1 write it; numbers are little-endian."""


def index_content(entries: Mapping[bytes, bytes], shards: int) -> bytes:
    """The content of an index.

    Args:
        entries: encoded, by key, as `read_encoded` returns them.
        shards: number of data files.
    """
    return table_content({b"": _number(1, shards) + _VERSION, **entries})


def sliced_entry(kind: int, shape: Sequence[int], slices: Iterable[Sequence[tuple[int, int]]]) -> bytes:
    """The entry of a tensor whose values are in slices, which have entries of their own.

    Args:
        kind: number of its type.
        slices: of each, start and length in each dimension.
    """
    extents = [[_number(1, start) + b"\x10" + _varint(length) for start, length in each] for each in slices]
    content = b"".join(_message(7, b"".join(_message(1, extent) for extent in each)) for each in extents)
    return _number(1, kind) + _shape(shape) + content


class BundleWriter:
    """Writes a data file as tensors come, and `PREFIX.index` at the end.

    The data file is `PREFIX.data-00000-of-00001`, or the last one of a checkpoint that is there already.
    """

    def __init__(self, prefix: Path, *, adding: bool = False) -> None:
        """Makes the data file.

        Args:
            prefix: of the checkpoint; its folder is there.
            adding: it is there too: tensors come beside its own, or in their place. Its data files are renamed at
                once, as their names say how many there are, so until `finish` it can't be read.

        Raises:
            FileExistsError: there is a checkpoint, and nothing is to be added to it.
            DataError: the index of the checkpoint is damaged.
        """
        self._index = index_of(prefix)
        self._entries, self._shard = read_encoded(self._index) if adding else ({}, 0)
        shards = self._shard + 1
        for shard in range(self._shard):
            file = data_file(self._index, shard, self._shard)
            if file.exists():  # one without a tensor may have been left out
                file.rename(data_file(self._index, shard, shards))
        self._file: IO[bytes] = data_file(self._index, self._shard, shards).open("xb")

    def add(self, key: str, shape: tuple[int, int], blocks: Iterable[np.ndarray]) -> None:
        """Writes a float32 matrix.

        Args:
            shape: rows and dim.
            blocks: its rows, one block behind the other.

        Raises:
            ValueError: the blocks are not that matrix.
        """
        offset = self._aligned()
        crc = size = 0
        with ThreadPoolExecutor(1) as thread:  # writes a block while the next one is made, which takes as long
            written: Future[int] | None = None
            for block in blocks:
                if block.dtype != np.float32 or block.ndim != 2 or block.shape[1] != shape[1]:
                    raise ValueError(f"{key}: found {block.dtype} {block.shape}, expected rows of {shape[1]} float32")
                data = np.ascontiguousarray(block).view(np.uint8).reshape(-1)
                crc = google_crc32c.extend(crc, data)
                size += data.nbytes
                if written is not None:
                    written.result()
                written = thread.submit(self._file.write, data.data)
                del block, data
            if written is not None:
                written.result()
        if size != 4 * shape[0] * shape[1]:
            raise ValueError(f"{key}: found {size:,} bytes, expected a matrix of {shape[0]} × {shape[1]}")
        self._enter(key, FLOAT32, shape, offset, size, masked(crc))

    def add_numbers(self, key: str, numbers: np.ndarray) -> None:
        """Writes an int64 vector.

        Raises:
            ValueError: it is none.
        """
        if numbers.dtype != np.int64 or numbers.ndim != 1:
            raise ValueError(f"{key}: found {numbers.dtype} {numbers.shape}, expected a vector of int64")
        self.add_bytes(key, INT64, numbers.shape, np.ascontiguousarray(numbers))

    def add_bytes(self, key: str, kind: int, shape: tuple[int, ...], data: bytes | np.ndarray) -> None:
        """Writes numbers of any type, as they are in memory: in row-major order, little-endian.

        Args:
            kind: number of the type.
        """
        offset, content = self._aligned(), np.frombuffer(data, np.uint8)
        self._file.write(content.data)
        self._enter(key, kind, shape, offset, len(content), masked(google_crc32c.value(content)))

    def add_strings(self, key: str, shape: tuple[int, ...], values: Sequence[bytes]) -> None:
        """Writes strings in row-major order: their lengths, a checksum of these, and their bytes."""
        offset = self._aligned()
        lengths = b"".join(struct.pack("<I" if len(each) < 2**32 else "<Q", len(each)) for each in values)
        crc = google_crc32c.value(lengths)
        of_lengths = struct.pack("<I", masked(crc))
        content = b"".join(values)
        crc = google_crc32c.extend(google_crc32c.extend(crc, of_lengths), content)
        data = b"".join(_varint(len(each)) for each in values) + of_lengths + content
        self._file.write(data)
        self._enter(key, STRING, shape, offset, len(data), masked(crc))

    def copy(self, key: str, entry: Entry) -> None:
        """Copies a tensor of another checkpoint, of any type, as it is.

        Raises:
            DataError: its checksum is wrong, or it is in several pieces.
        """
        (piece, *more) = entry.pieces
        if more:
            raise DataError(f"{piece.path}: found {key} in {1 + len(more)} pieces, expected one")
        offset = self._aligned()
        # Checksums of strings are taken over lengths and characters apart, not over the bytes.
        for data in read_content(key, piece, _CHUNK_BYTES, checked=entry.kind != STRING):
            self._file.write(data)
        self._enter(key, entry.kind, entry.shape, offset, piece.size, piece.checksum)

    def finish(self) -> None:
        """Writes the index; the checkpoint is whole then."""
        self._file.close()
        self._index.write_bytes(index_content(self._entries, self._shard + 1))

    def close(self) -> None:
        """Closes the data file, whole or not."""
        self._file.close()

    def _aligned(self) -> int:
        self._file.write(bytes(-self._file.tell() % arrays.ALIGNMENT))
        return self._file.tell()

    def _enter(self, key: str, kind: int, shape: tuple[int, ...], offset: int, size: int, checksum: int) -> None:
        self._entries[key.encode()] = (
            _number(1, kind)
            + _shape(shape)
            + _number(3, self._shard)
            + _number(4, offset)
            + _number(5, size)
            + b"\x35"
            + struct.pack("<I", checksum)
        )


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _number(field: int, value: int) -> bytes:
    """A field of a protocol buffer that is a number; 0, the default, is omitted."""
    return _varint(field << 3) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _shape(shape: Sequence[int]) -> bytes:
    return _message(2, b"".join(_message(2, _number(1, each)) for each in shape))


def table_content(entries: Mapping[bytes, bytes]) -> bytes:
    """A sorted table: one block of entries in the order of their keys, one that names it, and a footer."""
    keys = sorted(entries)
    file = _block([(key, entries[key]) for key in keys])
    data = _handle(0, file)
    meta_offset = len(file)
    meta = _block([])
    index_offset = meta_offset + len(meta)
    index = _block([(keys[-1], data)])
    footer = _handle(meta_offset, meta) + _handle(index_offset, index)
    return file + meta + index + footer.ljust(FOOTER_BYTES - 8, b"\0") + MAGIC.to_bytes(8, "little")


def _handle(offset: int, block: bytes) -> bytes:
    return _varint(offset) + _varint(len(block) - TRAILER_BYTES)


def _block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Entries with whole keys, each a point at which reading may begin, and what a block ends with."""
    content, starts = bytearray(), []
    for key, value in entries:
        starts.append(len(content))
        content += _varint(0) + _varint(len(key)) + _varint(len(value)) + key + value
    starts = starts or [0]
    content += b"".join(struct.pack("<I", start) for start in starts) + struct.pack("<I", len(starts))
    content += b"\0"  # not compressed
    return bytes(content) + struct.pack("<I", masked(google_crc32c.value(bytes(content))))
