"""Vectors in NumPy's own files, `.npy` and `.npz`. Pickled objects are never read."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from embexp.errors import DataError
from embexp.vectors.stored import Place, Stored, checked_shape, only_key


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
        matrix = npy.open_memmap(path, mode="r")
    except ValueError as error:
        if "Python objects" in str(error):
            raise DataError(f"{name}: found pickled Python objects, which are never read, expected numbers") from None
        if "greater than file size" in str(error):
            found = f"{path.stat().st_size:,} bytes"
            raise DataError(f"{name}: found {found}, expected more, by its header: the file is cut short") from None
        raise DataError(f"{name}: found no .npy file: {error}") from None
    rows, dim = checked_shape(name, matrix.shape, matrix.dtype)
    mappable = matrix.dtype == np.dtype("<f4") and matrix.flags.c_contiguous
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=matrix.dtype,
        read=lambda start, stop: matrix[start:stop],
        files=[path],
        place=Place(path, int(matrix.offset)) if mappable else None,
    )


def npz_key(path: Path, key: str | None) -> str:
    """The name of the array to read from a `.npz` file.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    shapes[member.removesuffix(".npy")] = _shape(file)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise DataError(f"{path}: found no whole .npz file: {error}") from None
    return only_key(path, shapes, key, "array")


def extract(path: Path, key: str, folder: Path) -> None:
    """Puts one array of a `.npz` file into a folder of the cache, as `.npy`.

    Raises:
        DataError: the archive is broken.
    """
    try:
        with (
            zipfile.ZipFile(path) as archive,
            archive.open(f"{key}.npy") as member,
            (folder / "array.npy").open("wb") as file,
        ):
            shutil.copyfileobj(member, file, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{path}: {key}: found no whole array: {error}") from None
    read_npy(folder / "array.npy", name=f"{path}: {key}")


def read_extracted(path: Path, key: str, folder: Path) -> Stored:
    """The array that `extract` put into a folder."""
    return replace(read_npy(folder / "array.npy", name=f"{path}: {key}"), files=[path])


def _shape(file: IO[bytes]) -> tuple[int, ...]:
    version = npy.read_magic(file)
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return tuple(header(file)[0])
