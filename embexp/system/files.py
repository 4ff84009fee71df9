"""Writing files whole or not at all, and making new directories."""

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
        os.chmod(name, _mode(0o666))  # mkstemp's 0600 would hide the file from the user's group
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, whole or not at all."""
    with written_whole(path) as file:
        file.write(text.encode("utf-8"))


def write_new_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8 to a new file, whole or not at all; of several processes, one.

    Raises:
        FileExistsError: there is something of that name.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        write_text(temporary := Path(folder) / path.name, text)
        os.link(temporary, path)  # unlike a rename, it never replaces


@contextlib.contextmanager
def directory_written_whole(path: Path, *, prefix: str | None = None) -> Iterator[Path]:
    """Makes a temporary directory beside `path`; it becomes `path` when the block ends without an error.

    All files are on disk (fsync) before the rename, and the rename is when the block is left.

    Args:
        path: the directory to make.
        prefix: how the name of the temporary one begins; None: a dot and the name of `path`.

    Raises:
        FileExistsError: there is something of that name, or there is by the end of the block.
    """
    if path.exists():
        raise FileExistsError(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = _mode(0o777)  # now, as the block may be left by another thread, and a process has one umask
    suffix = ".part" if prefix is None else None
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=prefix or f".{path.name}.", suffix=suffix))
    try:
        yield temporary
        for each in sorted(temporary.rglob("*")):  # a rename may reach the disk before what was written to files does
            to_disk(each)
        to_disk(temporary)
        temporary.chmod(mode)  # mkdtemp's 0700 would hide the directory from the user's group
        try:
            if path.exists():  # a rename would replace an empty directory
                raise FileExistsError(path)
            temporary.rename(path)
        except OSError as error:
            if path.exists():
                raise FileExistsError(path) from error
            raise
        to_disk(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def free_bytes(directory: Path) -> int:
    """Bytes that can still be written to a directory, which is made if it is missing.

    Raises:
        OSError: it can't be written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".probe."):
        return shutil.disk_usage(directory).free


def to_disk(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mode(bits: int) -> int:
    """The permissions that a file or directory gets by the user's umask."""
    umask = os.umask(0)
    os.umask(umask)
    return bits & ~umask


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
