"""What HDF5 datasets hold, compared with what they claim, before memory is taken for it.

A dataset of 10^16 numbers fits into a file of a kilobyte: rows that were never written read as a fill value. Its
values may also be in other files (external storage, virtual datasets).
"""

from __future__ import annotations

import math
from typing import Any

import h5py

_MOST_PACKED = 1_100
"""Bytes that one stored byte can become: deflate reaches 1,032 (https://zlib.net/zlib_tech.html)."""
_LARGEST_CHUNK = 1 << 28


def elsewhere(dataset: Any) -> str:
    """Why the values of an `h5py.Dataset` are not in its file, such as `it is virtual: …`; "" where they are."""
    settings = dataset.id.get_create_plist()
    if settings.get_layout() == h5py.h5d.VIRTUAL:  # before its shape is asked for, which may open its sources
        return "it is virtual: its values are in other datasets"
    if settings.get_layout() == h5py.h5d.CONTIGUOUS and settings.get_external_count():
        return "its values are in other files (external storage)"
    return ""


def fault_of(dataset: Any) -> str:
    """Why a dataset does not hold the values that it claims; "" where it does, as far as its sizes show.

    Args:
        dataset: an `h5py.Dataset` that is not `elsewhere`.
    """
    shape, settings = tuple(map(int, dataset.shape or ())), dataset.id.get_create_plist()
    claimed = math.prod(shape) * int(dataset.id.get_type().get_size())
    if dataset.shape is None or not claimed:
        return ""
    stored = int(dataset.id.get_storage_size())
    if settings.get_layout() != h5py.h5d.CHUNKED:
        return "" if stored == claimed else f"found {stored:,} bytes of it in the file, expected {claimed:,}"
    chunk = tuple(map(int, settings.get_chunk()))
    size = math.prod(chunk) * int(dataset.id.get_type().get_size())
    if size > _LARGEST_CHUNK:
        return f"found chunks of {size:,} bytes, expected at most {_LARGEST_CHUNK:,}"
    expected = math.prod(-(-whole // part) for whole, part in zip(shape, chunk, strict=True))
    found = int(dataset.id.get_num_chunks())
    if found != expected:
        return f"found {found:,} of its {expected:,} chunks in the file: the others were never written"
    most = stored * (_MOST_PACKED if settings.get_nfilters() else 1)
    return "" if claimed <= most else f"found {stored:,} bytes of it in the file, too few for {claimed:,}"
