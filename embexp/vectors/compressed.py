"""Files read from their beginning to their end: plain, gzip, or one file of a zip archive."""

from __future__ import annotations

import contextlib
import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from embexp.errors import DataError, read_by_library
from embexp.system import regular
from embexp.system.progress import Progress, quiet

SUFFIXES = (".gz", ".zip")
_PIECE_BYTES = 1 << 20


class Stream:
    """Bytes of a file, in order.

    Attributes:
        name: of the file, and of the one in the archive: how errors begin.
    """

    def __init__(self, name: str, data: IO[bytes], file: IO[bytes], size: int, progress: Progress) -> None:
        self.name = name
        self._data, self._file, self._size, self._progress = data, file, size, progress
        self._given = 0

    def read(self, count: int) -> bytes:
        """The next bytes: as many as asked for, fewer only at the end.

        Raises:
            DataError: the compressed data ends too early or is broken.
        """
        pieces, missing = [], count
        while missing:
            try:
                piece = self._data.read(min(missing, _PIECE_BYTES))  # takes memory for what is asked for
            except EOFError:
                raise DataError(
                    f"{self.name}: found the end of the file after {self._given:,} bytes of text, "
                    f"expected more compressed data: the file is cut short"
                ) from None
            except Exception as error:  # each compression of a zip has errors of its own
                raise DataError(
                    f"{self.name}: found broken compressed data after {self._given:,} bytes ({error}), "
                    f"expected a whole file"
                ) from None
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
            self._given += len(piece)
        self._progress(f"parsing {Path(self.name).name}", min(1.0, self._file.tell() / max(1, self._size)))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextlib.contextmanager
def open_stream(path: Path, key: str | None, progress: Progress = quiet) -> Iterator[Stream]:
    """Opens a file, decompressed by its suffix.

    Args:
        path: of the file.
        key: which file of a zip archive; None: the only one.
        progress: called as reading goes on.

    Raises:
        DataError: an archive that can't be read, or that doesn't hold the one file.
    """
    size = path.stat().st_size
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(regular.opened(path))
        match path.suffix.lower():
            case ".gz":
                packed = stack.enter_context(gzip.GzipFile(fileobj=file))
                yield Stream(str(path), packed, file, size, progress)  # type: ignore[arg-type]
            case ".zip":
                member = member_of(path, key)
                with read_by_library(f"{path}: {member}"):
                    archive = stack.enter_context(zipfile.ZipFile(file))
                    data = stack.enter_context(archive.open(member))
                yield Stream(f"{path}: {member}", data, file, size, progress)
            case _:
                yield Stream(str(path), file, file, size, progress)


def member_of(path: Path, key: str | None) -> str:
    """The name of the file to read in a zip archive.

    Raises:
        DataError: the archive can't be read, has no file of that name, or several and no name was given.
    """
    with (
        read_by_library(f"{path}: found no whole zip archive, is it cut short?"),
        regular.opened(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        names = [each.filename for each in archive.infolist() if not each.is_dir()]
    names = [name for name in names if not name.startswith("__MACOSX/")]
    if key is not None:
        if key in names:
            return key
        raise DataError(f"{path}: found no file {key!r}; the files in it are {', '.join(names) or 'none'}")
    if len(names) != 1:
        raise DataError(
            f"{path}: found {len(names)} files in the archive, expected a key that says which: {', '.join(names)}"
        )
    return names[0]
