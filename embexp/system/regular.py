"""Regular files, told from everything else that a path may lead to before anything is read.

To read a FIFO waits for a writer, to read a device may never end. So files that users name are opened here, or are
looked at here before a library opens them by their path.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotRegularError(OSError):
    """A path that leads to something else than a regular file."""


def fault_of(path: Path) -> str:
    """Why a path can't be read as a file, such as `found a folder, expected a file`; "" for a regular file."""
    try:
        return _fault(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
        return "there is no such file"
    except OSError as error:
        return f"the file can't be read: {error.strerror}"


def opened(path: Path) -> io.BufferedReader:
    """Opens a regular file for reading, without ever waiting for a writer at the other end.

    Raises:
        NotRegularError: it is a folder, a FIFO, a device or a socket.
        OSError: it can't be opened.
    """
    if fault := _fault(path.stat().st_mode):  # before it is opened: that alone may act on a device
        raise NotRegularError(f"{path}: {fault}")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if fault := _fault(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRegularError(f"{path}: {fault}")
    return os.fdopen(handle, "rb")


def _fault(mode: int) -> str:
    if stat.S_ISREG(mode):
        return ""
    return f"found {_KINDS.get(stat.S_IFMT(mode), 'something else')}, expected a file"
