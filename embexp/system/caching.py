"""The cache: folders written whole, by a digest, and what each of their files held when it was made.

What a folder of the cache held when it was made: the size, the digest and the stamp of each of its files. A stamp is
read in microseconds and shows whether a file can have changed; only where it differs, as in a copy of the cache, the
bytes are read.
"""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from embexp.system import digests, files, locks, machine_faults
from embexp.system.parallel import Progress, at_once, quiet

_SETTLED_SECONDS = 2.0
_MAKING = ".making-"
_ABANDONED_SECONDS = 24 * 3600.0
_NAME = ".content.json"


def cache_folder(named: str | None, setting: str = "output.cache") -> Path:
    """The cache: the folder `named`, or `embexp` in the user's cache folder (XDG base directories).

    Args:
        setting: what names it, for errors.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    own = (Path(base) if base else Path.home() / ".cache") / "embexp"
    found = own if named is None else Path(os.path.expanduser(named))
    machine_faults.name_place(found, setting)
    return found


def file_digest(path: Path, *, cache: Path, progress: Progress = quiet) -> str:
    """SHA-256 of a file's bytes, remembered in the cache by path and stamp (see `_stamp`).

    A file that was modified within the last two seconds is not remembered: it could change again
    without its modification time showing it.
    """
    status = path.stat()
    place, record = _record(path, cache)
    stamp = _stamp(status)
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        known = json.loads(record.read_text("utf-8"))
        if known["stamp"] == [place, *stamp]:
            return str(known["digest"])
    now = time.time()
    digest = digests.of_file(path, progress)
    if now - status.st_mtime > _SETTLED_SECONDS:
        remember(path, stamp, digest, cache=cache)
    return digest


def settled_stamp(path: Path) -> list[int]:
    """The stamp of a file, the same on all machines that share its file system; empty: it may change again unseen."""
    status = path.stat()
    return _stamp(status) if time.time() - status.st_mtime > _SETTLED_SECONDS else []


def remember(path: Path, stamp: list[int], digest: str, *, cache: Path) -> None:
    """Has the cache know the digest of a file, if its stamp is still the one that it had when somebody read it."""
    place, record = _record(path, cache)
    if _stamp(path.stat()) == stamp:
        with contextlib.suppress(OSError):  # a cache that is only to be read
            files.write_text(record, json.dumps({"stamp": [place, *stamp], "digest": digest}))


def _record(path: Path, cache: Path) -> tuple[str, Path]:
    """Where a file is, and the file of the cache that has its digest."""
    place = str(path.resolve())
    return (
        place,
        cache / "digests" / f"{hashlib.sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json",
    )


def exists(cache: Path, kind: str, key: str) -> bool:
    """Whether there is the folder of `key`, as it was made."""
    return unchanged(place_of(cache, kind, key))


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
    if unchanged(place):
        return place
    cache.mkdir(parents=True, exist_ok=True)
    _tidy(cache)
    _remove_if_changed(cache, place)
    if place.is_dir():
        return place
    try:
        with files.atomic_directory(place, prefix=f"{_MAKING}{_here()}-{os.getpid()}-") as making:
            make(making)
            record_contents(making)
    except FileExistsError:
        if not place.is_dir():
            raise
    return place


@contextlib.contextmanager
def workplace(cache: Path) -> Iterator[Path]:
    """An empty folder of the cache for the time of the block; that of a killed process is removed by the next one."""
    place = cache / f"{_MAKING}{_here()}-{os.getpid()}-{secrets.token_hex(4)}"
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def place_of(cache: Path, kind: str, key: str) -> Path:
    """Where the folder of `key` is, or will be."""
    return cache / f"{kind}-{key[:32]}"


def _remove_if_changed(cache: Path, place: Path) -> None:
    """Removes a folder that is not as it was made; of several processes one looks, and the others wait for it."""
    if not place.is_dir():
        return
    with locks.of_folder(cache, f"the cache in {cache}").awaited():
        if place.is_dir() and not verified(place):
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
    import psutil  # which takes longer than most commands have to do here

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


def _stamp(status: os.stat_result) -> list[int]:
    """What no change of a file leaves as it is: size, modification time, time of change and inode.

    The time of change (ctime) can't be set back as the modification time can, and a file that takes another one's
    place has another inode.
    """
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def record_contents(folder: Path) -> None:
    """Notes the files of a folder that is complete."""
    here = dict(_files(folder))
    noted = at_once(lambda path: {"stamp": _stamp(path.stat()), "digest": digests.of_file(path)}, here.values())
    found = dict(zip(here, noted, strict=True))
    files.write_text(folder / _NAME, json.dumps(found))


def unchanged(folder: Path) -> bool:
    """Whether the stamps of all files of a folder are those that were noted; False where there is no such folder."""
    noted = _noted(folder)
    return noted is not None and _stamps(folder) == {name: each["stamp"] for name, each in noted.items()}


def verified(folder: Path) -> bool:
    """Whether the files of a folder have the content that was noted; notes their stamps if they are others now."""
    noted, found = _noted(folder), _stamps(folder)
    if noted is None or found is None or found.keys() != noted.keys():
        return False
    for name, each in noted.items():
        if found[name] == each["stamp"]:
            continue
        if found[name][0] != each["stamp"][0] or digests.of_file(folder / name) != each["digest"]:
            return False
        each["stamp"] = found[name]
    with contextlib.suppress(OSError):  # a cache that is only to be read
        files.write_text(folder / _NAME, json.dumps(noted))
    return True


def _files(folder: Path) -> list[tuple[str, Path]]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != _NAME]
    return [(path.relative_to(folder).as_posix(), path) for path in paths]


def _stamps(folder: Path) -> dict[str, list[int]] | None:
    try:
        return {name: _stamp(path.stat()) for name, path in _files(folder)}
    except OSError:  # it is being removed
        return None


def _noted(folder: Path) -> dict[str, Any] | None:
    """What `record` wrote; None where that is missing or damaged."""
    try:
        content = json.loads((folder / _NAME).read_bytes())
        for each in content.values():
            if not (isinstance(each["digest"], str) and [int(number) for number in each["stamp"]]):
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(content)
