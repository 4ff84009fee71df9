"""Arrays that TensorFlow takes over without a copy, and the rows of a matrix, read a block at a time."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any, Protocol

import numpy as np

ALIGNMENT = 64
"""Where such memory begins: at a multiple of so many bytes. TensorFlow's kernels abort the process without."""

_HUGE_PAGE = 2 * 1024 * 1024
_MADV_HUGEPAGE = 14
"""From Linux' <asm-generic/mman-common.h>."""
_ROWS_READ = 4_096


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array in C order that begins at a multiple of `ALIGNMENT`; NumPy's own seldom do."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    found: np.ndarray = memory[first : first + size].view(dtype).reshape(shape)
    return found


def is_aligned(array: np.ndarray) -> bool:
    """Whether an array's memory is in C order and begins at a multiple of `ALIGNMENT`."""
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0


def can_be_taken_over(array: np.ndarray) -> bool:
    """Whether TensorFlow can use an array's memory as it is, by DLPack."""
    # Of a read-only array NumPy hands out no DLPack.
    return array.flags.writeable and is_aligned(array)


def prefer_huge_pages(memory: np.ndarray) -> None:
    """Asks Linux to back an array with huge pages from when it is first written to.

    Filling 3 GB page by page takes three times as long as copying them. It is a hint: other systems, and kernels
    that have no huge pages to give, go on with small ones.
    """
    first = -(-memory.ctypes.data // _HUGE_PAGE) * _HUGE_PAGE
    size = (memory.ctypes.data + memory.nbytes - first) // _HUGE_PAGE * _HUGE_PAGE
    if sys.platform == "linux" and size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), ctypes.c_int(_MADV_HUGEPAGE))


class Rows(Protocol):
    """Rows by number: of a file, an initializer, a table."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def dim(self) -> int:
        """Numbers per row."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim], the same values however the ranges are cut.

        May be a view of a file, so it is not to be written to.
        """
        ...


class MappableRows(Rows, Protocol):
    """Rows that may be mapped from a file, so that TensorFlow uses them without a copy."""

    def memory_map(self) -> np.ndarray | None:
        """All rows as one mapping of a file; None where no file holds them as they are.

        A mapping is float32 [rows, dim], C-contiguous, aligned to 64 bytes, a plain `np.ndarray`; writing to it changes
        nothing on disk (mode `c`).
        """
        ...


class ArrayRows:
    """Rows of an array in memory."""

    def __init__(self, values: np.ndarray) -> None:
        """Takes the array, float32 [rows, dim]."""
        self._values = values

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._values)

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return int(self._values.shape[1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop)."""
        return self._values[start:stop]


class SomeRows:
    """Chosen rows of a source, in order; `MappableRows`.

    Attributes:
        dim: numbers per row.
    """

    def __init__(self, source: Rows, numbers: np.ndarray) -> None:
        """Takes a source and the numbers of rows in it; reads nothing.

        Args:
            source: of all rows.
            numbers: integers [n], of the rows that are chosen; best in rising order.
        """
        self._source, self._numbers = source, numbers
        self.rows, self.dim = len(numbers), source.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the chosen ones, float32; neighbours are read together."""
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"there are rows 0 to {self.rows - 1}, asked for [{start}, {stop})")
        numbers = self._numbers[start:stop]
        values = empty((len(numbers), self.dim), np.float32)
        if not len(numbers):
            return values
        ends = (np.flatnonzero(np.diff(numbers // _ROWS_READ)) + 1).tolist()
        for low, high in zip([0, *ends], [*ends, len(numbers)], strict=True):
            some = numbers[low:high]
            first, last = int(some.min()), int(some.max())
            values[low:high] = self._source.read(first, last + 1)[some - first]
        return values

    def memory_map(self) -> np.ndarray | None:
        """None: the rows are not contiguous."""
        return None
