"""Arrays whose memory TensorFlow takes over as it is, without a copy."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Where such memory begins: at a multiple of so many bytes. TensorFlow's kernels abort the process without."""

_HUGE_PAGE = 2 * 1024 * 1024
_MADV_HUGEPAGE = 14
"""From Linux' <asm-generic/mman-common.h>."""


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
