"""Checkpoints of TensorFlow's first format (V1), read as those of the second one, which all of embexp reads.

`tf.compat.v1.train.Saver(write_version=V1)` writes one file, without `.index` and `.data` beside it, or one per shard.
Such a file is a sorted table as an index is, see `index`. Its entry "" describes all tensors; each other entry has the
values of a tensor, or of a slice of one, as a protocol buffer. They are converted once, into the cache.
Sources: tensorflow/core/util/saved_tensor_slice.proto, tensorflow/core/util/tensor_slice_writer.h,
tensorflow/core/framework/tensor.proto
"""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from embexp.errors import DataError
from embexp.system import caching, digests, files
from embexp.tensor_bundle import index, tensor
from embexp.tensor_bundle.index import MAGIC, entries_of_table
from embexp.tensor_bundle.writer import BundleWriter, Slice, rewrite

_SHARD = re.compile(r"-(?:\d{5}|\?{5})-of-(\d{5})$")
_KIND = "first-format"
_FIXED = {1: 5, 2: 6, 8: 9, 18: 12}
"""Fields of TensorProto by the number of the type: those with numbers of a fixed width."""
_VARINTS = dict.fromkeys((3, 4, 5, 6, 11, 12, 13, 15, 16, 17), 7) | {9: 10, 10: 11, 14: 13, 19: 13, 22: 16, 23: 17}
"""Those with variable-length numbers."""
_STRINGS = 8
_LONGEST = 10


def is_first_format(path: Path) -> bool:
    """Whether this is a checkpoint of the first format: its file, one of its shards, or the pattern of these."""
    files = _files(path)
    return bool(files) and all(map(_ends_as_table, files))


def index_of(path: Path, *, cache: Path | None = None) -> Path:
    """The index of a checkpoint of the second format with the same tensors, made in the cache if it is not there.

    Args:
        path: see `is_first_format`.
        cache: folder of what was converted before; None: the user's.

    Raises:
        DataError: the file is damaged, or a shard is missing.
        OSError: the cache can't be written to.
    """
    files = _files(path)
    if (found := _SHARD.search(path.name)) and len(files) != int(found[1]):
        raise DataError(f"{path}: found {len(files)} of {int(found[1])} files of a checkpoint of the first format (V1)")
    cache = cache or caching.cache_folder(None)
    name = _SHARD.sub("", path.name)
    key = digests.of_json([name, *(caching.file_digest(file, cache=cache) for file in files)])
    return caching.folder(cache, _KIND, key, lambda folder: _convert(path, files, folder / name)) / f"{name}.index"


def _files(path: Path) -> list[Path]:
    """The files of a checkpoint of the first format, in the order of the shards; none if there is none."""
    if (found := _SHARD.search(path.name)) is not None:
        start = path.name.removesuffix(found[0])
        shards = (path.with_name(f"{start}-{shard:05d}-of-{found[1]}") for shard in range(int(found[1])))
        return [each for each in shards if each.is_file()]
    return [path] if path.is_file() and path.suffix != ".index" else []


def _ends_as_table(path: Path) -> bool:
    with files.opened(path) as file:
        file.seek(-min(8, path.stat().st_size), os.SEEK_END)
        return file.read() == MAGIC.to_bytes(8, "little")


_Tensor = tuple[tuple[int, ...], int]
"""Shape and type of a tensor, as the entry "" has them."""


def _convert(path: Path, files: Sequence[Path], prefix: Path) -> None:
    """Writes the checkpoint at `prefix`, a slice at a time in memory."""
    tensors: dict[str, _Tensor] = {}
    slices: dict[str, list[Slice]] = {}
    writer = BundleWriter(prefix)
    try:
        for file in files:
            for name, tensor, extents, content in _slices(file):
                if tensors.setdefault(name, tensor) != tensor:
                    raise DataError(f"{path}: found {name} with two shapes or types in its files")
                parts = slices.setdefault(name, [])
                start, shape = tuple(first for first, _ in extents), tuple(length for _, length in extents)
                parts.append(Slice(f"{name}\0{len(parts)}", start, shape, tensor[0]))
                _write(writer, file, parts[-1], tensor[1], content)
        writer.finish()
    finally:
        writer.close()
    whole = {name: parts[0].key for name, parts in slices.items() if len(parts) == 1 and parts[0].is_whole}
    sliced = {name: sorted(parts, key=lambda part: part.start) for name, parts in slices.items() if name not in whole}
    rewrite(index.index_of(prefix), whole, sliced)


