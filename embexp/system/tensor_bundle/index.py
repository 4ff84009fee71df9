"""The index of a TensorFlow checkpoint, read without TensorFlow, and the protocol buffers in it, by field number.

The `.index` file is a sorted table of the LevelDB family: a footer names the index block, whose entries name the data
blocks, whose entries are keys without the beginning they share and, as values, protocol buffers.
Sources: tensorflow/core/util/tensor_bundle/tensor_bundle.h, tensorflow/core/protobuf/tensor_bundle.proto,
tensorflow/core/lib/io/format.h, tensorflow/core/util/saved_tensor_slice_util.h

Protocol buffers read by field number, without their classes: those come with TensorFlow, which imports slowly. Source:
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import bisect
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from embexp.errors import DataError
from embexp.system import files

FOOTER_BYTES = 48
MAGIC = 0xDB4775248B80FB57
TRAILER_BYTES = 5
_MOST_DIMENSIONS, _MOST_VALUES = 32, 1 << 58
_KEYS = 64
"""Bytes that the keys may have for each byte of the file: what they share with the key before is not repeated."""
_EDGE_ESCAPE = re.compile(r"\.[.S]")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
STATE = "checkpoint"
_LONGEST_STATE = 1 << 20

Fields = Mapping[int, list[int | bytes]]
"""The values of a message by field number, each in its order."""


@dataclass(frozen=True)
class Piece:
    """A slice of a tensor, or all of it, in a data file.

    Attributes:
        start: in each dimension, where it begins in the whole.
        offset: in bytes.
        size: in bytes.
        checksum: masked CRC32C of these bytes.
    """

    shape: tuple[int, ...]
    start: tuple[int, ...]
    path: Path
    offset: int
    size: int
    checksum: int


@dataclass(frozen=True)
class Entry:
    """A tensor.

    Attributes:
        kind: number of its type in TensorFlow's types.proto.
        pieces: in the order of where they begin; one, if the tensor is stored whole.
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
    table, shards = read_encoded(index)
    try:
        ordered = sorted(table)
        found: dict[str, Entry] = {}
        for key, value in table.items():
            if key.startswith(b"\x00"):
                continue  # a slice of a tensor, found below by its tensor's name
            fields = wire_fields(value)
            shape = shape_of(fields)
            pieces = [_piece(index, fields, (0,) * len(shape), shards)]
            if 7 in fields:
                starts = sorted(map(extents_of, fields[7]))
                slices = _beginning_with(slice_prefix(key), ordered)
                pieces = [
                    _piece(index, wire_fields(table[each]), tuple(first for first, _ in start), shards)
                    for each, start in zip(slices, starts, strict=True)
                ]
            _check_within(shape, pieces)
            found[key.decode("utf-8")] = Entry(shape, wire_number(fields, 1), tuple(pieces))
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
    if fault := files.fault_of(index):
        raise DataError(f"{index}: {fault}")
    try:
        return _whole(index)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise _no_index(index, error) from None


def index_of(prefix: Path) -> Path:
    """The index of the checkpoint with a prefix."""
    return prefix.with_name(f"{prefix.name}.index")


def prefix_of(index: Path) -> Path:
    """The prefix of the checkpoint with an index."""
    return index.with_name(index.name.removesuffix(".index"))


def data_file(index: Path, shard: int, shards: int) -> Path:
    """One of the data files that belong to an index."""
    return index.with_name(f"{prefix_of(index).name}.data-{shard:05d}-of-{shards:05d}")


def data_files(entries: Iterable[Entry]) -> list[Path]:
    """All data files with values of these tensors."""
    return sorted({piece.path for entry in entries for piece in entry.pieces})


