"""From numbers as stored to float32, and what becomes of those that are not finite."""

from __future__ import annotations

import numpy as np

from embexp.specs.vectors import NonFinite


def as_float32(values: np.ndarray) -> np.ndarray:
    """The values as C-contiguous float32 in memory of their own; what float32 can't hold becomes infinite."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32, order="C")


def non_finite_rows(values: np.ndarray) -> np.ndarray:
    """Numbers of the rows that hold a NaN or an infinity, int64, ascending."""
    # The sum of all is finite only if each value is (but it may overflow, so that it alone condemns nothing).
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(values, axis=None)):
            return np.empty(0, np.int64)
    return np.flatnonzero(~np.isfinite(values).all(axis=1))


def first_non_finite(row: np.ndarray) -> str:
    """The first such number of a row and its place, in words."""
    place = int(np.flatnonzero(~np.isfinite(row))[0])
    return f"{row[place]} at place {place + 1} of {row.size}"


def zeroed(values: np.ndarray, rows: np.ndarray) -> None:
    """Sets what is not finite in these rows to 0, in place."""
    if rows.size:
        some = values[rows]
        some[~np.isfinite(some)] = 0
        values[rows] = some


REMEDY = f"set the policy to {NonFinite.ZERO} or {NonFinite.SKIP} to go on"
"""What to do about a number that is not finite."""
