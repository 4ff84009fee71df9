"""Contents of Keras' `.weights.h5` and `.keras` files, and of other HDF5 files."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from embexp.checkpoints.contents import (
    DENSE,
    OPTIMIZER,
    Contents,
    KeyInfo,
    Stored,
    StoredKind,
    group_of_name,
    groups_in_order,
)
from embexp.errors import DataError, read_by_library
from embexp.system import files, hdf5
from embexp.system.hdf5 import File

_CHUNK_BYTES = 1 << 24
_LARGEST_PACKED, _MOST_PACKED = 1 << 30, 1_100
"""Bytes that a compressed file of weights may have, and bytes that one of them can become: deflate reaches 1,032."""
_ENCRYPTED = 1
_MOST_STRINGS = 64
_LOCAL_HEADER = 30
"""Bytes of a zip's header of a file, before the file's name: section 4.3.7 of PKWARE's APPNOTE."""


@dataclass(frozen=True)
class Dataset:
    """A dataset of an HDF5 file.

    Attributes:
        member: of the zip that the file is; None: it is HDF5 itself.
        dtype: NumPy's; `object` for strings; None: it can't be read.
    """

    path: Path
    member: str | None
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype | None
    stored: hdf5.Dataset

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in memory of their own.

        Raises:
            DataError: there are no such rows, or they can't be read.
        """
        if not self.shape and self.dtype is not None:
            raise DataError(f"{self.path}: {self.key}: it is a scalar and has no rows")
        if self.shape and not 0 <= start <= stop <= self.shape[0]:
            raise DataError(
                f"{self.path}: {self.key}: there are no rows {start:,} to {stop:,}, it has {self.shape[0]:,}"
            )
        return self._read((start, stop))

    def value(self) -> np.ndarray:
        """All values.

        Raises:
            DataError: they can't be read.
        """
        return self._read(None)

    def verify(self) -> None:
        """Reads all values; HDF5 has no checksums unless the writer asked for some, and Keras does not.

        Raises:
            DataError: they can't be read.
        """
        if not self.shape:
            self.value()
            return
        row = max(1, int(np.prod(self.shape[1:], dtype=np.int64)) * 8)
        step = max(1, _CHUNK_BYTES // row)
        for start in range(0, self.shape[0], step):
            self.read(start, min(self.shape[0], start + step))

    def _read(self, rows: tuple[int, int] | None) -> np.ndarray:
        if self.dtype is None:
            raise DataError(f"{self.path}: {self.key}: NumPy has no type for its values, or they are in other files")
        where = f"{self.path}: {self.key}: it can't be read"
        with read_by_library(where), _opened(self.path, self.member) as file:
            values = hdf5.value(file, self.stored) if rows is None else hdf5.read(file, self.stored, *rows)
            expected = self.shape if rows is None else (rows[1] - rows[0], *self.shape[1:])
            if values.shape != expected:
                raise ValueError(f"found values of {list(values.shape)}, expected {list(expected)}")
            if values.dtype.kind == "V":
                return values.view(self.dtype)
            return values.astype(self.dtype, copy=False)  # in this machine's byte order


def contents(path: Path, *, zipped: bool) -> Contents:
    """Lists a file.

    Args:
        zipped: whether it is a zip with an HDF5 file in it, as `.keras` is, or an HDF5 file.

    Raises:
        DataError: it is neither, or it is damaged.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    member = _member(path) if zipped else None
    where = path if member is None else f"{path}: {member}"
    with read_by_library(f"{where}: found no whole HDF5 file"), _opened(path, member) as file:
        found = hdf5.datasets(file)
    if not found:
        raise DataError(f"{path}: found an HDF5 file without datasets, expected weights")
    keys = sorted(found, key=lambda key: groups_in_order(_group(key), key))
    listed = {key: _listed(path, member, found[key]) for key in keys}
    return Contents(path, path if member is None else path / member, StoredKind.KERAS, listed, checksums=False)


def _listed(path: Path, member: str | None, dataset: hdf5.Dataset) -> Stored:
    dtype, name = _type(dataset)
    shape = dataset.shape or ()
    size = dataset.stored if name == "string" else math.prod(shape) * np.dtype(dataset.dtype).itemsize
    variable = None if dataset.layer is None else f"{dataset.layer}/{dataset.name.rpartition('/')[2]}"
    info = KeyInfo(key=dataset.name, shape=shape, dtype=name, bytes=size, variable=variable, group=_group(dataset.name))
    return Stored(info, Dataset(path, member, dataset.name, shape, dtype, dataset))


@contextlib.contextmanager
def _opened(path: Path, member: str | None) -> Iterator[File]:
    """An HDF5 file, or one that is a member of a zip: where it is while the block runs."""
    if member is None:
        yield File(path)
        return
    with files.opened(path) as opened, zipfile.ZipFile(opened) as archive:
        info = archive.getinfo(member)
        if info.flag_bits & _ENCRYPTED:
            raise ValueError("it is encrypted")
        if info.compress_type != zipfile.ZIP_STORED:
            with tempfile.NamedTemporaryFile(prefix="embexp-", suffix=".h5") as unpacked:
                if info.file_size > min(_LARGEST_PACKED, _MOST_PACKED * path.stat().st_size):
                    raise ValueError(
                        f"it is compressed, and has {info.file_size:,} bytes; Keras does not compress it: unpack the"
                        " file, and zip it with `zip -0`"
                    )
                with archive.open(info) as packed:
                    shutil.copyfileobj(packed, unpacked, _CHUNK_BYTES)
                unpacked.flush()
                yield File(Path(unpacked.name))
            return
        opened.seek(info.header_offset)
        header = opened.read(_LOCAL_HEADER)
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    start = info.header_offset + _LOCAL_HEADER + name + extra
    if start + info.file_size > path.stat().st_size:
        raise ValueError("the file is cut short")
    yield File(path, (start, info.file_size))


def _member(path: Path) -> str:
    with read_by_library(f"{path}: found no whole zip"), zipfile.ZipFile(path) as archive:
        found = [name for name in archive.namelist() if name.endswith(".weights.h5")]
    if len(found) != 1:
        raise DataError(f"{path}: found {len(found)} files *.weights.h5 in the zip, expected one, as a .keras file has")
    return found[0]


def _type(dataset: hdf5.Dataset) -> tuple[np.dtype | None, str]:
    """NumPy's type of a dataset's values, None where they can't be read, and its name."""
    dtype = np.dtype(dataset.dtype)
    if dataset.strings:
        # Strings of any length may all be one and the same place in the file, so only few are read.
        few = dataset.strings == "fixed" or math.prod(dataset.shape or ()) <= _MOST_STRINGS
        return (np.dtype(object) if few and not dataset.elsewhere else None), "string"
    if dataset.note == "bfloat16" and dtype.itemsize == 2:  # HDF5 has no such type, so Keras stores two bytes
        name, found = "bfloat16", np.dtype(ml_dtypes.bfloat16)
    else:
        name, found = dataset.type_name, dtype.newbyteorder("=")
    known = dataset.shape is not None and not dataset.elsewhere and (dtype.kind in "biufc" or name == "bfloat16")
    return (found if known else None), name


def _group(key: str) -> str:
    name = group_of_name(key).name
    # Keras keeps an object's variables in a group `vars`: those of layers, and of the optimizer.
    return DENSE if "vars" in key.split("/") and name != OPTIMIZER else name
