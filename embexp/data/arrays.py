"""`.npy` files that grow by appending and are read by mapping them into memory."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import DTypeLike

_HEADER_BYTES = 192  # a multiple of 64, so that the mapped values are aligned; room for any shape


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
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
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


def mapped(path: Path) -> np.ndarray:
    """The array in a `.npy` file, mapped copy-on-write: its pages stay in the file as long as nobody writes to it.

    Copy-on-write and not read-only because DLPack refuses arrays that may not be written to.
    """
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    return np.asarray(array)  # the subclass np.memmap is slow to index and to convert
