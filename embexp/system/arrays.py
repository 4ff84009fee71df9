"""Arrays: memory that TensorFlow takes over without a copy, the rows of a matrix by blocks, and `.npy` files.

Headers of `.npy` files are read strictly: NumPy's own reader raises many kinds of errors, takes sizes that no file
has, and seconds to refuse a damaged header of 5 KB. Source:
https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from embexp.system import files

ALIGNMENT = 64
"""Where such memory begins: at a multiple of so many bytes. TensorFlow's kernels abort the process without."""

_HUGE_PAGE = 2 * 1024 * 1024
_MADV_RANDOM, _MADV_WILLNEED, _MADV_HUGEPAGE = 1, 3, 14
"""From Linux' <asm-generic/mman-common.h>."""
_ROWS_READ = 4_096
_MAGIC = b"\x93NUMPY"
_LONGEST = 10_000  # the bound that NumPy has
_NOT_JSON = re.compile(r"""['()]|\b(True|False)\b|,(?=\s*[])}])|(?<=[0-9])L\b""")
_AS_JSON = {"'": '"', "(": "[", ")": "]", "True": "true", "False": "false"}
"""What a header, a Python dict of literals, has where JSON has something else, or nothing; Python 2 wrote `8L`."""
_HEADER_BYTES = 192  # a multiple of 64, so that the mapped values are aligned; room for any shape


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
    _advise(first, size, _MADV_HUGEPAGE)


def read_single_pages(mapping: np.ndarray) -> None:
    """Asks Linux to read no more of a mapped file than the pages that are touched: neighbours are others' rows."""
    _advise(*_pages(mapping), _MADV_RANDOM)


def read_ahead(mapping: np.ndarray) -> None:
    """Asks Linux to read these rows of a mapped file: they are there when they are touched, and nobody waits."""
    _advise(*_pages(mapping), _MADV_WILLNEED)


def _pages(mapping: np.ndarray) -> tuple[int, int]:
    """Where the pages of an array begin, and the bytes from there to its end; 0 of an empty one."""
    first = mapping.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    return first, mapping.ctypes.data + mapping.nbytes - first if mapping.nbytes else 0


def _advise(first: int, size: int, advice: int) -> None:
    if sys.platform == "linux" and size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), ctypes.c_int(advice))


def widened(stored: np.ndarray, scales: np.ndarray | None = None) -> np.ndarray:
    """Rows as float32; those that are stored so may be the same memory.

    Args:
        stored: float32, float16, bfloat16, or int8 [n, dim].
        scales: float32 [n], what the numbers of a row are multiplied by; None: 1.
    """
    values = stored.astype(np.float32, copy=False)
    return values if scales is None else values * scales[:, None]


class Rows(Protocol):
    """Rows by number: of a file, an initializer, a table."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def dim(self) -> int:
        """Numbers per row."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32 [stop - start, dim], the same values however the ranges are cut.

        May be a view of a file, so it is not to be written to.
        """


class MappableRows(Rows, Protocol):
    """Rows that may be mapped from a file, so that TensorFlow uses them without a copy."""

    def memory_map(self) -> np.ndarray | None:
        """All rows as one mapping of a file; None where no file holds them as they are.

        A mapping is float32 [rows, dim], C-contiguous, aligned to 64 bytes, a plain `np.ndarray`; writing to it changes
        nothing on disk (mode `c`).
        """


def blocks(rows: Rows, size: int) -> Iterator[tuple[int, np.ndarray]]:
    """All rows, as blocks of at most `size` bytes, but of one row at least; each with the number of its first row."""
    step = max(size // (4 * rows.dim), 1)
    for start in range(0, rows.rows, step):
        yield start, rows.read(start, min(start + step, rows.rows))


class ArrayRows:
    """Rows of an array in memory.

    Attributes:
        dim: numbers per row.
    """

    def __init__(self, values: np.ndarray) -> None:
        """Takes the array, float32 [rows, dim]."""
        self._values = values
        self.rows, self.dim = values.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop)."""
        return self._values[start:stop]


@runtime_checkable
class InRuns(Protocol):
    """Rows that come from several places of their source: those of one run are neighbours there."""

    def runs(self) -> Iterator[range]:
        """All rows, in order, as such ranges."""


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


class PickledError(ValueError):
    """Objects in a file, which only a pickle could read."""


