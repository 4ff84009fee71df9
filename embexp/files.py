"""Writing files whole or not at all, and making directories that nobody else has."""

from __future__ import annotations

import contextlib
import os
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
