"""Lines of text files, decompressed while they are read, none longer than memory should hold. Standard library only."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, AnyStr, cast

from embexp.errors import DataError
from embexp.system import files

LONGEST = 1 << 23
"""Bytes, or characters, that a line may have; as words it takes some twenty times as much memory."""
TOO_LONG = f"more than {LONGEST:,} bytes without a line end, expected a shorter line"
"""What is said about one that has more."""
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Those of compressed files; a zip archive holds one file."""
_SHOWN = 200


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends; of one that is compressed, see `opened`.

    Raises:
        DataError: it is no regular file, damaged, or a line is too long.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    with opened(path) as (file, _):
        for number, line in enumerate(bounded(file), 1):
            if len(line) > LONGEST:
                raise DataError(f"{path}, line {number}: found {TOO_LONG}")
            yield line


def bounded(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines of an open file; of a line that is too long, a beginning of more than `LONGEST`."""
    while line := file.readline(LONGEST + 1):
        yield line


def whole(path: Path) -> bytes:
    """The bytes of a file that is one text.

    Raises:
        DataError: it is no regular file, or too long.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    with files.opened(path) as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise DataError(f"{path}: found a text of more than {LONGEST:,} bytes, expected a shorter one")
    return content


def form_of(path: Path) -> str:
    """The suffix that tells the form of a file, in lower case, without that of its compression."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in SUFFIXES else suffix


def of_form(folder: Path, form: str) -> list[Path]:
    """The files of a folder that have a form, such as `.inter`, compressed or not, by name."""
    return sorted(file for file in folder.iterdir() if form_of(file) == form)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The bytes of a file, decompressed a piece at a time, and the file itself, whose place tells how far they are.

    Raises:
        DataError: an archive does not hold one file. Reading raises it where the compressed data is damaged.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(files.opened(path))
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            yield file, file
            return
        try:
            data = stack.enter_context(_decompressing(file, suffix))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        except Exception as error:  # each library has errors of its own
            raise _damaged(path, error) from None
        yield stack.enter_context(io.BufferedReader(_Checked(path, data), 1 << 18)), file


def _decompressing(file: IO[bytes], suffix: str) -> IO[bytes]:
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
            names = [each.filename for each in archive.infolist() if not each.is_dir()]
            names = [name for name in names if not name.startswith("__MACOSX/")]
            if len(names) != 1:
                raise DataError(f"found {len(names)} files in the archive, expected one")
            data = archive.open(names[0])
    return cast("IO[bytes]", data)


class _Checked(io.RawIOBase):
    """Bytes that are decompressed; what a library raises about damaged ones becomes a DataError."""

    def __init__(self, path: Path, data: IO[bytes]) -> None:
        self._path, self._bytes = path, data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self._bytes.read(len(buffer))
        except Exception as error:
            raise _damaged(self._path, error) from None
        buffer[: len(piece)] = piece
        return len(piece)


def _damaged(path: Path, error: Exception) -> DataError:
    said = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
    return DataError(f"{path}: found damaged data, expected a file compressed as {path.suffix[1:]}: {said}")