@dataclass(frozen=True)
class Header:
    """What a header says, and where it ends.

    Attributes:
        fortran_order: whether the first dimension varies fastest.
        offset: bytes before the numbers.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> Header:
    """Reads the header at the beginning of a file, and nothing behind it.

    Raises:
        PickledError: it holds objects.
        ValueError: it is none.
    """
    start = file.read(8)
    if len(start) < 8 or not start.startswith(_MAGIC):
        raise ValueError("it does not begin like a .npy file")
    if start[6:] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise ValueError(f"its version is {start[6]}.{start[7]}, expected 1.0, 2.0 or 3.0")
    wide = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(wide), "little")
    if length > _LONGEST:
        raise ValueError(f"its header would be {length:,} bytes long, expected at most {_LONGEST:,}")
    written = file.read(length)
    if len(written) < length:
        raise ValueError("it ends within its header")
    text = written.decode("utf-8" if start[6] == 3 else "latin-1", "replace").strip()
    try:
        header = json.loads(_NOT_JSON.sub(lambda found: _AS_JSON.get(found[0], ""), text))
        descr, fortran_order, shape = (header.pop(key) for key in ("descr", "fortran_order", "shape"))
        if header or not isinstance(fortran_order, bool):
            raise ValueError
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise ValueError(f"its header is {text[:80]!r}, expected descr, fortran_order and shape") from None
    return Header(_dtype(descr), _shape(shape), fortran_order, 8 + wide + length)


def mapped(path: Path, mode: Literal["r", "c"] = "r") -> tuple[np.ndarray, Header]:
    """The array in a `.npy` file, mapped to be read, or copy-on-write.

    Raises:
        ValueError: it is no such file, holds objects, or is cut short.
        OSError: it can't be opened.
    """
    with files.opened(path) as file:
        header = read_header(file)
    size = path.stat().st_size
    if size < header.size:
        raise ValueError(
            f"found {size:,} bytes, expected {header.size:,} according to its header: the file is cut short"
        )
    order = "F" if header.fortran_order else "C"
    if not math.prod(header.shape) or not header.dtype.itemsize:
        if any(dimension > 1 << 40 for dimension in header.shape):
            raise ValueError(f"its shape is {header.shape}, so it holds no numbers")
        return np.empty(header.shape, header.dtype, order), header  # type: ignore[call-overload,no-any-return,unused-ignore]
    return np.memmap(path, header.dtype, mode, header.offset, header.shape, order), header  # type: ignore[call-overload,unused-ignore]


def _dtype(descr: object) -> np.dtype:
    if isinstance(descr, list):
        raise ValueError(f"its type is {str(descr)[:80]}, with fields, expected plain numbers")
    try:
        dtype = np.dtype(descr) if isinstance(descr, str) and "," not in descr else None
    except Exception:  # TypeError and ValueError, and those of its parser
        dtype = None
    if dtype is None or dtype.subdtype is not None:
        raise ValueError(f"its type is {str(descr)[:80]!r}, expected a numeric type")
    if dtype.hasobject:
        raise PickledError("it holds pickled Python objects, which are never read")
    return dtype


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > 32 or not all(type(n) is int and 0 <= n < 10**18 for n in shape):
        raise ValueError(f"its shape is {str(shape)[:80]}, expected sizes")
    return tuple(shape)


class ArrayWriter:
    """Writes a C-ordered `.npy` file of shape [rows] or [rows, width], chunk by chunk, in bounded memory.

    Use as a context manager; the file is complete when the block ends without an error.
    """

    def __init__(self, path: Path, dtype: DTypeLike, width: int | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._width = width
        self._file = path.open("wb")
        self._file.write(bytes(_HEADER_BYTES))
        self.rows = 0

    def append(self, values: np.ndarray) -> None:
        """Adds rows; `values` has shape [n] or [n, width] and is cast to the file's dtype."""
        if values.shape[1:] != (() if self._width is None else (self._width,)):
            raise ValueError(f"rows of shape {values.shape[1:]} do not fit a file of width {self._width}")
        written = np.ascontiguousarray(values, self._dtype).reshape(-1)
        self._file.write(written.view(np.uint8).data)  # Python's buffers know no bfloat16
        self.rows += len(values)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file as file:
            if kind is None:
                shape = (self.rows,) if self._width is None else (self.rows, self._width)
                text = repr({"descr": self._dtype.str, "fortran_order": False, "shape": shape})
                file.seek(0)
                file.write(b"\x93NUMPY\x01\x00" + (_HEADER_BYTES - 10).to_bytes(2, "little"))
                file.write(text.encode("latin1").ljust(_HEADER_BYTES - 11) + b"\n")


def mapped_array(path: Path) -> np.ndarray:
    """The array in a `.npy` file, mapped copy-on-write: its pages stay in the file as long as nobody writes to it.

    Copy-on-write and not read-only because DLPack refuses arrays that may not be written to. Threads may map at once:
    NumPy's own reader parses Python, for which Python 3.11 has one counter that threads share (gh-106905).

    Raises:
        ValueError: it is no such file, holds objects, or is cut short.
    """
    return np.asarray(mapped(path, "c")[0])  # the subclass np.memmap is slow to index and to convert
