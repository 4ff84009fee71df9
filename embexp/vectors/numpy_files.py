"""Vectors in NumPy's own files, `.npy` and `.npz`. Pickled objects are never read."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from embexp.errors import DataError, read_by_library
from embexp.system import npy, regular
from embexp.system.progress import Progress, quiet
from embexp.vectors.stored import Place, Stored, checked_shape, only_key

_CHUNK_BYTES = 1 << 20
_PICKLED = "found pickled Python objects, which are never read, expected numbers"


def read_npy(path: Path, *, name: str | None = None) -> Stored:
    """A `.npy` file, mapped.

    Args:
        path: of the file.
        name: how errors about it begin; None: its path.

    Raises:
        DataError: it is no such file, is cut short, or holds no matrix of floating-point numbers.
    """
    name = name or str(path)
    try:
        matrix, header = npy.mapped(path)
    except npy.PickledError:
        raise DataError(f"{name}: {_PICKLED}") from None
    except ValueError as error:
        raise DataError(f"{name}: found no .npy file: {error}") from None
    rows, dim = checked_shape(name, header.shape, header.dtype)
    mappable = header.dtype == np.dtype("<f4") and matrix.flags.c_contiguous
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=header.dtype,
        read=lambda start, stop: matrix[start:stop],
        files=[path],
        place=Place(path, header.offset) if mappable else None,
    )


def npz_key(path: Path, key: str | None) -> str:
    """The name of the array to read from a `.npz` file.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    with (
        read_by_library(f"{path}: found no whole .npz file"),
        regular.opened(path) as opened,
        zipfile.ZipFile(opened) as archive,
    ):
        for member in archive.infolist():
            with archive.open(member) as file:
                shapes[member.filename.removesuffix(".npy")] = _header(path, file).shape
    return only_key(path, shapes, key, "array")


def extract(path: Path, key: str, folder: Path, progress: Progress = quiet) -> None:
    """Puts one array of a `.npz` file into a folder of the cache, as `.npy`.

    Args:
        path: of the file.
        key: of the array.
        folder: of the cache.
        progress: called as unpacking goes on.

    Raises:
        DataError: the archive is broken, holds more or less of the array than its header says, or has no room there.
    """
    name, member = f"{path}: {key}", f"{key}.npy"
    with (
        read_by_library(f"{name}: found no whole array"),
        regular.opened(path) as opened,
        zipfile.ZipFile(opened) as archive,
        archive.open(member) as file,
    ):
        header, size = _header(path, file), archive.getinfo(member).file_size
    checked_shape(name, header.shape, header.dtype)
    if size != header.size:  # before it is unpacked: a megabyte of a zip may become a gigabyte
        raise DataError(f"{name}: found {size:,} bytes in the archive, expected {header.size:,}, by its header")
    if size > (free := shutil.disk_usage(folder).free):  # not when gigabytes are written
        raise DataError(
            f"{name}: found {size:,} bytes when unpacked, and the disk of the cache has {free:,} left: make room in"
            f" {folder.parent}, or name another output.cache"
        )
    done = 0
    with (folder / "array.npy").open("wb") as written:
        for chunk in _unpacked(path, member, f"{name}: found no whole array"):
            written.write(chunk)
            done += len(chunk)
            progress(f"unpacking {path.name}", done / size)
    read_npy(folder / "array.npy", name=name)


def _header(path: Path, file: IO[bytes]) -> npy.Header:
    try:
        return npy.read_header(file)
    except npy.PickledError:
        raise DataError(f"{path}: {_PICKLED}") from None


def _unpacked(path: Path, member: str, where: str) -> Iterator[bytes]:
    """The bytes of a file in a zip archive."""
    with (
        read_by_library(where),
        regular.opened(path) as opened,
        zipfile.ZipFile(opened) as archive,
        archive.open(member) as file,
    ):
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def read_extracted(path: Path, key: str, folder: Path) -> Stored:
    """The array that `extract` put into a folder."""
    return replace(read_npy(folder / "array.npy", name=f"{path}: {key}"), files=[path])
