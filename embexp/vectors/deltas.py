"""What changed in a table since an earlier one: its new and moved rows in two files, and the table that they make.

`NAME.rows.npy` has the numbers of the rows, int64 [n], rising, and `NAME.values.npy` their numbers, [n, dim], as the
table stores them. A row is new if it stands for a new token, or if the earlier table has no row of its number. Of the
others, those have moved that differ in a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embexp.errors import DataError
from embexp.system import arrays
from embexp.system.arrays import ArrayWriter, Rows
from embexp.system.parallel import Progress, quiet
from embexp.vectors.stored import BFLOAT16

_BLOCK_BYTES = 1 << 24
ROWS, VALUES = "{}.rows.npy", "{}.values.npy"
"""Names of the files of a table."""


@dataclass(frozen=True)
class Counts:
    """How many rows of a table are new, have moved, and are the same as in the earlier table."""

    new: int
    moved: int
    same: int


def write_changes(
    before: Rows,
    after: Rows,
    new: Sequence[range],
    folder: Path,
    name: str,
    *,
    dtype: np.dtype,
    progress: Progress = quiet,
) -> Counts:
    """Writes the two files of a table, with memory for a block of rows of both tables.

    Args:
        new: the numbers of the new rows; all that `before` lacks are among them.
        dtype: float32, float16 or bfloat16, what the table stores.
    """
    is_new = moved = 0
    with (
        ArrayWriter(folder / ROWS.format(name), np.int64) as numbers,
        ArrayWriter(folder / VALUES.format(name), dtype, after.dim) as values,
    ):
        for start, block in arrays.blocks(after, _BLOCK_BYTES):
            fresh = _within(start, len(block), new)
            changed = np.flatnonzero(fresh | _differs(before, start, block))
            numbers.append(start + changed)
            values.append(narrowed(block[changed], dtype))
            is_new += int(fresh.sum())
            moved += len(changed) - int(fresh.sum())
            progress(f"comparing table {name}", (start + len(block)) / after.rows)
    return Counts(is_new, moved, after.rows - is_new - moved)


def _within(start: int, count: int, ranges: Sequence[range]) -> np.ndarray:
    """Bool [count]: which of so many rows from `start` are in a range."""
    found = np.zeros(count, bool)
    for each in ranges:
        found[max(0, each.start - start) : max(0, each.stop - start)] = True
    return found


def _differs(before: Rows, start: int, block: np.ndarray) -> np.ndarray:
    """Bool [n]: which rows differ in a bit from those of the same numbers; those that have none count as the same."""
    known = max(0, min(before.rows - start, len(block)))
    found = np.zeros(len(block), bool)
    if known:
        earlier = before.read(start, start + known)
        found[:known] = (_bits(block[:known]) != _bits(earlier)).any(axis=1)
    return found


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def narrowed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers that were stored as `dtype`, and are float32 now, as they were stored: to the bit, also of a NaN."""
    if dtype != BFLOAT16:
        return np.ascontiguousarray(values, dtype)
    return (_bits(values) >> 16).astype(np.uint16).view(BFLOAT16)


class ChangedRows:
    """An earlier table with the rows of a delta in it, and those behind it; `Rows`.

    Attributes:
        rows: number of rows.
        dim: numbers per row.
    """

    def __init__(self, before: Rows, numbers: np.ndarray, values: np.ndarray, rows: int) -> None:
        """Reads nothing.

        Args:
            numbers: of the rows of the delta, int64 [n], rising.
            values: of these, [n, dim]: float32, float16 or bfloat16.
            rows: of the table that they make.
        """
        self._before, self._numbers, self._values = before, numbers, values
        self.rows, self.dim = rows, before.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32."""
        found = np.empty((stop - start, self.dim), np.float32)
        if (known := min(stop, self._before.rows)) > start:
            found[: known - start] = self._before.read(start, known)
        low, high = np.searchsorted(self._numbers, (start, stop))
        found[self._numbers[low:high] - start] = arrays.widened(self._values[low:high])
        return found


def changed_rows(before: Rows, folder: Path, name: str, *, rows: int, dtype: np.dtype) -> ChangedRows:
    """The table that an earlier one and the two files of a delta make; the files are mapped.

    Args:
        rows: of that table.

    Raises:
        DataError: the files are not those of such a table.
    """
    numbers = _mapped(folder / ROWS.format(name), np.dtype(np.int64), None)
    values = _mapped(folder / VALUES.format(name), dtype, before.dim)
    rising = bool((np.diff(numbers, prepend=-1, append=rows) > 0).all())
    behind = len(numbers) - int(np.searchsorted(numbers, before.rows))
    if len(numbers) != len(values) or not rising or behind != max(0, rows - before.rows):
        raise DataError(
            f"{folder / ROWS.format(name)}: found {len(numbers):,} row numbers for {len(values):,} rows, "
            f"expected increasing row numbers of a table that grew from {before.rows:,} to {rows:,} rows"
        )
    return ChangedRows(before, numbers, values, rows)


def _mapped(path: Path, dtype: np.dtype, width: int | None) -> np.ndarray:
    try:
        found, header = arrays.mapped(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: found no .npy file: {error}") from None
    if header.dtype.itemsize != dtype.itemsize or header.shape[1:] != (() if width is None else (width,)):
        shape = "[n]" if width is None else f"[n, {width}]"
        raise DataError(f"{path}: found {header.dtype} {list(header.shape)}, expected {dtype} {shape}")
    return found.view(dtype)
