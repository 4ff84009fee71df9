"""Vectors in safetensors files.

The form: 8 bytes with the length of a JSON header, the header, then the bytes of all tensors. It is read here rather
than with the package of that name, which does not report the place of a tensor, so that nothing could be mapped.
Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from embexp.errors import DataError
from embexp.system import regular
from embexp.vectors.stored import BFLOAT16, Place, Stored, checked_shape, only_key

_LONGEST_HEADER = 1 << 23  # of some 80,000 tensors; as Python's objects it may take twenty times as much
_TYPES = {"F16": np.dtype("<f2"), "BF16": BFLOAT16, "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


def read(path: Path, key: str | None) -> Stored:
    """One tensor of the file, mapped.

    Raises:
        DataError: it is no such file, is cut short, or doesn't hold the one matrix.
    """
    header, data = _header(path)
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for tensor, entry in tensors.items():
        if fault := _fault(tensor, entry):
            raise DataError(f"{path}: found a header that lacks dtype, shape or data_offsets: {fault} of {tensor!r}")
    shapes = {tensor: entry["shape"] for tensor, entry in tensors.items()}
    key = only_key(path, shapes, key, "tensor")
    (begin, end), kind = tensors[key]["data_offsets"], tensors[key]["dtype"]
    name = f"{path}: {key}"
    if kind not in _TYPES:
        raise DataError(f"{name}: found numbers of type {kind}, expected one of {', '.join(_TYPES)}")
    rows, dim = checked_shape(name, shapes[key], _TYPES[kind])
    expected = math.prod(shapes[key]) * _TYPES[kind].itemsize
    if end - begin != expected or begin < 0:
        raise DataError(f"{name}: found {end - begin:,} bytes, expected {expected:,} for the shape {shapes[key]}")
    size = path.stat().st_size
    if data + end > size:
        raise DataError(f"{name}: found {size:,} bytes, expected at least {data + end:,}: the file is cut short")
    matrix = np.memmap(path, _TYPES[kind], "r", data + begin, (rows, dim))
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=_TYPES[kind],
        read=lambda start, stop: matrix[start:stop],
        files=[path],
        place=Place(path, data + begin) if kind == "F32" else None,
    )


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the data begins."""
    with regular.opened(path) as file:
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
