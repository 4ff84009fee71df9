"""Writing a TensorFlow checkpoint piece by piece, without TensorFlow: no tensor is ever in memory whole.

`index` has the form and its sources. Every tensor begins at a multiple of 64 bytes, and is in one piece, so that it can
be mapped and used without a copy; but for those that several processes write, each its slices into a file of its own.

A checkpoint gets other keys without a copy, too: only its index has them. An object-based and a name-based one differ
in their keys, and in the string `OBJECT_GRAPH`, which only the first one has. A directory that has both kinds is
name-based, and has in its folder `objects` the index of an object-based checkpoint over the same data files.

Checkpoints that several processes write and read: each its own data file, and each its rows of a matrix.

Each process writes its slices with a `BundleWriter` for its file. One of them merges their entries into the index when
all files are on disk. To read, it sends the others the `description` of what they read their rows of.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import google_crc32c
import numpy as np

from embexp.errors import DataError
from embexp.system import arrays, files
from embexp.system.tensor_bundle.increments import ChangedMatrix, Values, parts_of
from embexp.system.tensor_bundle.index import (
    FOOTER_BYTES,
    MAGIC,
    TRAILER_BYTES,
    Entry,
    Piece,
    data_file,
    entries_of_table,
    index_of,
    masked,
    read_encoded,
    slice_key,
    slice_prefix,
    wire_fields,
    wire_number,
)
from embexp.system.tensor_bundle.stacked import Layout, Stack, StackedMatrix
from embexp.system.tensor_bundle.tensor import FLOAT32, STRING, Tensor, number_type, read_content

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

    def __init__(
        self, prefix: Path, *, adding: bool = False, appending: bool = False, shard: tuple[int, int] | None = None
    ) -> None:
        """Makes the data file.

        Args:
            prefix: of the checkpoint; its folder is there.
            adding: it is there too: tensors come beside its own, or in their place. Its data files are renamed at
                once, as their names say how many there are, so until `finish` it can't be read.
            appending: likewise, at the end of its last data file, which keeps its name. Nobody else may have the file.
            shard: number of the data file, and how many there are: other processes write the others, and one of them
                the index, see `finish_shard` and `merge`.

        Raises:
            FileExistsError: there is a checkpoint, and nothing is to be added to it.
            DataError: the index of the checkpoint is damaged.
        """
        self._index = index_of(prefix)
        self._entries, self._shard = read_encoded(self._index) if adding or appending else ({}, 0)
        if appending:
            self._shard -= 1
        shards = self._shard + 1
        if adding:
            renumber(self._index, self._shard, shards)
        if shard is not None:
            self._shard, shards = shard
        self._file: IO[bytes] = data_file(self._index, self._shard, shards).open("ab" if appending else "xb")

    def add(self, key: str, shape: tuple[int, int], blocks: Iterable[np.ndarray], kind: int = FLOAT32) -> None:
        """Writes a matrix of float32, or of 16 bits.

        Args:
            shape: rows and dim.
            blocks: its rows in float32, one block behind the other.
            kind: number of the type that is written, to which they are rounded.

        Raises:
            ValueError: the blocks are not that matrix.
        """
        offset, dtype = self._aligned(), number_type(kind)
        assert dtype is not None
        crc = size = 0
        with ThreadPoolExecutor(1) as thread:  # writes a block while the next one is made, which takes as long
            written: Future[int] | None = None
            for block in blocks:
                if block.dtype != np.float32 or block.ndim != 2 or block.shape[1] != shape[1]:
                    raise ValueError(f"{key}: found {block.dtype} {block.shape}, expected rows of {shape[1]} float32")
                data = np.ascontiguousarray(block, dtype).view(np.uint8).reshape(-1)
                crc = google_crc32c.extend(crc, data)
                size += data.nbytes
                if written is not None:
                    written.result()
                written = thread.submit(self._file.write, data.data)
                del block, data
            if written is not None:
                written.result()
        if size != dtype.itemsize * shape[0] * shape[1]:
            raise ValueError(f"{key}: found {size:,} bytes, expected a matrix of {shape[0]} × {shape[1]}")
        self._enter(key, kind, shape, offset, size, masked(crc))

    def add_slices(
        self,
        key: str,
        shape: tuple[int, int],
        slices: Iterable[tuple[int, int]],
        blocks: Iterable[np.ndarray],
        kind: int = FLOAT32,
    ) -> None:
        """Writes slices of a matrix, one behind the other.

        Args:
            shape: rows and dim of the whole.
            slices: the rows [start, stop) of each.
            blocks: their rows in this order, in float32, cut anywhere.
            kind: see `add`.

        Raises:
            ValueError: the blocks are not these slices.
        """
        offset, dtype, left = self._aligned(), number_type(kind), iter(blocks)
        assert dtype is not None
        data = np.empty(0, np.uint8)
        for start, stop in slices:
            size, crc = (stop - start) * shape[1] * dtype.itemsize, 0
            remaining = size
            while remaining:
                if not len(data):
                    block = next(left, None)
                    if block is None or block.dtype != np.float32 or block.shape[1:] != shape[1:] or not len(block):
                        raise ValueError(f"{key}: found no rows of {shape[1]} float32 for {start} to {stop}")
                    data = np.ascontiguousarray(block, dtype).view(np.uint8).reshape(-1)
                    self._file.write(data.data)
                part, data = data[:remaining], data[remaining:]
                crc, remaining = google_crc32c.extend(crc, part), remaining - len(part)
            name = slice_key(key.encode(), ((start, stop - start), (0, shape[1])))
            self._enter(name, kind, (stop - start, shape[1]), offset, size, masked(crc))
            offset += size
        if len(data) or next(left, None) is not None:
            raise ValueError(f"{key}: found more rows than its slices have")

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
        lengths = b"".join(struct.pack("<I" if len(value) < 2**32 else "<Q", len(value)) for value in values)
        crc = google_crc32c.value(lengths)
        of_lengths = struct.pack("<I", masked(crc))
        content = b"".join(values)
        crc = google_crc32c.extend(google_crc32c.extend(crc, of_lengths), content)
        data = b"".join(_varint(len(value)) for value in values) + of_lengths + content
        self._file.write(data)
        self._enter(key, STRING, shape, offset, len(data), masked(crc))

    def copy(self, key: str, values: Values) -> None:
        """Copies a tensor of another checkpoint, of any type, as it is; of a matrix that is not in one place, all rows.

        Slices of whole rows are written as one piece.

        Raises:
            DataError: a checksum is wrong, or it has other slices.
        """
        entry = values.entry
        if not isinstance(values, Tensor):
            assert values.dtype is not None
            rows, dim = entry.shape
            step = max(1, _CHUNK_BYTES // (values.dtype.itemsize * dim))
            blocks = (np.asarray(block, np.float32) for block in values.blocks(step))
            self.add(key, (rows, dim), blocks, entry.kind)
            return
        (piece, *more) = entry.pieces
        if any(each.shape[1:] != entry.shape[1:] for each in more):
            raise DataError(f"{piece.path}: found {key} in {1 + len(more)} pieces, expected whole rows")
        offset, crc = self._aligned(), 0
        for each in entry.pieces:
            # Checksums of strings are taken over lengths and characters apart, not over the bytes.
            for data in read_content(key, each, _CHUNK_BYTES, checked=entry.kind != STRING):
                self._file.write(data)
                crc = google_crc32c.extend(crc, data) if more else 0
        checksum = masked(crc) if more else piece.checksum
        self._enter(key, entry.kind, entry.shape, offset, self._file.tell() - offset, checksum)

    def finish_shard(self) -> bytes:
        """Returns the entries of this file as the content of an index, when all of it is on disk (fsync)."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return index_content(self._entries, 1)

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

    def _enter(
        self, key: str | bytes, kind: int, shape: tuple[int, ...], offset: int, size: int, checksum: int
    ) -> None:
        self._entries[key.encode() if isinstance(key, str) else key] = (
            _number(1, kind)
            + _shape(shape)
            + _number(3, self._shard)
            + _number(4, offset)
            + _number(5, size)
            + b"\x35"
            + struct.pack("<I", checksum)
        )


