"""The content-addressed cache: folders that are made once, whole, and found again by what went into them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from embexp.system import contents, digests, files, locks
from embexp.system.progress import Progress, quiet

_SETTLED_SECONDS = 2.0
_MAKING = ".making-"
_ABANDONED_SECONDS = 24 * 3600.0


def cache_folder(named: str | None) -> Path:
    """The cache: the folder `named`, or `embexp` in the user's cache folder (XDG base directories)."""
    if named is not None:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "embexp"


def file_digest(path: Path, *, cache: Path, progress: Progress = quiet) -> str:
    """SHA-256 of a file's bytes, remembered in the cache by path and stamp (see `contents.stamp`).

    A file that was modified within the last two seconds is not remembered: it could change again
    without its modification time showing it.
    """
    status = path.stat()
    place = str(path.resolve())
    stamp = [place, *contents.stamp(status)]
    record = cache / "digests" / f"{hashlib.sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        known = json.loads(record.read_text("utf-8"))
        if known["stamp"] == stamp:
            return str(known["digest"])
    now = time.time()
    digest = digests.of_file(path, progress)
    if now - status.st_mtime > _SETTLED_SECONDS and contents.stamp(path.stat()) == stamp[1:]:
        with contextlib.suppress(OSError):  # a cache that is only to be read
            files.write_text(record, json.dumps({"stamp": stamp, "digest": digest}))
    return digest


def exists(cache: Path, kind: str, key: str) -> bool:
    """Whether there is the folder of `key`, as it was made."""
    return contents.unchanged(place_of(cache, kind, key))


def folder(cache: Path, kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of `key`, made by `make(empty_folder)` unless it is there already, as it was made.

    It is made under a temporary name and renamed when whole, so no reader finds a half-made one. Of two
    processes that make the same folder at once, the first to finish wins and the other uses its result. What a
    killed process leaves behind (`.making-…`) is never read, and is removed here. A folder whose files were changed,
    cut off or removed since is made again.

    Raises:
        OSError: the cache can't be written to.
    """
    place = place_of(cache, kind, key)
    if contents.unchanged(place):
        return place
    cache.mkdir(parents=True, exist_ok=True)
    _tidy(cache)
    _remove_if_changed(cache, place)
    if place.is_dir():
        return place
    try:
        with files.directory_written_whole(place, prefix=f"{_MAKING}{_here()}-{os.getpid()}-") as making:
            make(making)
            contents.record(making)
    except FileExistsError:
        if not place.is_dir():
            raise
    return place


def place_of(cache: Path, kind: str, key: str) -> Path:
    """Where the folder of `key` is, or will be."""
    return cache / f"{kind}-{key[:32]}"


def _remove_if_changed(cache: Path, place: Path) -> None:
    """Removes a folder that is not as it was made; of several processes one looks, and the others wait for it."""
    if not place.is_dir():
        return
    with locks.of_folder(cache, f"the cache in {cache}").awaited():
        if place.is_dir() and not contents.verified(place):
            gone = cache / f"{_MAKING}{_here()}-{os.getpid()}-{secrets.token_hex(4)}"
            with contextlib.suppress(FileNotFoundError):  # without locks, two may do this at once
                place.rename(gone)  # who has mapped its files keeps them
            shutil.rmtree(gone, ignore_errors=True)


def _tidy(cache: Path) -> None:
    """Removes half-made folders whose makers are gone, as far as that can be known."""
    for path in cache.glob(f"{_MAKING}*"):
        if _abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _abandoned(making: Path) -> bool:
    """Whether a half-made folder is abandoned: its process is gone, or nothing was written for a day.

    The cache may be shared by machines, and a process elsewhere is judged by the day alone.
    """
    name = re.fullmatch(rf"{re.escape(_MAKING)}([0-9a-f]+)-([0-9]+)-\w+", making.name)
    if name is not None and name[1] == _here() and not psutil.pid_exists(int(name[2])):
        return True
    try:
        last = max(path.stat().st_mtime for path in (making, *making.iterdir()))
    except OSError:  # gone, or a file of it is, so somebody is at work
        return False
    return time.time() - last > _ABANDONED_SECONDS


def _here() -> str:
    """A short name of this machine, or container: where process ids are comparable."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]
