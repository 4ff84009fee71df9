"""Locks on files, between processes: one that writes a folder, or several that read it.

The package `filelock` has no lock that is shared without a file being written (its ReadWriteLock is a SQLite database),
and none that says who holds it.

A lock is held by a process and released by the kernel (`flock`), so what a killed process leaves behind never has to be
judged by its number or its age. A network file system shows how far it can be trusted: NFS emulates `flock` by locks of
bytes, which other machines respect if the server and all mounts support locks (no `nolock` or `local_lock`). A file
system that refuses to lock is an error here, or a sentence for those who go on without.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import platform
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from embexp.errors import RunError

NAME = ".lock"
"""The lock of a folder, in the folder. It stays there, and is part of no inventory."""
_STEP = 0.05
_Key = tuple[int, int]
"""The device and number of a file."""


@dataclass
class _Held:
    """A lock of this process. It has one descriptor: over NFS, closing any descriptor of a file ends its locks.

    Attributes:
        exclusive: whether nobody else may hold it.
        thread: that took it.
        count: of the blocks in which it is held.
    """

    handle: int
    exclusive: bool
    thread: int
    count: int = 1


_held: dict[_Key | None, _Held] = {}
_guard = threading.Lock()


class FileLock:
    """A lock on a file, which one process holds exclusively, or several share.

    A thread that holds it may take it again, within: an inner block changes nothing.
    """

    def __init__(self, path: Path, what: str) -> None:
        """Takes nothing yet.

        Args:
            what: what the lock is for, for error messages: "the sweep in DIR".
        """
        self.path = path
        self._what = what

    @contextlib.contextmanager
    def exclusive(
        self, *, patience: float = 0.0, without_locks: Callable[[str], object] | None = None
    ) -> Iterator[None]:
        """Holds the lock alone within the block; its file is made if it is missing.

        Args:
            patience: seconds to wait for it: a process that was killed may need a moment to end.
            without_locks: called with a sentence where the file system has no locks; the block is run all the same.
                None: that is an error.

        Raises:
            RunError: another process holds it, or the file system has no locks.
            OSError: the file can't be opened.
        """
        key = None
        try:
            key = self._awaited(patience)
        except _NoLocksError as error:
            if without_locks is None:
                raise RunError(f"{error}; use a file system that has locks") from None
            without_locks(f"{error}; run one process at a time in {self.path.parent}")
        with _released(key):
            yield

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the lock together with others within the block. Nothing is written, so the folder may be read-only.

        Where there is no file, nobody has ever held the lock. A file system without locks is taken as it is.

        Raises:
            RunError: another process holds the lock alone.
            OSError: the file can't be opened.
        """
        key = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, _NoLocksError):
            key = self._taken(exclusive=False)
            if key is None:
                raise RunError(self._refusal())
        with _released(key):
            yield

    @contextlib.contextmanager
    def awaited(self, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Holds the lock alone within the block; waits for it, for work that one process does and the others then use.

        Where there can be no lock (a file system without them, a folder that can't be written), the block runs at once:
        what it does must be right then too, if done twice.

        Args:
            waiting: called once if another process has the lock.
        """
        key = None
        with contextlib.suppress(_NoLocksError, OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            key = self._awaited(math.inf, waiting)
        with _released(key):
            yield

    def writer(self) -> str:
        """Who holds the lock alone, such as "process 123 on a machine"; "" if nobody does.

        Raises:
            OSError: it can't be known: there is no file of the lock, or its file system has no locks.
        """
        with _guard:
            if (held := _held.get(_key(self.path))) is not None:
                return _this_process() if held.exclusive else ""
            with _no_link(self.path):
                handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _flock(handle, self.path, exclusive=False):
                    return ""
                return os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            except _NoLocksError as error:
                raise OSError(str(error)) from None
            finally:
                os.close(handle)

    def _awaited(self, patience: float, waiting: Callable[[], object] = lambda: None) -> _Key:
        """Takes the lock alone, as soon as it is free.

        Raises:
            RunError: another process holds it for longer than `patience`, in seconds.
            _NoLocksError, OSError: as `_taken`.
        """
        give_up, notified = time.monotonic() + patience, False
        while (key := self._taken(exclusive=True)) is None:
            if time.monotonic() >= give_up:
                raise RunError(self._refusal())
            if not notified:
                waiting()
                notified = True
            time.sleep(_STEP)
        return key

    def _taken(self, *, exclusive: bool) -> _Key | None:
        """Takes the lock if it is free, and returns its key in `_held`; None if it is not.

        Raises:
            _NoLocksError: the file system has none.
            OSError: the file can't be opened.
        """
        with _guard:
            while True:
                key = _key(self.path)
                if key is not None and (held := _held.get(key)) is not None:
                    if held.thread != threading.get_ident() if held.exclusive else exclusive:
                        return None
                    held.count += 1
                    return key
                flags = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
                with _no_link(self.path):
                    handle = os.open(self.path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
                with contextlib.ExitStack() as stack:
                    stack.callback(os.close, handle)
                    if not _flock(handle, self.path, exclusive=exclusive):
                        return None
                    key = _key(handle)
                    if key is None or key != _key(self.path):  # it was removed, or replaced, in the meantime
                        continue
                    stack.pop_all()
                if exclusive and _is_own(handle):
                    with contextlib.suppress(OSError):  # a full disk is no reason not to hold a lock
                        os.truncate(handle, 0)
                        os.pwrite(handle, f"{_this_process()}\n".encode(), 0)
                _held[key] = _Held(handle, exclusive, threading.get_ident())
                return key

    def _refusal(self) -> str:
        """Why the lock can't be taken, and what helps."""
        writer = ""
        with contextlib.suppress(OSError):
            with _guard:
                held = _held.get(_key(self.path))
            if held is not None and not held.exclusive:
                return f"{self._what} is being read by this process, so it can't be written now"
            writer = self.writer()
        remedy = "wait until that process ends, or stop it"
        if writer:
            return f"{self._what} is in use: {writer} holds {self.path}; {remedy}"
        return (
            f"{self._what} is being read by another process, which holds {self.path}; {remedy}"
            f" (`fuser {self.path}` prints its number)"
        )


def of_folder(folder: Path, what: str) -> FileLock:
    """The lock of a folder; see `FileLock`."""
    return FileLock(folder / NAME, what)


class _NoLocksError(Exception):
    """A file can't be locked, as its file system has no locks."""


def _flock(handle: int, path: Path, *, exclusive: bool) -> bool:
    """Locks a file unless it is locked by others, and returns whether it did.

    Raises:
        _NoLocksError: the file system has no locks.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):  # as some network file systems refuse a lock that is held
            return False
        raise _NoLocksError(f"{path} can't be locked: {error.strerror}") from None
    return True


@contextlib.contextmanager
def _released(key: _Key | None) -> Iterator[None]:
    """Releases a lock of this process at the end of the block, if it has one."""
    try:
        yield
    finally:
        with _guard:
            held = _held.get(key)  # none in a fork
            if held is not None:
                held.count -= 1
                if not held.count:
                    del _held[key]
                    if held.exclusive and _is_own(held.handle):
                        with contextlib.suppress(OSError):
                            os.truncate(held.handle, 0)  # whoever holds it next is another
                    os.close(held.handle)


@contextlib.contextmanager
def _no_link(path: Path) -> Iterator[None]:
    """Opens a lock inside the block; a link, which a folder from elsewhere may have in its place, is refused.

    Raises:
        RunError: it is a link.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RunError(f"{path} is a link, but a lock must be a file in its own folder: remove the link") from None


def _is_own(handle: int) -> bool:
    """Whether a lock has nothing but the name of a process, and no other name: what is in it may be replaced."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return False
    return re.fullmatch(rb"(process \d+ on [^\n]*\n)?", os.pread(handle, status.st_size, 0)) is not None


def _this_process() -> str:
    return f"process {os.getpid()} on {platform.node()}"


def _key(file: Path | int) -> _Key | None:
    """The device and number of a file, by its path or a descriptor; None: there is no such file."""
    try:
        found = os.fstat(file) if isinstance(file, int) else os.lstat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _forget() -> None:
    """In a fork: the locks are those of the parent, and end with it."""
    global _guard
    _guard = threading.Lock()  # another thread of the parent may have held it
    for held in _held.values():
        os.close(held.handle)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