def renumber(index: Path, shards: int, now: int) -> None:
    """Renames the data files of a checkpoint, whose names say how many there are."""
    for shard in range(shards):
        file = data_file(index, shard, shards)
        if file.exists():  # one without a tensor may have been left out
            file.rename(data_file(index, shard, now))


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


OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the object graph; a name-based checkpoint has none."""
KEY_END = "/.ATTRIBUTES/VARIABLE_VALUE"
"""The end of the key of every variable in an object-based checkpoint."""
_OBJECTS = "objects"
_INDEX = "checkpoint.index"

Link = Callable[[Path, Path], object]
"""`link(file, new)` makes the content of a data file available as `new`."""


@dataclass(frozen=True)
class Slice:
    """A tensor that becomes a slice of a larger one.

    Attributes:
        start: in each dimension, where it begins in the whole.
        whole: shape of the whole.
    """

    key: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    whole: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the larger one."""
        return self.shape == self.whole


def hard_linked(file: Path, new: Path) -> None:
    """A hard link, or a copy where the file system has none."""
    whole = file.resolve()  # not a link to a symbolic link
    try:
        new.hardlink_to(whole)
    except OSError:
        shutil.copy2(whole, new)


def symbolic(file: Path, new: Path) -> None:
    """A symbolic link, for what does not last longer than the file."""
    new.symlink_to(file.absolute())