def _slices(file: Path) -> Iterator[tuple[str, _Tensor, list[tuple[int, int]], index.Fields]]:
    """All tensors of a file, or slices of them: the name, the whole, the extents of the slice, and its values."""
    if fault := files.fault_of(file):
        raise DataError(f"{file}: {fault}")
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            entries = entries_of_table(data)
            key, value = next(entries)
            described = _described(value) if key == b"" else {}
            for _, value in entries:
                (saved,) = index.wire_fields(value)[2]
                found = index.wire_fields(saved)
                name = index.wire_text(found, 1)
                tensor = described[name]
                extents = _extents(found.get(2, [b""])[0], tensor[0])
                yield name, tensor, extents, index.wire_fields(found.get(3, [b""])[0])
    except (ValueError, IndexError, KeyError, TypeError, StopIteration) as error:
        raise _damaged(file, error) from None


def _described(value: bytes) -> dict[str, _Tensor]:
    (meta,) = index.wire_fields(value)[1]
    found = {}
    for each in index.wire_fields(meta).get(1, []):
        fields = index.wire_fields(each)
        found[index.wire_text(fields, 1)] = index.shape_of(fields), index.wire_number(fields, 3)
    return found


def _extents(message: int | bytes, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Start and length of a slice in each dimension; without a length it is that of the whole."""
    extents = [index.wire_fields(each) for each in index.wire_fields(message).get(1, [])]
    found = [
        (index.wire_number(each, 1), index.wire_number(each, 2) if 2 in each else whole)
        for each, whole in zip(extents, shape, strict=True)
    ]
    if any(start + length > whole for (start, length), whole in zip(found, shape, strict=True)):
        raise ValueError(f"a tensor of shape {list(shape)} has a slice outside of it")
    return found


def _write(writer: BundleWriter, file: Path, part: Slice, kind: int, content: index.Fields) -> None:
    name, count = part.key.partition("\0")[0], math.prod(part.shape)
    try:
        if kind == tensor.STRING:
            strings = content.get(_STRINGS, [])
            if len(strings) != count or not all(isinstance(each, bytes) for each in strings):
                raise ValueError(f"it has {len(strings)} strings for a slice of {list(part.shape)}")
            writer.add_strings(part.key, part.shape, [each for each in strings if isinstance(each, bytes)])
            return
        dtype = tensor.number_type(kind)
        if dtype is None or kind not in {*_FIXED, *_VARINTS}:
            raise ValueError(f"its type is {tensor.type_name(kind)}")
        data = _fixed(content, _FIXED[kind]) if kind in _FIXED else _varints(content, _VARINTS[kind], dtype)
        if len(data) != count * dtype.itemsize:
            raise ValueError(f"it has {len(data):,} bytes for a slice of {list(part.shape)} {dtype}")
        writer.add_bytes(part.key, kind, part.shape, data)
    except (ValueError, IndexError) as error:
        raise _damaged(file, ValueError(f"{name}: {error}")) from None


def _fixed(content: index.Fields, field: int) -> bytes:
    """Packed numbers, which are in the file as in memory."""
    found = content.get(field, [])
    if not all(isinstance(each, bytes) for each in found):
        raise ValueError("its numbers are not packed")
    return b"".join(each for each in found if isinstance(each, bytes))


def _varints(content: index.Fields, field: int, dtype: np.dtype) -> bytes:
    """Packed numbers of variable length, seven bits to a byte, as bytes of a type."""
    data = np.frombuffer(_fixed(content, field), np.uint8)
    ends = np.flatnonzero(data < 0x80)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise ValueError("its last number does not end")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lengths = ends - starts + 1
    if len(lengths) and lengths.max() > _LONGEST:
        raise ValueError("a number in it has more than 64 bits")
    values = np.zeros(len(ends), np.uint64)
    for byte in range(int(lengths.max()) if len(lengths) else 0):
        some = lengths > byte
        values[some] |= (data[starts[some] + byte] & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
    if dtype == np.bool_:
        return bytes((values != 0).tobytes())
    # Negative numbers have 64 bits; of the type's bits the lowest are right.
    return bytes(values.astype(f"<u{dtype.itemsize}").tobytes())


def _damaged(file: Path, error: Exception) -> DataError:
    return DataError(f"{file}: found no whole checkpoint of TensorFlow's first format (V1): {error}")
