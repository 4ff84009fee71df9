"""Vectors in files of arrays: NumPy's `.npy` and `.npz`, safetensors and HDF5. Pickled objects are never read.

Vectors in safetensors files. The form: 8 bytes with the length of a JSON header, the header, then the bytes of all
tensors. It is read here rather than with the package of that name, which does not report the place of a tensor, so that
nothing could be mapped. Source: https://github.com/huggingface/safetensors#format

Vectors in TensorFlow checkpoints, name-based or object-based, read without TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from embexp.errors import DataError, plural, read_by_library
from embexp.system import arrays, caching, digests, files, hdf5
from embexp.system.hdf5 import Dataset, File
from embexp.system.parallel import Progress
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.increments import ChangedMatrix, Values
from embexp.system.tensor_bundle.index import data_files, prefix_of
from embexp.system.tensor_bundle.tensor import Tensor, number_type, type_name
from embexp.system.tensor_bundle.writer import KEY_END
from embexp.vectors import stored
from embexp.vectors.stored import (
    BFLOAT16,
    FLOATS,
    ROW_TYPES,
    Place,
    Stored,
    Wanted,
    as_float32,
    checked_shape,
    only_key,
)

_CHUNK_BYTES = 1 << 20
_PICKLED = "found pickled Python objects, which are never read, expected numbers"
_LONGEST_HEADER = 1 << 23  # of some 80,000 tensors; as Python's objects it may take twenty times as much
_TYPES = {"F16": np.dtype("<f2"), "BF16": BFLOAT16, "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_INT8 = "I8"
_VOID16 = np.dtype("V2")
"""What NumPy writes for bfloat16, a type of another package."""
_TOKENS, _FEW_TOKENS, _TOKEN_BYTES = 4096, 256, 1 << 24


def read_npy(path: Path, wanted: Wanted) -> Stored:
    """A `.npy` file, mapped.

    Raises:
        DataError: it is no such file, is cut short, or holds no matrix of floating-point numbers.
    """
    if wanted.key is not None:
        raise DataError(f"{path}: found a key, {wanted.key!r}, but a .npy file holds one array only")
    return _mapped_npy(path, str(path))


def _mapped_npy(path: Path, name: str) -> Stored:
    try:
        matrix, header = arrays.mapped(path)
    except arrays.PickledError:
        raise DataError(f"{name}: {_PICKLED}") from None
    except ValueError as error:
        raise DataError(f"{name}: this is not a .npy file: {error}") from None
    if (dtype := header.dtype) == _VOID16:
        dtype, matrix = BFLOAT16, matrix.view(BFLOAT16)
    rows, dim = checked_shape(name, header.shape, dtype)
    mappable = dtype in ROW_TYPES.values() and matrix.flags.c_contiguous
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=lambda start, stop: matrix[start:stop],
        files=[path],
        place=Place(path, header.offset) if mappable else None,
    )


def read_npz(path: Path, wanted: Wanted) -> Stored:
    """One array of a `.npz` file, unpacked in the cache.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    key = _npz_key(path, wanted.key)
    digest = caching.file_digest(path, cache=wanted.cache, progress=wanted.progress)
    entry = digests.of_json([stored.VERSION, digest, "npz", key])
    folder = caching.folder(wanted.cache, "vectors", entry, lambda made: _extract(path, key, made, wanted.progress))
    return replace(_mapped_npy(folder / "array.npy", f"{path}: {key}"), files=[path])


def _npz_key(path: Path, key: str | None) -> str:
    """The name of the array to read."""
    shapes: dict[str, tuple[int, ...]] = {}
    with _archive(path, f"{path}: found no whole .npz file") as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                shapes[member.filename.removesuffix(".npy")] = _header(path, file).shape
    return only_key(path, shapes, key, "array")