def masked(crc: int) -> int:
    """A CRC32C as TensorFlow stores it: tensorflow/core/lib/hash/crc32c.h."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _no_index(index: Path, error: Exception) -> DataError:
    return DataError(f"{index}: found no whole index of a TensorFlow checkpoint: {error}")


def _whole(index: Path) -> tuple[dict[bytes, bytes], int]:
    table = dict(entries_of_table(index.read_bytes()))
    header = wire_fields(table.pop(b""))
    if wire_number(header, 2) != 0:
        raise ValueError("its numbers are big-endian")
    return table, wire_number(header, 1, 1)


def entries_of_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a sorted table of the LevelDB family, in the order of their keys.

    Args:
        data: all bytes of the file.

    Raises:
        ValueError: it is no such table, or it is damaged.
        IndexError: it is cut short.
    """
    footer = data[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or int.from_bytes(footer[40:], "little") != MAGIC:
        raise ValueError("it does not end like a checkpoint index")
    _, at = varint(footer, 0)
    _, at = varint(footer, at)
    offset, at = varint(footer, at)
    size, at = varint(footer, at)
    end = keys = 0
    for _, handle in _block(data, offset, size):
        start, at = varint(handle, 0)
        length, _ = varint(handle, at)
        if start < end:
            raise ValueError("its blocks overlap")
        end = start + length
        for key, value in _block(data, start, length):
            keys += len(key)
            if keys > _KEYS * (len(data) + 4096):
                raise ValueError("its keys are too long for a file of its size")
            yield key, value


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    if offset + size + TRAILER_BYTES > len(data):
        raise ValueError("a block lies beyond its end")
    if data[offset + size]:
        raise ValueError("its blocks are compressed")
    found = masked(google_crc32c.value(data[offset : offset + size + 1]))
    if found != int.from_bytes(data[offset + size + 1 : offset + size + TRAILER_BYTES], "little"):
        raise ValueError("the checksum of a block is wrong")
    block = data[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = size - 4 - 4 * restarts, 0, b""
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise ValueError("an entry is incomplete")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def _piece(index: Path, fields: Fields, start: tuple[int, ...], shards: int) -> Piece:
    return Piece(
        shape=shape_of(fields),
        start=start,
        path=data_file(index, wire_number(fields, 3), shards),
        offset=wire_number(fields, 4),
        size=wire_number(fields, 5),
        checksum=wire_number(fields, 6),
    )


def shape_of(fields: Fields) -> tuple[int, ...]:
    """The shape in the entry of a tensor.

    Raises:
        ValueError: it has more dimensions or values than NumPy takes.
    """
    dimensions = [each for message in fields.get(2, []) for each in wire_fields(message).get(2, [])]
    shape = tuple(wire_number(wire_fields(dimension), 1) for dimension in dimensions)
    # NumPy takes no more, whatever is 0.
    if len(shape) > _MOST_DIMENSIONS or math.prod(max(1, size) for size in shape) > _MOST_VALUES:
        raise ValueError(f"a tensor has the shape {list(shape[:8])}")
    return shape


def _check_within(shape: tuple[int, ...], pieces: list[Piece]) -> None:
    """Raises ValueError unless pieces are parts of a tensor of this shape; that they are all of it is checked later."""
    for piece in pieces:
        if len(piece.start) != len(shape) or len(piece.shape) != len(shape):
            raise ValueError(f"a tensor of {len(shape)} dimensions has pieces with a different number of dimensions")
        if any(at + size > whole for at, size, whole in zip(piece.start, piece.shape, shape, strict=True)):
            raise ValueError(f"a tensor of shape {list(shape)} has a piece outside that shape")


def extents_of(message: int | bytes) -> tuple[tuple[int, int], ...]:
    """Start and length of a slice in each dimension; the length is -1 where it is that of the whole.

    The keys of slices sort in the order of these numbers.
    """
    extents = [wire_fields(each) for each in wire_fields(message).get(1, [])]
    return tuple((wire_number(extent, 1), wire_number(extent, 2, -1)) for extent in extents)


def _beginning_with(prefix: bytes, ordered: list[bytes]) -> list[bytes]:
    first = bisect.bisect_left(ordered, prefix)
    last = first
    while last < len(ordered) and ordered[last].startswith(prefix):
        last += 1
    return ordered[first:last]


def slice_prefix(key: bytes) -> bytes:
    """How the keys of a tensor's slices begin: 0 and its key, in TensorFlow's order-preserving code.

    What follows are the rank, then start and length for each dimension, so that the keys sort by the first row.
    """
    escapes = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}
    name = b"".join(escapes.get(byte, bytes([byte])) for byte in key)
    return b"\x00" + name + b"\x00\x01"


def slice_key(key: bytes, extents: Sequence[tuple[int, int]]) -> bytes:
    """The key of a slice of a tensor, given its start and length in each dimension."""
    numbers = [number for extent in extents for number in extent]
    rank = len(extents).to_bytes((len(extents).bit_length() + 7) // 8, "big")
    return slice_prefix(key) + bytes([len(rank)]) + rank + b"".join(map(_ordered, numbers))


def _ordered(number: int) -> bytes:
    """A signed number in TensorFlow's order-preserving code: tensorflow/core/lib/strings/ordered_code.cc."""
    length = (number if number >= 0 else ~number).bit_length() // 7 + 1
    # As many leading ones as there are bytes, then the number; of a negative one, all is inverted.
    header = ((1 << length) - 1) << (10 * 8 - length) >> (10 - length) * 8
    return ((number ^ header) & ((1 << 8 * length) - 1)).to_bytes(length, "big")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number, and where it ends.

    Raises:
        IndexError: it does not end.
        ValueError: it is longer than numbers are.
    """
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number in it has more than 64 bits")


def wire_fields(message: int | bytes) -> Fields:
    """The fields of a message.

    Raises:
        ValueError: it is no message.
        IndexError: it is cut short.
    """
    if not isinstance(message, bytes):
        raise ValueError("a protocol buffer in it does not have the expected form")
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        value: int | bytes
        match tag & 7:
            case 0:
                value, at = varint(message, at)
            case 2:
                length, at = varint(message, at)
                value, at = message[at : at + length], at + length
            case 1 | 5 as wire:
                width = 8 if wire == 1 else 4
                value, at = int.from_bytes(message[at : at + width], "little"), at + width
            case wire:
                raise ValueError(f"a protocol buffer in it has wire type {wire}")
        found.setdefault(tag >> 3, []).append(value)
    if at > len(message):
        raise IndexError("a protocol buffer in it is cut short")
    return found


def wire_number(message: Fields, field: int, default: int = 0) -> int:
    """A field that is a number.

    Raises:
        ValueError: it is something else.
    """
    (value, *_) = message.get(field, [default])
    if not isinstance(value, int):
        raise ValueError("a protocol buffer in it does not have the expected form")
    return value


def escaped(edge: str) -> str:
    """A component of an object path, from the name of an edge."""
    return edge.replace(".", "..").replace("/", ".S")


def unescaped(component: str) -> str:
    """The name of an edge, from a component of an object path; of a whole path, the names with `/` between them."""
    return _EDGE_ESCAPE.sub(lambda found: "." if found[0] == ".." else "/", component)


def find(path: Path) -> Path | None:
    """The `.index` file of a checkpoint named by its prefix, its index or its folder; None: it is no checkpoint.

    Raises:
        DataError: a folder with several checkpoints, of which none is marked as the latest.
    """
    if path.name.endswith(".index"):
        return path
    beside = path.parent / f"{path.name}.index"
    if beside.is_file():
        return beside
    found = indexes_in(path)
    if len(found) < 2:
        return next(iter(found), None)
    if (marked := marked_latest(path)) is not None:
        return marked
    listed = ", ".join(each.name.removesuffix(".index") for each in found)
    raise DataError(f"{path}: found {len(found)} checkpoints, expected the one to read: {listed}")


def indexes_in(folder: Path) -> list[Path]:
    """The indexes in a folder, by name; none where it is no folder."""
    return sorted(path for path in folder.glob("*.index") if path.is_file()) if folder.is_dir() else []


def marked_latest(folder: Path) -> Path | None:
    """The index of the checkpoint that TensorFlow's file `checkpoint` names as the latest; None: there is no such file.

    Of the path in the file only the last part counts, so that a folder can be moved.
    """
    for word, name in _marked(folder):
        if word == b"model_checkpoint_path":
            return folder / f"{Path(name).name}.index"
    return None


def marked(folder: Path) -> list[Path]:
    """The prefixes of all checkpoints that TensorFlow's file `checkpoint` names and that are there, oldest first.

    Of an absolute path only the last part counts, so that a folder can be moved.
    """
    names = [Path(name) for word, name in _marked(folder) if word == b"all_model_checkpoint_paths"]
    prefixes = [folder / (each.name if each.is_absolute() else each) for each in names]
    return [prefix for prefix in prefixes if index_of(prefix).is_file()]


def mark_latest(folder: Path, prefixes: Sequence[Path]) -> None:
    """Writes TensorFlow's file `checkpoint`, in which `tf.train.latest_checkpoint` finds the last of some checkpoints.

    Args:
        prefixes: of all checkpoints that are kept, the oldest first, in the folder or below it.
    """
    paths = [_escaped(os.fsencode(prefix.relative_to(folder))) for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{paths[-1]}"', *(f'all_model_checkpoint_paths: "{path}"' for path in paths)]
    files.write_text(folder / STATE, "".join(f"{line}\n" for line in lines))


def unmark(folder: Path) -> None:
    """Removes TensorFlow's file `checkpoint`, where no checkpoint is left."""
    (folder / STATE).unlink(missing_ok=True)


def _marked(folder: Path) -> Iterator[tuple[bytes, str]]:
    """The fields of TensorFlow's file `checkpoint` and their values; none if there is no such file."""
    state = folder / STATE
    if not state.is_file():
        return
    with files.opened(state) as file:
        content = file.read(_LONGEST_STATE)  # the latest is named at its beginning
    for line in content.splitlines():
        word, _, value = line.partition(b":")
        yield word.strip(), os.fsdecode(_ESCAPE.sub(_unescaped, value.strip().strip(b'"')))


def _escaped(value: bytes) -> str:
    """A string in the text form of a protocol buffer."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\"'\\" else f"\\{byte:03o}" for byte in value)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    """The character that an escape in the text form of a protocol buffer stands for."""
    return bytes([int(escape[1], 8) & 0xFF]) if escape[1][:1] in b"01234567" else escape[1]
