"""Files written whole or not at all and brought to disk, also while the program goes on; regular files opened.

Regular files, told from everything else that a path may lead to before anything is read. To read a FIFO waits for a
writer, to read a device may never end. So files that users name are opened here, or are looked at here before a library
opens them by their path.

Databases and folders that are somebody else's: what would write its own tables or files there looks first.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from embexp.system import locks, printable

UNFINISHED, REMOVED = ".part", ".gone"
"""How the names of what is being written, or removed, end; they begin with a dot."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Gives a system's error inside the block the path that it lacks: a write that fails tells none.

    Args:
        temporary: the name that it has meanwhile, which tells a user nothing.
    """
    try:
        yield
    except OSError as error:
        found = error.filename
        if error.errno is not None:
            if found is None:
                error.filename = os.fspath(path)
            elif temporary is not None and os.fsdecode(found).startswith(os.fspath(temporary)):
                error.filename = os.fspath(path) + os.fsdecode(found).removeprefix(os.fspath(temporary))
        raise


@contextlib.contextmanager
def atomic_write(path: Path, *, new: bool = False) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path` for writing; it becomes `path` when the block ends without an error.

    The data is on disk (fsync) before the rename, so a reader finds the old file or the whole new one; the new name is
    on disk when the block has ended, so that after a power cut no file is missing that later ones rely on. A file that
    is replaced leaves its permissions to the new one.

    Args:
        new: never replace a file; of several processes, one writes it.

    Raises:
        FileExistsError: with `new`, there is something of that name by the end of the block.
    """
    temporary = _beside(path)
    with naming(path, temporary):
        make_directories(path.parent)
        try:  # the name is known before there is such a file, so none stays behind, whenever a signal comes
            with temporary.open("xb") as file:
                with contextlib.suppress(OSError):  # there is none, or it belongs to somebody else
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            if new:
                _named(temporary, path)
            else:
                os.replace(temporary, path)
            to_disk(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _named(temporary: Path, path: Path) -> None:
    """Gives a file its name, if nothing has that name."""
    try:
        os.link(temporary, path)  # unlike a rename, it never replaces
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, such as FAT
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path)) from None
        os.replace(temporary, path)
    else:
        temporary.unlink()


def write_text(path: Path, text: str, *, new: bool = False) -> None:
    """Writes `text` as UTF-8, whole or not at all; takes and raises what `atomic_write` does."""
    with atomic_write(path, new=new) as file:
        file.write(text.encode("utf-8"))


@contextlib.contextmanager
def atomic_directory(path: Path, *, prefix: str | None = None) -> Iterator[Path]:
    """Makes a temporary directory beside `path`; it becomes `path` when the block ends without an error.

    All files are on disk (fsync) before the rename, and the rename is when the block is left.

    Args:
        prefix: how the name of the temporary one begins; None: a dot and the name of `path`.

    Raises:
        FileExistsError: there is something of that name, or there is by the end of the block.
    """
    if path.exists():
        raise FileExistsError(path)
    temporary = _beside(path, prefix)
    with naming(path, temporary):
        make_directories(path.parent)
        try:
            temporary.mkdir()
            yield temporary
            for each in sorted(temporary.rglob("*")):  # a rename may reach the disk before what was written does
                to_disk(each)
            to_disk(temporary)
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


def remove_leftovers(directory: Path) -> None:
    """Removes what a killed process was writing or removing in a directory that nobody else writes now.

    Folders in it that have a lock of their own, such as the runs of a study, are left to those who hold it.
    """
    for folder, folders, names in os.walk(directory):
        found = [name for name in folders if is_leftover(name)]
        for name in found:
            shutil.rmtree(Path(folder, name), ignore_errors=True)
        for name in filter(is_leftover, names):
            with contextlib.suppress(OSError):
                Path(folder, name).unlink()
        folders[:] = [name for name in folders if name not in found and not Path(folder, name, locks.NAME).exists()]


def is_leftover(name: str) -> bool:
    """Whether a file or folder of that name was being written or removed by a process that was killed."""
    return name.startswith(".") and name.endswith((UNFINISHED, REMOVED))


def identity(status: os.stat_result) -> tuple[int, int]:
    """What all names of a file have in common: its device and inode."""
    return status.st_dev, status.st_ino


def free_bytes(directory: Path) -> int:
    """Bytes that can still be written to a directory, which is made if it is missing.

    Raises:
        OSError: it can't be written to.
    """
    make_directories(directory)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".probe.", suffix=UNFINISHED):
        return shutil.disk_usage(directory).free