def _extract(path: Path, key: str, folder: Path, progress: Progress) -> None:
    """Puts one array of a `.npz` file into a folder of the cache, as `.npy`.

    Raises:
        DataError: the archive is broken, holds more or less of the array than its header says, or has no room there.
    """
    name, member = f"{path}: {key}", f"{key}.npy"
    with _archive(path, f"{name}: found no whole array") as archive, archive.open(member) as file:
        header, size = _header(path, file), archive.getinfo(member).file_size
    checked_shape(name, header.shape, header.dtype)
    if size != header.size:  # before it is unpacked: a megabyte of a zip may become a gigabyte
        raise DataError(
            f"{name}: found {size:,} bytes in the archive, expected {header.size:,} according to its header"
        )
    if size > (free := shutil.disk_usage(folder).free):  # not when gigabytes are written
        raise DataError(
            f"{name}: found {size:,} bytes when unpacked, but the disk of the cache has only {free:,} left: "
            f"free some space in {folder.parent}, or set another output.cache"
        )
    done = 0
    with (folder / "array.npy").open("wb") as written:
        for chunk in _unpacked(path, member, f"{name}: found no whole array"):
            written.write(chunk)
            done += len(chunk)
            progress(f"unpacking {path.name}", done / size)
    _mapped_npy(folder / "array.npy", name)


def _header(path: Path, file: IO[bytes]) -> arrays.Header:
    try:
        return arrays.read_header(file)
    except arrays.PickledError:
        raise DataError(f"{path}: {_PICKLED}") from None


@contextlib.contextmanager
def _archive(path: Path, where: str) -> Iterator[zipfile.ZipFile]:
    with read_by_library(where), files.opened(path) as opened, zipfile.ZipFile(opened) as archive:
        yield archive


def _unpacked(path: Path, member: str, where: str) -> Iterator[bytes]:
    """The bytes of a file in a zip archive."""
    with _archive(path, where) as archive, archive.open(member) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def read_safetensors(path: Path, wanted: Wanted) -> Stored:
    """One tensor of the file, mapped. One of int8 has scales: the tensor `KEY_scale`, `KEY.scale` or `scale`.

    Raises:
        DataError: it is no such file, is cut short, or doesn't hold the one matrix.
    """
    header, data = _safetensors_header(path)
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for tensor, entry in tensors.items():
        if fault := _fault(tensor, entry):
            raise DataError(f"{path}: found a header that lacks dtype, shape or data_offsets: {fault} of {tensor!r}")
    scale_of = {key: _scale_of(key, tensors) for key, entry in tensors.items() if entry["dtype"] == _INT8}
    shapes = {key: entry["shape"] for key, entry in tensors.items() if key not in scale_of.values()}
    key = only_key(path, shapes, wanted.key, "tensor")
    name, scale = f"{path}: {key}", scale_of.get(key)
    kinds = _TYPES if scale is None else {_INT8: np.dtype("i1")}
    if (kind := tensors[key]["dtype"]) == _INT8 and scale is None:
        wanted_scale = f"expected a tensor {key}_scale, {key}.scale or scale with a scale for each row"
        raise DataError(f"{name}: found numbers of type {_INT8}, {wanted_scale}")
    rows, dim = checked_shape(name, shapes[key], _TYPES.get(kind, np.dtype("f4")))
    matrix = _safetensor(path, name, tensors[key], data, kinds)
    scales = None
    if scale is not None:
        scale_name = f"{path}: {scale}"
        if tensors[scale]["shape"] not in ([rows], [rows, 1]):
            raise DataError(
                f"{scale_name}: found the shape {tensors[scale]['shape']}, expected [{rows}] or [{rows}, 1]"
            )
        scales = partial(_scales, scale_name, _safetensor(path, scale_name, tensors[scale], data, _TYPES))
    begin = tensors[key]["data_offsets"][0]
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=matrix.dtype,
        read=lambda start, stop: matrix[start:stop],
        files=[path],
        place=Place(path, data + begin) if matrix.dtype in ROW_TYPES.values() else None,
        finite=scales is not None,
        scales=scales,
    )


def _scale_of(key: str, tensors: Iterable[str]) -> str | None:
    """The name of the tensor with the scales of one of int8; None: there is none."""
    return next((name for name in (f"{key}_scale", f"{key}.scale", "scale") if name in tensors and name != key), None)


