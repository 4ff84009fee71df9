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
from google.protobuf.message import DecodeError

from embexp.errors import DataError
from embexp.system import caching, digests, files
from embexp.system.tensor_bundle import index, tensor
from embexp.system.tensor_bundle.index import MAGIC, entries_of_table
from embexp.system.tensor_bundle.writer import BundleWriter, Slice, rewrite

_SHARD = re.compile(r"-(?:\d{5}|\?{5})-of-(\d{5})$")
_KIND = "first-format"
_INTEGERS = dict.fromkeys((3, 4, 5, 6, 11, 12, 13, 15, 16, 17), "int_val") | dict.fromkeys((14, 19), "half_val")
"""Fields of a TensorProto, by the number of the type: of numbers whose bits are the lowest of integers, int32."""
_NUMBERS = {1: "float_val", 2: "double_val", 8: "scomplex_val", 9: "int64_val", 10: "bool_val", 18: "dcomplex_val"}
_NUMBERS |= {22: "uint32_val", 23: "uint64_val"}
"""Of numbers that are there as they are in memory, complex ones as two."""


def is_first_format(path: Path) -> bool:
    """Whether this is a checkpoint of the first format: its file, one of its shards, or the pattern of these."""
    files = _files(path)
    return bool(files) and all(map(_ends_as_table, files))


def index_of(path: Path, *, cache: Path | None = None) -> Path:
    """The index of a checkpoint of the second format with the same tensors, made in the cache if it is not there.

    Args:
        path: see `is_first_format`; or an index, which is returned.
        cache: folder of what was converted before; None: the user's.

    Raises:
        DataError: the file is damaged, or a shard is missing.
        OSError: the cache can't be written to.
    """
    if path.suffix == ".index":
        return path
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
        return [shard for shard in shards if shard.is_file()]
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


def _slices(file: Path) -> Iterator[tuple[str, _Tensor, list[tuple[int, int]], int | bytes]]:
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
                yield name, tensor, extents, found.get(3, [b""])[0]
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
    found = [
        (start, whole if length < 0 else length)
        for (start, length), whole in zip(index.extents_of(message), shape, strict=True)
    ]
    if any(start + length > whole for (start, length), whole in zip(found, shape, strict=True)):
        raise ValueError(f"a tensor of shape {list(shape)} has a slice outside of it")
    return found


def _write(writer: BundleWriter, file: Path, part: Slice, kind: int, content: int | bytes) -> None:
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    name, count = part.key.partition("\0")[0], math.prod(part.shape)
    try:
        values = TensorProto.FromString(content)
        dtype = tensor.number_type(kind)
        if kind == tensor.STRING:
            if len(values.string_val) != count:
                raise ValueError(f"it has {len(values.string_val)} strings for a slice of {list(part.shape)}")
            writer.add_strings(part.key, part.shape, list(values.string_val))
            return
        if dtype is None or kind not in {*_NUMBERS, *_INTEGERS}:
            raise ValueError(f"its type is {tensor.type_name(kind)}")
        if kind in _INTEGERS:
            data = np.fromiter(getattr(values, _INTEGERS[kind]), np.int32).astype(f"<u{dtype.itemsize}")
        else:
            component = np.empty(0, dtype).real.dtype
            data = np.fromiter(getattr(values, _NUMBERS[kind]), component)
        if data.nbytes != count * dtype.itemsize:
            raise ValueError(f"it has {data.nbytes:,} bytes for a slice of {list(part.shape)} {dtype}")
        writer.add_bytes(part.key, kind, part.shape, data.view(np.uint8))
    except (ValueError, IndexError, TypeError, DecodeError) as error:
        raise _damaged(file, ValueError(f"{name}: {error}")) from None


def _damaged(file: Path, error: Exception) -> DataError:
    return DataError(f"{file}: found no whole checkpoint of TensorFlow's first format (V1): {error}")