def rekey(
    index: Path,
    prefix: Path,
    keys: Mapping[str, str],
    strings: Mapping[str, bytes],
    link: Link,
    copied: Mapping[str, Values] | None = None,
) -> None:
    """Writes a checkpoint with tensors of another one.

    Args:
        index: of the other one.
        prefix: of the new one, whose folder exists.
        keys: of the tensors in the other one, by their new keys.
        link: how its data files get their new names.
        copied: what is written anew, by key.

    Raises:
        DataError: the index is damaged, or a data file is missing.
        FileExistsError: there is such a checkpoint already.
    """
    entries, shards = read_encoded(index)
    target = index_of(prefix)
    if target.exists():
        raise FileExistsError(target)
    for shard in range(shards):
        file = data_file(index, shard, shards)
        if file.exists():  # one without a tensor may have been left out
            link(file, data_file(target, shard, shards))
    target.write_bytes(index_content(_renamed(index, entries, keys), shards))
    if strings or copied:
        write(prefix, copied or {}, strings, adding=True)


def write(prefix: Path, values: Mapping[str, Values], strings: Mapping[str, bytes], *, adding: bool = False) -> None:
    """Writes a checkpoint with copies of tensors, and strings, by key.

    Args:
        adding: to those of the checkpoint that is there.

    Raises:
        DataError: a tensor can't be copied, see `BundleWriter.copy`.
    """
    with contextlib.closing(BundleWriter(prefix, adding=adding)) as writer:
        for key, each in values.items():
            writer.copy(key, each)
        for key, value in strings.items():
            writer.add_strings(key, (), [value])
        writer.finish()


def rewrite(index: Path, keys: Mapping[str, str], slices: Mapping[str, Sequence[Slice]] | None = None) -> None:
    """Gives the tensors of a checkpoint other keys, in place; those without one are left out.

    Args:
        keys: the keys so far, by the new ones.
        slices: tensors that become slices of one, by the key of that.

    Raises:
        DataError: the index is damaged, or lacks one of the keys.
    """
    entries, shards = read_encoded(index)
    found = _renamed(index, entries, keys)
    for key, parts in (slices or {}).items():
        extents = [tuple(zip(part.start, part.shape, strict=True)) for part in parts]
        olds = _renamed(index, entries, {part.key: part.key for part in parts})
        kind = wire_number(wire_fields(olds[parts[0].key.encode()]), 1)
        found[key.encode()] = sliced_entry(kind, parts[0].whole, extents)
        for part, extent in zip(parts, extents, strict=True):
            found[slice_key(key.encode(), extent)] = olds[part.key.encode()]
    content = index_content(found, shards)
    with files.atomic_write(index) as written:
        written.write(content)


def to_names(directory: Path, names: Mapping[str, str]) -> None:
    """Makes the object-based checkpoint in a directory a name-based one, in place.

    Its data files are those of both kinds. The index of the object-based one goes into the folder `objects`; a
    directory can be moved, as the links in there are relative.

    Args:
        directory: holds `checkpoint.index`. Nobody else reads it yet.
        names: the new key of each tensor, by its key without the end that all keys of variables have.

    Raises:
        DataError: the index is damaged, or holds keys that have no name.
    """
    index, objects = directory / _INDEX, directory / _OBJECTS
    entries, shards = read_encoded(index)
    whole = {key.decode() for key in entries if not key.startswith(b"\x00")} - {OBJECT_GRAPH}
    if lacking := sorted(whole - {_full(key) for key in names}):
        raise DataError(f"{index}: found keys without a name: {', '.join(lacking)}")
    keys = {name: _full(key) for key, name in names.items() if _full(key) in whole}
    objects.mkdir()
    for shard in range(shards):
        file = data_file(index, shard, shards)
        if file.exists():
            (objects / file.name).symlink_to(Path(os.pardir) / file.name)
    shutil.copyfile(index, objects / _INDEX)
    rewrite(index, keys)


def object_index(directory: Path) -> Path:
    """The index of the object-based checkpoint in a directory, which may have a name-based one too.

    That in the folder `objects` counts only while it is about the same data files: whoever writes a name-based
    checkpoint over ours need not know of it.
    """
    index, beside = directory / _INDEX, directory / _OBJECTS / _INDEX
    if not index.is_file() or not beside.is_file():
        return index
    (entries, shards), (others, others_shards) = read_encoded(index), read_encoded(beside)
    values = {value for key, value in others.items() if key != OBJECT_GRAPH.encode()}
    return beside if shards == others_shards and values == set(entries.values()) else index