def _safetensor(path: Path, name: str, entry: dict[str, Any], data: int, kinds: Mapping[str, np.dtype]) -> np.ndarray:
    """A tensor, mapped, of one of these types.

    Args:
        data: where the data of all tensors begins.
    """
    (begin, end), kind, shape = entry["data_offsets"], entry["dtype"], entry["shape"]
    if kind not in kinds:
        raise DataError(f"{name}: found numbers of type {kind}, expected one of {', '.join(kinds)}")
    expected = math.prod(shape) * kinds[kind].itemsize
    if end - begin != expected or begin < 0:
        raise DataError(f"{name}: found {end - begin:,} bytes, expected {expected:,} for the shape {shape}")
    size = path.stat().st_size
    if data + end > size:
        raise DataError(f"{name}: found {size:,} bytes, expected at least {data + end:,}: the file is cut short")
    return np.memmap(path, kinds[kind], "r", data + begin, tuple(shape))


def _scales(name: str, stored: np.ndarray) -> np.ndarray:
    """The scales of rows, float32 [rows], aligned.

    Raises:
        DataError: a number of a row would not be finite.
    """
    scales = arrays.empty((stored.size,), np.float32)
    scales[:] = as_float32(stored.reshape(-1))
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.flatnonzero(~np.isfinite(scales * np.float32(-128)))
    if rows.size:
        raise DataError(f"{name}, row {rows[0] + 1}: found the scale {scales[rows[0]]}, expected a finite number")
    return scales


def _safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the data begins."""
    with files.opened(path) as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        size = path.stat().st_size
        if len(start) < 8 or length > min(_LONGEST_HEADER, size - 8):
            raise DataError(f"{path}: found no safetensors file: its header would be {length:,} bytes of {size:,}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: found no safetensors file: its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise DataError(f"{path}: found no safetensors file: its header is no JSON object")
    return header, 8 + length


def _fault(name: str, entry: Any) -> str:
    """Which part of a tensor's entry is missing or of another form; "" for none."""
    if not isinstance(entry, dict) or not name.isprintable():
        return "the entry"
    if not isinstance(entry.get("dtype"), str):
        return "dtype"
    if not _are_sizes(entry.get("shape")):
        return "shape"
    offsets = entry.get("data_offsets")
    return "" if isinstance(offsets, list) and len(offsets) == 2 and _are_sizes(offsets) else "data_offsets"


def _are_sizes(value: Any) -> bool:
    """Whether a value of JSON, such as 1e999, is a list of sizes."""
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 1 << 63 for each in value)


