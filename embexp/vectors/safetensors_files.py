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
from embexp.vectors.stored import BFLOAT16, Place, Stored, checked_shape, only_key

_LONGEST_HEADER = 100_000_000  # the bound that the package itself has
_TYPES = {"F16": np.dtype("<f2"), "BF16": BFLOAT16, "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


def read(path: Path, key: str | None) -> Stored:
    """One tensor of the file, mapped.

    Raises:
        DataError: it is no such file, is cut short, or doesn't hold the one matrix.
    """
    header, data = _header(path)
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    try:
        shapes = {name: [int(size) for size in entry["shape"]] for name, entry in tensors.items()}
        key = only_key(path, shapes, key, "tensor")
        begin, end = map(int, tensors[key]["data_offsets"])
        kind = str(tensors[key]["dtype"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: found a header that lacks dtype, shape or data_offsets: {error}") from None
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
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        size = path.stat().st_size
        if len(start) < 8 or length > min(_LONGEST_HEADER, size - 8):
            raise DataError(f"{path}: found no safetensors file: its header would be {length:,} bytes of {size:,}")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise DataError(f"{path}: found no safetensors file: its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise DataError(f"{path}: found no safetensors file: its header is no JSON object")
    return header, 8 + length
