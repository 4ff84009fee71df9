"""Figures of the values of a key, taken in blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from embexp.checkpoints.contents import Stored

_BLOCK_BYTES = 1 << 23
FEW = 6
"""So many values are shown themselves."""


@dataclass(frozen=True)
class Statistics:
    """Figures of values.

    Attributes:
        minimum: of the finite ones; None where there are none, or they are complex.
        maximum: likewise.
        mean: of the finite ones; None where there are none.
        norm: L2 norm of the finite ones; None where they are no numbers.
        not_finite: how many are NaN or infinite.
        values: the values themselves where they are few, as Python's; strings that are no text as their `repr`.
    """

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    norm: float | None = None
    not_finite: int = 0
    values: tuple[object, ...] | None = None


def statistics(entry: Stored) -> Statistics:
    """Reads all values of a key.

    Raises:
        DataError: they can't be read.
    """
    if entry.values.dtype is None:
        return Statistics()
    count = math.prod(entry.info.shape)
    values = tuple(map(_plain, entry.values.value().reshape(-1).tolist())) if count <= FEW else None
    if not entry.numeric:
        return Statistics(values=values)
    low, high, total, squares, finite_ones = math.inf, -math.inf, 0.0, 0.0, 0
    ordered = entry.values.dtype.kind != "c"
    for _, block in entry.blocks(_BLOCK_BYTES):
        numbers = block.reshape(-1)
        # Types of ml_dtypes lack most operations; complex numbers are only measured.
        with np.errstate(invalid="ignore", over="ignore"):
            numbers = numbers.astype(np.float64) if ordered else np.abs(numbers.astype(np.complex128))
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total += float(finite.sum())
            squares += float(finite @ finite)
            finite_ones += finite.size
    some = finite_ones > 0 and ordered
    return Statistics(
        minimum=low if some else None,
        maximum=high if some else None,
        mean=total / finite_ones if some else None,
        norm=math.sqrt(squares),
        not_finite=count - finite_ones,
        values=values,
    )


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return repr(value)
    return value if isinstance(value, bool | int | float) else str(value)
