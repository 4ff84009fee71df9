"""Compressed files, known by their suffix, decompressed while they are read. Standard library, but for zstd."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from embexp.errors import DataError, read_by_library
from embexp.system import files

SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")


def suffix_of(path: Path) -> str:
    """The suffix of a compressed file, in lower case; "" of any other file."""
    suffix = path.suffix.lower()
    return suffix if suffix in SUFFIXES else ""


def form_of(path: Path) -> str:
    """The suffix that tells the form of a file, in lower case, without that of its compression."""
    return Path(path.stem if suffix_of(path) else path).suffix.lower()


@contextlib.contextmanager
def opened(path: Path, member: str | None = None) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The bytes of a file, decompressed a piece at a time, and the file itself, whose place tells how far they are.

    Args:
        member: which file of a zip archive; None: the only one.

    Raises:
        DataError: an archive can't be read, or does not hold one file. Reading raises it where the compressed data is
            damaged.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(files.opened(path))
        suffix = suffix_of(path)
        if not suffix:
            yield file, file
            return
        where = f"{path}: found damaged data, expected a {suffix[1:]} file"
        with read_by_library(where):
            data = stack.enter_context(_decompressing(path, file, suffix, member))
        yield stack.enter_context(io.BufferedReader(_Checked(where, data), 1 << 18)), file


def members(archive: zipfile.ZipFile) -> list[str]:
    """The files of a zip archive, without what macOS adds."""
    names = [each.filename for each in archive.infolist() if not each.is_dir()]
    return [name for name in names if not name.startswith("__MACOSX/")]


def _decompressing(path: Path, file: IO[bytes], suffix: str, member: str | None) -> IO[bytes]:
    data: Any
    match suffix:
        case ".gz":
            data = gzip.GzipFile(fileobj=file)
        case ".bz2":
            data = bz2.open(file)  # noqa: SIM115 - `opened` closes it
        case ".xz":
            data = lzma.LZMAFile(file)  # noqa: SIM115
        case ".zst":
            import pyarrow as pa

            data = pa.CompressedInputStream(file, "zstd")
        case _:
            archive = zipfile.ZipFile(file)
            names = members(archive)
            if member is None and len(names) != 1:
                raise DataError(f"{path}: found {len(names)} files in the archive, expected one")
            data = archive.open(member or names[0])
    return cast("IO[bytes]", data)


class _Checked(io.RawIOBase):
    """Bytes that are decompressed; what a library raises about damaged ones becomes a DataError."""

    def __init__(self, where: str, data: IO[bytes]) -> None:
        self._where, self._data = where, data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with read_by_library(self._where):
            piece = self._data.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)