def _full(key: str) -> str:
    return key if "/.ATTRIBUTES/" in key else key + KEY_END


def _renamed(index: Path, entries: Mapping[bytes, bytes], keys: Mapping[str, str]) -> dict[bytes, bytes]:
    if lacking := sorted(old for old in keys.values() if old.encode() not in entries):
        raise DataError(f"{index}: found no {', '.join(lacking)}")
    found: dict[bytes, bytes] = {}
    slices = {key: value for key, value in entries.items() if key.startswith(b"\x00")}
    for new, old in keys.items():
        found[new.encode()] = entries[old.encode()]
        start = slice_prefix(old.encode()) if slices else b""
        for key in [each for each in slices if each.startswith(start)]:
            found[slice_prefix(new.encode()) + key.removeprefix(start)] = slices[key]
    return found


Matrix = tuple[int, tuple[int, int], Sequence[tuple[int, int]]]
"""Of a matrix in slices: the number of its type, its shape, and the rows [start, stop) of each slice, rising."""


def merge(index: Path, others: Sequence[bytes], matrices: Mapping[str, Matrix]) -> None:
    """Adds to a checkpoint the data files behind its own, which other processes have written; its own are renamed.

    Args:
        index: of the checkpoint.
        others: what `finish_shard` has returned, in the order of the files.
        matrices: those that they have slices of.

    Raises:
        DataError: the index is damaged.
        ValueError: slices are missing.
    """
    entries, shards = read_encoded(index)
    for content in others:
        entries |= {key: value for key, value in entries_of_table(content) if key}
    for key, (kind, shape, slices) in matrices.items():
        extents = [((start, stop - start), (0, shape[1])) for start, stop in slices]
        if lacking := sum(slice_key(key.encode(), extent) not in entries for extent in extents):
            raise ValueError(f"{index}: {lacking} of {len(extents)} slices of {key} are missing")
        entries[key.encode()] = sliced_entry(kind, shape, extents)
    renumber(index, shards, shards + len(others))
    with files.atomic_write(index) as written:
        written.write(index_content(entries, shards + len(others)))


def description(values: Values) -> dict[str, Any]:
    """What another process needs to read a tensor, as JSON: see `described`. Paths are absolute."""
    if isinstance(values, ChangedMatrix):
        changes = [[_described(each) for each in change] for change in values.changes]
        return {"whole": _described(values.whole), "changes": changes, "rows": values.rows}
    if isinstance(values, StackedMatrix):
        return {"key": values.key, "stack": _described(values.stack.tensor), "layout": asdict(values.layout)}
    return {"tensor": _described(values)}


def described(description: Mapping[str, Any]) -> Values:
    """The tensor of a description."""
    match description:
        case {"whole": whole, "changes": changes, "rows": rows}:
            pairs = [(_tensor(numbers), _tensor(some)) for numbers, some in changes]
            return ChangedMatrix(_tensor(whole), pairs, rows)
        case {"key": key, "stack": stack, "layout": layout}:
            return StackedMatrix(key, Stack(_tensor(stack)), Layout(**{**layout, "shape": tuple(layout["shape"])}))
    return _tensor(description["tensor"])


def verify_share(values: Values, number: int, count: int) -> None:
    """Compares the checksums of every `count`-th piece of a tensor of numbers, from the one of this number on.

    Raises:
        DataError: one is wrong, or a data file is missing or cut short.
    """
    for at, (tensor, piece) in enumerate(_pieces(values)):
        if at % count == number:
            tensor.verify_piece(piece)


def paths_of(values: Values) -> list[str]:
    """The data files that a tensor is in, absolute, as another machine knows them."""
    return sorted({str(piece.path.resolve()) for _, piece in _pieces(values)})


def _pieces(values: Values) -> Iterator[tuple[Tensor, Piece]]:
    for tensor in parts_of(values):
        for piece in tensor.entry.pieces:
            yield tensor, piece


def _described(tensor: Tensor) -> list[Any]:
    entry, paths = tensor.entry, paths_of(tensor)
    numbers = {Path(path): number for number, path in enumerate(paths)}
    pieces = [
        [each.shape, each.start, numbers[each.path.resolve()], each.offset, each.size, each.checksum]
        for each in entry.pieces
    ]
    return [tensor.name, tensor.key, entry.shape, entry.kind, paths, pieces]


def _tensor(described: Sequence[Any]) -> Tensor:
    name, key, shape, kind, paths, pieces = described
    found = [
        Piece(tuple(of), tuple(start), Path(paths[path]), offset, size, checksum)
        for of, start, path, offset, size, checksum in pieces
    ]
    return Tensor(name, key, Entry(tuple(shape), kind, tuple(found)))
