"""TensorFlow's types by the numbers of its types.proto, and NumPy's counterparts."""

from __future__ import annotations

import ml_dtypes
import numpy as np

STRING = 7
_NUMBERS: dict[int, tuple[str, np.dtype]] = {
    1: ("float32", np.dtype("<f4")),
    2: ("float64", np.dtype("<f8")),
    3: ("int32", np.dtype("<i4")),
    4: ("uint8", np.dtype("u1")),
    5: ("int16", np.dtype("<i2")),
    6: ("int8", np.dtype("i1")),
    8: ("complex64", np.dtype("<c8")),
    9: ("int64", np.dtype("<i8")),
    10: ("bool", np.dtype("?")),
    11: ("qint8", np.dtype("i1")),
    12: ("quint8", np.dtype("u1")),
    13: ("qint32", np.dtype("<i4")),
    14: ("bfloat16", np.dtype(ml_dtypes.bfloat16)),
    15: ("qint16", np.dtype("<i2")),
    16: ("quint16", np.dtype("<u2")),
    17: ("uint16", np.dtype("<u2")),
    18: ("complex128", np.dtype("<c16")),
    19: ("float16", np.dtype("<f2")),
    22: ("uint32", np.dtype("<u4")),
    23: ("uint64", np.dtype("<u8")),
    24: ("float8_e5m2", np.dtype(ml_dtypes.float8_e5m2)),
    25: ("float8_e4m3fn", np.dtype(ml_dtypes.float8_e4m3fn)),
    26: ("float8_e4m3fnuz", np.dtype(ml_dtypes.float8_e4m3fnuz)),
    27: ("float8_e4m3b11fnuz", np.dtype(ml_dtypes.float8_e4m3b11fnuz)),
    28: ("float8_e5m2fnuz", np.dtype(ml_dtypes.float8_e5m2fnuz)),
    29: ("int4", np.dtype(ml_dtypes.int4)),
    30: ("uint4", np.dtype(ml_dtypes.uint4)),
}
_OTHERS = {STRING: "string", 20: "resource", 21: "variant"}


def name_of(kind: int) -> str:
    """TensorFlow's name of a type."""
    if kind in _NUMBERS:
        return _NUMBERS[kind][0]
    return _OTHERS.get(kind, f"type {kind}")


def number_type(kind: int) -> np.dtype | None:
    """NumPy's type for numbers of a type, little-endian; None: they are no numbers, or NumPy has no such type."""
    return _NUMBERS[kind][1] if kind in _NUMBERS else None
