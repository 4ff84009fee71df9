"""Writing files whole or not at all, and making directories that nobody else has."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path` for writing; it becomes `path` when the block ends without an error.

    The data is on disk (fsync) before the rename, so a reader finds the old file or the whole new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp's 0600 would hide the file from the user's group
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, whole or not at all."""
    with written_whole(path) as file:
        file.write(text.encode("utf-8"))


@contextlib.contextmanager
def directory_written_whole(path: Path) -> Iterator[Path]:
    """Makes a temporary directory beside `path`; it becomes `path` when the block ends without an error.

    Raises:
        FileExistsError: there is something of that name.
    """
    if path.exists():
        raise FileExistsError(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield temporary
        for each in sorted(temporary.rglob("*")):
            if each.is_file():  # a rename may reach the disk before what was written to the files does
                with each.open("rb") as file:
                    os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)  # mkdtemp's 0700 would hide the directory from the user's group
        if path.exists():
            raise FileExistsError(path)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def new_directory(path: Path) -> Path:
    """Creates `path`, or `path` with `_2`, `_3`, … behind it where that exists, and returns it.

    mkdir is exclusive, so two processes that ask for the same path at once get two directories.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        candidate = path if number == 1 else path.with_name(f"{path.name}_{number}")
        try:
            candidate.mkdir()
        except FileExistsError:
            number += 1
        else:
            return candidate
