"""Contents of Keras' `.weights.h5` and `.keras` files, and of other HDF5 files."""

from __future__ import annotations

import contextlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np

from embexp.checkpoints import groups
from embexp.checkpoints.contents import Contents, KeyInfo, Stored, StoredKind
from embexp.errors import DataError

_CHUNK_BYTES = 1 << 24
_DAMAGED = (OSError, RuntimeError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)
"""What h5py and zipfile raise about damaged files."""
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
            dataset = found[key]
            dtype, name = _type(dataset)
            listed[key] = Stored(
                KeyInfo(
                    key=key,
                    shape=tuple(dataset.shape or ()),
                    dtype=name,
                    bytes=dataset.id.get_storage_size() if name == "string" else dataset.nbytes,
                    variable=_variable(dataset),
                    group=_group(key),
                ),
                Dataset(path, member, key, tuple(dataset.shape or ()), dtype),
            )
    if not listed:
        raise DataError(f"{path}: found an HDF5 file without datasets, expected weights")
    return Contents(path, path if member is None else path / member, StoredKind.KERAS, listed, checksums=False)


@contextlib.contextmanager
def opened_file(path: Path, member: str | None) -> Iterator[h5py.File]:
    """Opens an HDF5 file, or one that is a member of a zip. The block reads from it and does nothing else.

    Raises:
        DataError: it is none, or it is damaged, where that is noticed in the block too.
    """
    try:
        with contextlib.ExitStack() as stack:
            source = path if member is None else stack.enter_context(_opened_member(path, member))
            yield stack.enter_context(h5py.File(source, "r"))
    except _DAMAGED as error:
        where = path if member is None else f"{path}: {member}"
        raise DataError(f"{where}: found no whole HDF5 file: {error}") from None


class _Section(io.RawIOBase):
    """Part of a file, as a file."""

    def __init__(self, path: Path, offset: int, size: int) -> None:
        self._file, self._offset, self._size, self._at = path.open("rb"), offset, size, 0

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
        if info.compress_type != zipfile.ZIP_STORED:
            yield io.BytesIO(archive.read(member))
            return
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    with contextlib.closing(_Section(path, info.header_offset + _LOCAL_HEADER + name + extra, info.file_size)) as part:
        yield part


def _member(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            found = [name for name in archive.namelist() if name.endswith(".weights.h5")]
    except _DAMAGED as error:
        raise DataError(f"{path}: found no whole zip: {error}") from None
    if len(found) != 1:
        raise DataError(f"{path}: found {len(found)} files *.weights.h5 in the zip, expected one, as a .keras file has")
    return found[0]


def _type(dataset: h5py.Dataset) -> tuple[np.dtype | None, str]:
    """NumPy's type of a dataset's values, and its name."""
    if h5py.check_string_dtype(dataset.dtype) is not None:
        return np.dtype(object), "string"
    if dataset.attrs.get("dtype") == "bfloat16":  # HDF5 has no such type, so Keras stores two bytes
        return np.dtype(ml_dtypes.bfloat16), "bfloat16"
    if dataset.shape is None or dataset.external or dataset.is_virtual or dataset.dtype.kind not in "biufc":
        return None, str(dataset.dtype)
    return dataset.dtype.newbyteorder("="), dataset.dtype.name


def _group(key: str) -> str:
    name = groups.of_name(key).name
    # Keras keeps an object's variables in a group `vars`: those of layers, and of the optimizer.
    return groups.DENSE if "vars" in key.split("/") and name != groups.OPTIMIZER else name


def _variable(dataset: h5py.Dataset) -> str | None:
    """Keras notes the name of a layer beside its weights, which are numbered."""
    name = dataset.parent.attrs.get("name")
    return f"{name}/{dataset.name.rpartition('/')[2]}" if isinstance(name, str) else None
