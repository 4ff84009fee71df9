"""Data sets by name (`data.fetch`): found on this machine, or fetched from their owners, and kept.

A data set is kept in a folder `NAME-DIGEST` of `folder()`, made once and whole (`system/caching.py`): of several
processes one fetches, and the others wait for it. Nothing is fetched unless its name is asked for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from embexp.data import datasets
from embexp.data.datasets import DataSet, Remote
from embexp.errors import DataError, read_by_library
from embexp.specs.data import Data
from embexp.system import caching, digests
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress

VARIABLE = "EMBEXP_DATA"
"""Names the folder of the data sets."""


def folder() -> Path:
    """Where data sets are kept: `$EMBEXP_DATA`, or `datasets` in the user's cache of embexp."""
    named = os.environ.get(VARIABLE)
    return Path(os.path.abspath(os.path.expanduser(named))) if named else caching.cache_folder(None) / "datasets"


def place(name: str) -> Path:
    """What `data.path` is for a data set: a file or folder, which is there once it was fetched.

    Raises:
        ConfigError: there is no data set of this name.
    """
    found = datasets.named(name)
    return caching.place_of(folder(), name, _key(found)) / found.path


def by_hand(name: str, file: Remote) -> Path:
    """Where a file is looked for before it is downloaded."""
    return folder() / name / file.name


def is_here(name: str) -> bool:
    """Whether a data set was fetched, and its files are as they were made.

    Raises:
        ConfigError: there is no data set of this name.
    """
    kept = caching.place_of(folder(), name, _key(datasets.named(name)))
    return caching.unchanged(kept) or (kept.is_dir() and caching.verified(kept))  # a copy has other stamps


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Fetches a data set unless it is here.

    Args:
        progress: called as the work goes on; None: shown on standard error.

    Returns:
        What `data.path` is for it.

    Raises:
        ConfigError: there is no data set of this name.
        DataError: it can't be had, or is not what it should be.
        OSError: it can't be written.
    """
    if not is_here(name):
        if progress is None:
            from embexp.system import terminal  # rich, which a check of a config does not need

            with terminal.shown_if_long(after=0.0) as shown:
                _fetch(name, datasets.named(name), shown)
        else:
            _fetch(name, datasets.named(name), progress)
    return place(name)


def located(data: Data) -> Data:
    """A description of data with the path that its `fetch` stands for on this machine; nothing is fetched."""
    name = getattr(data, "fetch", None)
    return data if name is None else data.model_copy(update={"path": str(place(name))})


def ensure(data: Data) -> None:
    """Fetches the data set that a description of data names, if it names one; see `fetch`."""
    name = getattr(data, "fetch", None)
    if name is not None:
        fetch(name)


def _key(data: DataSet) -> str:
    return digests.of_json([datasets.FORMAT, [[file.name, file.digest] for file in data.files]])


def _fetch(name: str, data: DataSet, progress: Progress) -> None:
    def make(empty: Path) -> None:
        with tempfile.TemporaryDirectory(dir=empty, prefix=".") as temporary:
            found = {file.name: _file(name, file, Path(temporary), progress) for file in data.files}
            progress(f"unpacking {name}", None)
            _written(name, data, found, empty)

    def wait() -> None:
        progress(f"waiting for another process that fetches {name}", None)

    with FileLock(folder() / f".{name}.lock", name).awaited(wait):
        caching.folder(folder(), name, _key(data), make)


def _written(name: str, data: DataSet, found: Mapping[str, Path], empty: Path) -> None:
    try:
        with read_by_library(f"the files of {name} can't be unpacked"):
            data.write(found, empty)
    except DataError as error:
        if isinstance(error.__cause__, OSError):  # the disk is full
            raise error.__cause__ from None
        raise


def _file(name: str, file: Remote, temporary: Path, progress: Progress) -> Path:
    """A file of a data set, as its digest says: one that was put here, of an installed package, or downloaded."""
    given = by_hand(name, file)
    if given.is_file():
        _check(given, file, "remove it, or put the right file there")
        return given
    packaged = _packaged(file)
    if packaged is not None and _digest(packaged, file) == file.digest:
        return packaged
    from embexp.data import download
    from embexp.system import terminal  # ssl, urllib and rich, which are rarely needed

    target = temporary / file.name
    label = f"fetching {file.url} ({terminal.byte_size(file.size)})"
    progress(label, None)
    remedy = f"download it elsewhere and put it at {given}, or give data.path=… instead"
    try:
        download.download(
            file.url, target, limit=file.size, progress=lambda done: progress(label, min(1.0, done / file.size))
        )
    except download.DownloadError as error:
        raise DataError(f"{file.url} can't be fetched: {error}\n    {remedy}") from error
    _check(target, file, f"the file has changed, or something on the way to it answers instead: {remedy}", of=file.url)
    return target


def _check(path: Path, file: Remote, remedy: str, *, of: str | None = None) -> None:
    """Raises DataError if a file has another digest than it should."""
    found = _digest(path, file)
    if found != file.digest:
        raise DataError(f"{of or path} has the digest {found}, expected {file.digest}\n    {remedy}")


def _digest(path: Path, file: Remote) -> str:
    """The digest of a file, of the kind that is known of it."""
    algorithm = file.digest.partition(":")[0]
    with path.open("rb") as content:
        found = hashlib.file_digest(content, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{found.hexdigest()}"


def _packaged(file: Remote) -> Path | None:
    """The file in an installed package, which is not imported."""
    if file.package is None:
        return None
    package, inside = file.package
    found = importlib.util.find_spec(package)
    for place in () if found is None else found.submodule_search_locations or ():
        if (path := Path(place) / inside).is_file():
            return path
    return None