def allocate(path: Path) -> None:
    """Takes the room of a file that is written by mapping it: a full disk shows now, and would end the process later.

    Raises:
        OSError: there is no room for it.
    """
    if hasattr(os, "posix_fallocate"):
        with naming(path), path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def to_disk(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on disk, where the file system can do that."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # it may be written, and not listed
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():  # as FUSE and SMB refuse directories
            raise
    finally:
        os.close(handle)


def _beside(path: Path, prefix: str | None = None) -> Path:
    """A name that nothing has beside `path`, for what is not whole yet."""
    token = secrets.token_hex(4)
    return path.with_name(f".{path.name}.{token}{UNFINISHED}" if prefix is None else f"{prefix}{token}")


def made_directory(path: Path) -> bool:
    """Makes a directory, and those above it; returns False if there is something of that name."""
    make_directories(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        return False
    to_disk(path.parent)
    return True


def new_directory(path: Path) -> Path:
    """Creates `path`, or `path` with `_2`, `_3`, … behind it where that exists, and returns it.

    mkdir is exclusive, so two processes that ask for the same path at once get two directories.
    """
    return next(filter(made_directory, _numbered(path)))


def free_directory(path: Path) -> Path:
    """The path that `new_directory` would create now."""
    return next(each for each in _numbered(path) if not os.path.lexists(each))


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    yield from (path.with_name(f"{path.name}_{number}") for number in itertools.count(2))


def make_directories(path: Path) -> None:
    """Makes a directory and those above it, as far as they are missing; their names are on disk when it returns."""
    if not path.is_dir():
        make_directories(path.parent)
        path.mkdir(exist_ok=True)  # an error, where there is a file with that name
        to_disk(path.parent)


class BackgroundDirectories:
    """Directories that are written whole or not at all, of which a thread waits for the disk.

    Writing a file leaves its content in memory that belongs to the system, and the disk is slower: it takes most of the
    time. The files of a directory are written at once, so they hold the state of one moment; a thread then waits until
    they are on disk and gives the directory its name. There is one such directory at a time.
    """

    def __init__(self) -> None:
        """Starts no thread yet."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="to-disk")
        self._pending: Future[None] | None = None

    @contextlib.contextmanager
    def written_whole(self, path: Path, on_disk: Callable[[], object] = lambda: None) -> Iterator[Path]:
        """Makes a temporary directory beside `path`, which becomes `path` some time after the end of the block.

        Waits for the directory before. If the block ends with an error, there is no `path`.

        Args:
            on_disk: called in the thread when `path` is there and on disk.

        Raises:
            FileExistsError: there is something of that name.
            Exception: what went wrong with the directory before, or with its `on_disk`; nothing is written then.
        """
        self.wait()
        with contextlib.ExitStack() as stack:
            yield stack.enter_context(atomic_directory(path))
            rest = stack.pop_all()

        def finish() -> None:
            rest.close()
            on_disk()

        self._pending = self._thread.submit(finish)

    @property
    def busy(self) -> bool:
        """Whether the last directory is not yet on disk."""
        return self._pending is not None and not self._pending.done()

    def wait(self) -> None:
        """Waits until the last directory is on disk.

        Raises:
            Exception: what went wrong with it, or with its `on_disk`; it is raised once.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Waits like `wait`, and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()


class NotRegularError(OSError):
    """A path that leads to something else than a regular file."""


_OTHER_NAME = "its name is not valid UTF-8, which libraries need: rename it, or give the name of a link to it"


def fault_of(path: Path) -> str:
    """Why a path can't be read as a file, such as `found a folder, expected a file`; "" for a regular file."""
    try:
        return _fault(path.stat().st_mode) or ("" if printable.is_utf8(str(path)) else _OTHER_NAME)
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


_OF_A_CACHE = re.compile(r"[a-z-]+-[0-9a-f]{32}(\.lock)?|digests|outputs|datasets|fused_operations|\.making-.*")
_OF_RUNS = ("spec.json", "sweep.sqlite", ".hydra")
"""What each run or sweep has in its folder, which may be in the same one."""
_MARK = "meta.yaml"
"""What each experiment of MLflow has in its folder."""


def database(path: Path, tables: Collection[str]) -> str:
    """Why a SQLite file is somebody else's, without a full stop; "" if it is new, empty, or has these tables.

    One that can't be read now is left to the library, which waits or says why.
    """
    if not path.is_file() or not path.stat().st_size:
        return ""
    import sqlite3  # which few commands need
    from urllib.parse import quote

    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1)) as opened:
            found = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        return "there is a file that is not a database" if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB else ""
    missing = found and set(tables) - found
    return f"there is a database of something else, without table {min(missing)}" if missing else ""


def store(place: Path, *, is_folder: bool) -> str:
    """Why a database or a folder is no store of MLflow's, without a full stop; "" if it is new, empty, or is one."""
    if not is_folder:
        return database(place, ("experiments", "runs", "metrics"))
    if not place.is_dir():
        return "there is a file with that name" if place.exists() else ""
    entries = [each for each in place.iterdir() if each.name != ".trash"]
    return "" if not entries or any((each / _MARK).is_file() for each in entries) else _OTHER


def cache(folder: Path) -> str:
    """Why a folder is no cache of embexp's, without a full stop; "" if it is new, empty, or has something of one."""
    try:
        names = os.listdir(folder)  # no paths: there may be thousands
    except OSError:  # reported where it is written to
        return ""
    own = not names or any(map(_OF_A_CACHE.fullmatch, names))
    return "" if own or any((folder / each / file).exists() for each in names for file in _OF_RUNS) else _OTHER


_OTHER = "there is a folder with other content"
