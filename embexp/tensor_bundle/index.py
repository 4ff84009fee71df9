"""The index of a TensorFlow checkpoint: each tensor's shape and place. Read without TensorFlow, which imports slowly.

The `.index` file is a sorted table of the LevelDB family: a footer names the index block, whose entries name the data
blocks, whose entries are keys without the beginning they share and, as values, protocol buffers.
Sources: tensorflow/core/util/tensor_bundle/tensor_bundle.h, tensorflow/core/protobuf/tensor_bundle.proto,
tensorflow/core/lib/io/format.h, tensorflow/core/util/saved_tensor_slice_util.h
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from embexp.errors import DataError

FOOTER_BYTES = 48
MAGIC = 0xDB4775248B80FB57
TRAILER_BYTES = 5


@dataclass(frozen=True)
class Piece:
    """Rows of a tensor, or all of it, in a data file.

    Attributes:
        shape: of the piece.
        path: of the data file.
        offset: in bytes.
        size: in bytes.
        checksum: masked CRC32C of these bytes.
    """

    shape: tuple[int, ...]
    path: Path
    offset: int
    size: int
    checksum: int


@dataclass(frozen=True)
class Entry:
    """A tensor.

    Attributes:
        shape: of the whole.
        kind: number of its type in TensorFlow's types.proto.
        pieces: in the order of their rows; one, if the tensor is stored whole.
    """

    shape: tuple[int, ...]
    kind: int
    pieces: tuple[Piece, ...]


def read_index(index: Path) -> dict[str, Entry]:
    """All tensors of a checkpoint, by key.

    Args:
        index: the file that ends with `.index`.

    Raises:
        DataError: it is no such file.
    """
    try:
        table, shards = _whole(index)
        found: dict[str, Entry] = {}
        for key, value in table.items():
            if key.startswith(b"\x00"):
                continue  # a slice of a tensor, found below by its tensor's name
            fields = _fields(value)
            piece = _piece(index, fields, shards)
            pieces: tuple[Piece, ...] = (piece,)
            if 7 in fields:
                start = slice_prefix(key)
                pieces = tuple(
                    _piece(index, _fields(table[each]), shards) for each in sorted(table) if each.startswith(start)
                )
            found[key.decode("utf-8")] = Entry(piece.shape, int(fields.get(1, [0])[0]), pieces)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise _no_index(index, error) from None
    return found


def read_encoded(index: Path) -> tuple[dict[bytes, bytes], int]:
    """All entries of an index, encoded, by key, and the number of data files.

    Args:
        index: the file that ends with `.index`.

    Raises:
        DataError: it is no such file.
    """
    try:
        return _whole(index)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise _no_index(index, error) from None


def data_file(index: Path, shard: int, shards: int) -> Path:
    """One of the data files that belong to an index."""
    return index.with_name(f"{index.name.removesuffix('.index')}.data-{shard:05d}-of-{shards:05d}")


def masked(crc: int) -> int:
    """A CRC32C as TensorFlow stores it: tensorflow/core/lib/hash/crc32c.h."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _no_index(index: Path, error: Exception) -> DataError:
    return DataError(f"{index}: found no whole index of a TensorFlow checkpoint: {error}")


def _whole(index: Path) -> tuple[dict[bytes, bytes], int]:
    table = dict(_table(index.read_bytes()))
    header = _fields(table.pop(b""))
    if header.get(2, [0])[0] != 0:
        raise ValueError("its numbers are big-endian")
    return table, int(header.get(1, [1])[0])


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    footer = data[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or int.from_bytes(footer[40:], "little") != MAGIC:
        raise ValueError("it does not end as one")
    _, at = _number(footer, 0)
    _, at = _number(footer, at)
    offset, at = _number(footer, at)
    size, at = _number(footer, at)
    for _, handle in _block(data, offset, size):
        start, at = _number(handle, 0)
        length, _ = _number(handle, at)
        yield from _block(data, start, length)


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    if offset + size + TRAILER_BYTES > len(data):
        raise ValueError("a block is behind its end")
    if data[offset + size]:
        raise ValueError("its blocks are compressed")
    block = data[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = size - 4 - 4 * restarts, 0, b""
    while at < end:
        shared, at = _number(block, at)
        fresh, at = _number(block, at)
        length, at = _number(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(message: bytes) -> Mapping[int, list[int | bytes]]:
    """The fields of a protocol buffer by number, in their order."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        match tag & 7:
            case 0:
                value: int | bytes
                value, at = _number(message, at)
            case 2:
                length, at = _number(message, at)
                value, at = message[at : at + length], at + length
            case 1 | 5 as wire:
                width = 8 if wire == 1 else 4
                value, at = int.from_bytes(message[at : at + width], "little"), at + width
            case wire:
                raise ValueError(f"a protocol buffer in it has wire type {wire}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _piece(index: Path, fields: Mapping[int, list[int | bytes]], shards: int) -> Piece:
    shape = []
    for message in fields.get(2, []):
        for dimension in _fields(_as_bytes(message)).get(2, []):
            shape.append(int(_fields(_as_bytes(dimension)).get(1, [0])[0]))
    shard = int(fields.get(3, [0])[0])
    offset, size = int(fields.get(4, [0])[0]), int(fields.get(5, [0])[0])
    return Piece(tuple(shape), data_file(index, shard, shards), offset, size, int(fields.get(6, [0])[0]))


def _as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a protocol buffer in it is not of the form expected")
    return value


def slice_prefix(key: bytes) -> bytes:
    """How the keys of a tensor's slices begin: 0 and its key, in TensorFlow's order-preserving code.

    What follows are the rank, then start and length for each dimension, so that the keys sort by the first row.
    """
    escapes = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}
    name = b"".join(escapes.get(byte, bytes([byte])) for byte in key)
    return b"\x00" + name + b"\x00\x01"