def read_hdf5(path: Path, wanted: Wanted) -> Stored:
    """One dataset of the file, such as `layers/embedding/vars/0`: mapped if it is in one piece, else read by ranges.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    key, token_column = wanted.key, wanted.token_column
    with read_by_library(f"{path}: found no whole HDF5 file"):
        listed = hdf5.datasets(File(path))
    datasets = {name: each for name, each in listed.items() if not each.elsewhere}
    for each in listed.values():
        if each.elsewhere and (each.name == key or not datasets):
            raise DataError(f"{path}: {each.name}: {each.elsewhere}, which are never read")
    key = only_key(path, {name: each.shape or () for name, each in datasets.items()}, key, "dataset")
    dataset, dtype = datasets[key], np.dtype(datasets[key].dtype)
    name = f"{path}: {key}"
    rows, dim = checked_shape(name, dataset.shape or (), dtype)
    if token_column is not None and token_column not in datasets:
        strings = ", ".join(each.name for each in datasets.values() if len(each.shape or ()) == 1) or "none"
        raise DataError(f"{path}: found no dataset {token_column!r}; those of one dimension are {strings}")
    _range(path, dataset, 0, 1)  # compares what the file holds with the shape, too
    size = path.stat().st_size
    if dataset.offset is not None and dataset.offset + rows * dataset.row_bytes > size:
        raise DataError(f"{name}: found {size:,} bytes, expected more: the file is cut short")
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=lambda start, stop: _range(path, dataset, start, stop),
        files=[path],
        place=Place(path, dataset.offset) if dataset.offset is not None and dtype in ROW_TYPES.values() else None,
        tokens=(lambda: _tokens(path, datasets[token_column], rows)) if token_column is not None else None,
    )


def _range(path: Path, dataset: Dataset, start: int, stop: int) -> np.ndarray:
    with read_by_library(f"{path}: {dataset.name}: rows {start:,} to {stop:,} can't be read"):
        values = hdf5.read(File(path), dataset, start, stop)
        if values.shape != (stop - start, *(dataset.shape or ())[1:]) or values.dtype != np.dtype(dataset.dtype):
            raise ValueError(f"found {values.dtype} {list(values.shape)}")
        return values


def _tokens(path: Path, dataset: Dataset, rows: int) -> pa.LargeStringArray:
    name, size = f"{path}: {dataset.name}", path.stat().st_size
    if not dataset.strings or dataset.shape != (rows,):
        found = f"{dataset.type_name} {list(dataset.shape or ())}"
        raise DataError(f"{name}: found {found}, expected {plural(rows, 'string')}, one for each row")
    parts: list[pa.LargeStringArray] = []
    done, step = 0, min(_TOKENS, max(_FEW_TOKENS, _TOKEN_BYTES // size))
    for start in range(0, rows, step):
        with read_by_library(f"{name}: its strings can't be read"):
            tokens = hdf5.read(File(path), dataset, start, min(rows, start + step)).tolist()
            done += sum(map(len, tokens))
        if dataset.strings == "any" and done > size:  # many strings may be one and the same place in the file
            raise DataError(f"{name}: found strings of more bytes than the file has, {size:,}")
        parts.append(_as_text(name, tokens))
    return pa.concat_arrays(parts)


def _as_text(name: str, tokens: Iterable[bytes]) -> pa.LargeStringArray:
    try:
        return pa.array([token.decode("utf-8") for token in tokens], pa.large_string())
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: found {error.object!r}, expected text in UTF-8") from None


def read_checkpoint(path: Path, wanted: Wanted) -> Stored:
    """One tensor of a checkpoint, by its prefix, its `.index` file or its folder.

    Raises:
        DataError: there is none, it can't be read, or doesn't hold the one matrix.
    """
    index = bundle_index.find(path)
    if index is None:
        raise DataError(
            f"{path}: found no checkpoint: there is neither {path.name}.index nor a folder with a checkpoint"
        )
    return read_tensor(index, wanted.key)


def read_tensor(index: Path, key: str | None) -> Stored:
    """One tensor of a checkpoint; see `stored_tensor`.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    if not index.is_file():
        raise DataError(f"{index}: found no such file, expected the index of a checkpoint")
    return stored_tensor(index, checkpoint_tensors(index), key)


def checkpoint_tensors(index: Path) -> dict[str, Values]:
    """All tensors of a checkpoint, by their keys without the end that all keys of an object-based one share.

    Raises:
        CheckpointError: it is incremental, and what it is based on is missing or has changed.
        DataError: its index can't be read.
    """
    found = increments.tensors(increments.chain(prefix_of(index)))
    return {key.removesuffix(KEY_END): values for key, values in found.items()}


def stored_tensor(index: Path, checkpoint_tensors: Mapping[str, Values], key: str | None) -> Stored:
    """One tensor of a checkpoint whose index has been read, mapped. Its checksum is compared by `Stored.check`.

    Args:
        index: the `.index` file.
        checkpoint_tensors: what it holds, see `checkpoint_tensors`.
        key: of the tensor, with or without the end that all keys of an object-based one share; None: the only matrix.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    shapes = {each: values.entry.shape for each, values in checkpoint_tensors.items()}
    key = only_key(index, shapes, None if key is None else key.removesuffix(KEY_END), "tensor")
    values, name = checkpoint_tensors[key], f"{index}: {key}"
    if isinstance(values, Tensor):
        values = Tensor(name, key, values.entry)
    entry = values.entry
    dtype = number_type(entry.kind)
    if dtype not in FLOATS:
        expected = "float16, bfloat16, float32 or float64"
        raise DataError(f"{name}: found a tensor of {type_name(entry.kind)}, expected {expected}")
    rows, dim = checked_shape(name, entry.shape, dtype)
    parts = increments.parts_of(values)
    for part in parts:
        part.check_place()
    in_place = isinstance(values, Tensor)
    if isinstance(values, ChangedMatrix):
        in_place = values.unchanged and values.rows == values.whole.entry.shape[0]
    whole = in_place and len(entry.pieces) == 1 and dtype in ROW_TYPES.values()
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=values.read,
        files=[index, *data_files(part.entry for part in parts)],
        place=Place(entry.pieces[0].path, entry.pieces[0].offset) if whole else None,
        check=values.verify,
    )
