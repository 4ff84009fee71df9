"""Strings in TensorFlow checkpoints: their lengths, a checksum of these, and the characters.

Source: `WriteStringTensor` and `ReadStringTensor` in tensorflow/core/util/tensor_bundle/tensor_bundle.cc
"""

from __future__ import annotations

import struct

import google_crc32c
import numpy as np

from embexp.tensor_bundle import wire
from embexp.tensor_bundle.index import masked


def parse(data: bytes, shape: tuple[int, ...], checksum: int) -> np.ndarray:
    """Strings from their bytes in a data file.

    Args:
        data: all of them.
        shape: of the tensor.
        checksum: of the tensor, as the index has it.

    Returns:
        Objects of type `bytes`.

    Raises:
        ValueError: a checksum is wrong, or they are cut short.
    """
    lengths, at, crc = [], 0, 0
    try:
        for _ in range(int(np.prod(shape, dtype=np.int64))):
            length, at = wire.varint(data, at)
            lengths.append(length)
            crc = google_crc32c.extend(crc, struct.pack("<I" if length < 2**32 else "<Q", length))
    except IndexError:
        raise ValueError("the lengths of the strings are cut short") from None
    stored = data[at : at + 4]
    if int.from_bytes(stored, "little") != masked(crc):
        raise ValueError("the checksum of the lengths is wrong")
    at += 4
    if len(data) != at + sum(lengths):
        raise ValueError(f"found {len(data) - at:,} characters, expected {sum(lengths):,}")
    crc = google_crc32c.extend(google_crc32c.extend(crc, stored), data[at:])
    if masked(crc) != checksum:
        raise ValueError(f"found the checksum {masked(crc):#010x}, expected {checksum:#010x}")
    values = np.empty(len(lengths), object)
    for number, length in enumerate(lengths):
        values[number] = data[at : at + length]
        at += length
    return values.reshape(shape)
