"""Contents of Keras' `.weights.h5` and `.keras` files, and of other HDF5 files."""

from __future__ import annotations

import contextlib
import io
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np

from embexp.checkpoints import groups
from embexp.checkpoints.contents import Contents, KeyInfo, Stored, StoredKind
from embexp.errors import DataError, read_by_library
from embexp.system import hdf5, regular

_CHUNK_BYTES = 1 << 24
_LARGEST_PACKED = 1 << 27
"""Bytes that a compressed file of weights may have: it is unpacked in memory, as HDF5 reads from any place."""
_MOST_STRINGS = 64
_LOCAL_HEADER = 30
"""Bytes of a zip's header of a file, before the file's name: section 4.3.7 of PKWARE's APPNOTE."""


@dataclass(frozen=True)
class Dataset:
    """A dataset of an HDF5 file.

    Attributes:
        path: of the file.
        member: of the zip that the file is; None: it is HDF5 itself.
        key: path of the dataset in it.
        shape: of the dataset.
        dtype: NumPy's; `object` for strings; None: it can't be read.
    """

    path: Path
    member: str | None
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype | None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in memory of their own.

        Raises:
            DataError: there are no such rows, or they can't be read.
        """
        if not self.shape:
            raise DataError(f"{self.path}: {self.key}: it is a scalar and has no rows")
        if not 0 <= start <= stop <= self.shape[0]:
            raise DataError(
                f"{self.path}: {self.key}: there are no rows {start:,} to {stop:,}, it has {self.shape[0]:,}"
            )
        return self._read(slice(start, stop))

    def value(self) -> np.ndarray:
        """All values.

        Raises:
            DataError: they can't be read.
        """
        return self._read(())

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

    def _read(self, rows: slice | tuple[()]) -> np.ndarray:
        if self.dtype is None:
            raise DataError(f"{self.path}: {self.key}: NumPy has no type for its values")
        with opened_file(self.path, self.member) as file:
            if fault := hdf5.fault_of(file[self.key]):
                raise DataError(f"{self.path}: {self.key}: {fault}")
            values = np.asarray(file[self.key][rows])
        if values.dtype.kind == "V":
            return values.view(self.dtype)
        return values.astype(self.dtype, copy=False)  # in this machine's byte order


def contents(path: Path, *, zipped: bool) -> Contents:
    """Lists a file.

    Args:
        path: of the file.
        zipped: whether it is a zip with an HDF5 file in it, as `.keras` is, or an HDF5 file.

    Raises:
        DataError: it is neither, or it is damaged.
    """
    member = _member(path) if zipped else None
    found: dict[str, h5py.Dataset] = {}
    listed: dict[str, Stored] = {}
    with opened_file(path, member) as file:
        # Links that lead to other files are not followed.
        file.visititems(lambda name, item: found.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        for key in sorted(found, key=lambda key: groups.in_order(_group(key), key)):
            listed[key] = _listed(path, member, key, found[key])
    if not listed:
        raise DataError(f"{path}: found an HDF5 file without datasets, expected weights")
    return Contents(path, path if member is None else path / member, StoredKind.KERAS, listed, checksums=False)


def _listed(path: Path, member: str | None, key: str, dataset: h5py.Dataset) -> Stored:
    dtype, name = _type(dataset)
    shape = () if hdf5.elsewhere(dataset) else tuple(dataset.shape or ())  # that of a virtual one is in other files
    size = dataset.id.get_storage_size() if name == "string" else math.prod(shape) * dataset.dtype.itemsize
    info = KeyInfo(key=key, shape=shape, dtype=name, bytes=size, variable=_variable(dataset), group=_group(key))
    return Stored(info, Dataset(path, member, key, shape, dtype))


@contextlib.contextmanager
def opened_file(path: Path, member: str | None) -> Iterator[h5py.File]:
    """Opens an HDF5 file, or one that is a member of a zip. The block reads from it and does nothing else.

    Raises:
        DataError: it is none, or it is damaged, where that is noticed in the block too.
    """
    where = path if member is None else f"{path}: {member}"
    if fault := regular.fault_of(path):
        raise DataError(f"{path}: {fault}")
    with read_by_library(f"{where}: found no whole HDF5 file"), contextlib.ExitStack() as stack:
        source = path if member is None else stack.enter_context(_opened_member(path, member))
        yield stack.enter_context(h5py.File(source, "r"))


class _Section(io.RawIOBase):
    """Part of a file, as a file."""

    def __init__(self, path: Path, offset: int, size: int) -> None:
        self._file, self._offset, self._size, self._at = regular.opened(path), offset, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._file.seek(self._offset + self._at)
        count = self._file.readinto(memoryview(buffer)[: max(0, self._size - self._at)])
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@contextlib.contextmanager
def _opened_member(path: Path, member: str) -> Iterator[io.RawIOBase | io.BytesIO]:
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
        if info.flag_bits & 1:
            raise DataError(f"{path}: {member}: it is encrypted")
        if info.compress_type != zipfile.ZIP_STORED:
            if info.file_size > _LARGEST_PACKED:
                raise DataError(
                    f"{path}: {member}: found {info.file_size:,} bytes, compressed, expected at most"
                    f" {_LARGEST_PACKED:,}; Keras does not compress them: unpack it, and zip it with `zip -0`"
                )
            yield io.BytesIO(archive.read(member))
            return
    with regular.opened(path) as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    start = info.header_offset + _LOCAL_HEADER + name + extra
    if start + info.file_size > path.stat().st_size:
        raise DataError(f"{path}: {member}: found fewer than its {info.file_size:,} bytes: the file is cut short")
    with contextlib.closing(_Section(path, start, info.file_size)) as part:
        yield part


def _member(path: Path) -> str:
    with read_by_library(f"{path}: found no whole zip"), zipfile.ZipFile(path) as archive:
        found = [name for name in archive.namelist() if name.endswith(".weights.h5")]
    if len(found) != 1:
        raise DataError(f"{path}: found {len(found)} files *.weights.h5 in the zip, expected one, as a .keras file has")
    return found[0]


def _type(dataset: h5py.Dataset) -> tuple[np.dtype | None, str]:
    """NumPy's type of a dataset's values, and its name."""
    if hdf5.elsewhere(dataset) or dataset.shape is None:
        return None, str(dataset.dtype)
    if (kind := h5py.check_string_dtype(dataset.dtype)) is not None:
        # Strings of any length may all be one and the same place in the file, so only few are read.
        few = kind.length is not None or dataset.size <= _MOST_STRINGS
        return (np.dtype(object) if few else None), "string"
    if dataset.dtype.itemsize == 2 and _text(dataset, "dtype") == "bfloat16":  # HDF5 has no such type: two bytes
        return np.dtype(ml_dtypes.bfloat16), "bfloat16"
    if dataset.dtype.kind not in "biufc":
        return None, str(dataset.dtype)
    return dataset.dtype.newbyteorder("="), dataset.dtype.name


def _group(key: str) -> str:
    name = groups.of_name(key).name
    # Keras keeps an object's variables in a group `vars`: those of layers, and of the optimizer.
    return groups.DENSE if "vars" in key.split("/") and name != groups.OPTIMIZER else name


def _variable(dataset: h5py.Dataset) -> str | None:
    """Keras notes the name of a layer beside its weights, which are numbered."""
    name = _text(dataset.parent, "name")
    return f"{name}/{dataset.name.rpartition('/')[2]}" if name is not None else None


def _text(item: h5py.Dataset | h5py.Group, attribute: str) -> str | None:
    """An attribute that is one string; None: there is none, or it is something else, which is not read."""
    name = attribute.encode()
    if not h5py.h5a.exists(item.id, name):
        return None
    found = h5py.h5a.open(item.id, name)
    if found.shape != () or h5py.check_string_dtype(found.dtype) is None:
        return None
    value = item.attrs[attribute]
    return value if isinstance(value, str) else None
