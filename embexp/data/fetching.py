"""Data sets by name (`data.fetch`): found on this machine, or fetched from their owners, and kept.

A data set is kept in a folder `NAME-DIGEST` of `folder()`, made once and whole (`system/caching.py`): of several
processes one fetches, and the others wait for it. Nothing is fetched unless its name is asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from embexp.data import datasets
from embexp.data.datasets import DataSet, Remote
from embexp.errors import DataError, read_by_library
from embexp.specs.data import Columnar, Data, named_paths, with_paths
from embexp.system import caching, digests, files, machine_faults, stores
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress

VARIABLE = "EMBEXP_DATA"
"""Names the folder of the data sets."""
SECONDS = 10.0
"""A server that sends nothing for so long counts as out of reach."""
_AT_ONCE = 1 << 18


class DownloadError(Exception):
    """A file that could not be had; the message says why, without the URL."""


def folder() -> Path:
    """Where data sets are kept: `$EMBEXP_DATA`, or `datasets` in the user's cache of embexp."""
    named = os.environ.get(VARIABLE)
    found = Path(os.path.abspath(os.path.expanduser(named))) if named else caching.cache_folder(None) / "datasets"
    machine_faults.name_place(found, f"the variable {VARIABLE}")
    return found


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
    if is_here(name):
        return place(name)
    if progress is not None:
        return _fetch(name, datasets.named(name), progress)
    from embexp.system import terminal  # rich, which a check of a config does not need

    with terminal.shown_if_long(after=0.0) as shown:
        return _fetch(name, datasets.named(name), shown)


def located(data: Data) -> Data:
    """A description of data with the paths that its `fetch`, or URLs, stand for on this machine; nothing is fetched."""
    name = getattr(data, "fetch", None)
    return with_paths(data, stores.local) if name is None else data.model_copy(update={"path": str(place(name))})


def ensure(data: Data, *, cache: Path, progress: Progress | None = None) -> None:
    """Fetches the data set, or the objects of a store, that a description of data names, if it names some.

    Args:
        cache: folder in which objects are kept.
        progress: called as objects are fetched; None: shown on standard error.

    Raises:
        ConfigError: objects can't be had.
        DataError: a data set can't be had; see `fetch`.
    """
    if (name := getattr(data, "fetch", None)) is not None:
        fetch(name)
    else:
        stores.fetch(named_paths(data), cache=cache, flat=isinstance(data, Columnar), progress=progress)


def are_here(data: Data) -> bool:
    """Whether what a description of data names is on this machine, as far as this process knows."""
    name = getattr(data, "fetch", None)
    return stores.are_here(named_paths(data).values()) if name is None else is_here(name)


def _key(data: DataSet) -> str:
    return digests.of_json([datasets.FORMAT, [[file.name, file.digest] for file in data.files]])


def _fetch(name: str, data: DataSet, progress: Progress) -> Path:
    def make(empty: Path) -> None:
        with tempfile.TemporaryDirectory(dir=empty, prefix=".") as temporary:
            found = {file.name: _file(name, file, Path(temporary), progress) for file in data.files}
            progress(f"unpacking {name}", None)
            _written(name, data, found, empty)

    def wait() -> None:
        progress(f"waiting for another process that fetches {name}", None)

    with FileLock(folder() / f".{name}.lock", name).awaited(wait):
        return caching.folder(folder(), name, _key(data), make) / data.path


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
    placed = by_hand(name, file)
    if placed.is_file():
        _check(placed, file, "remove it, or put the right file there")
        return placed
    packaged = _packaged(file)
    if packaged is not None and _digest(packaged, file) == file.digest:
        return packaged
    from embexp.system import terminal  # rich, which is rarely needed

    target = temporary / file.name
    label = f"fetching {file.url} ({terminal.byte_size(file.size)})"
    progress(label, None)
    remedy = f"download it elsewhere and put it at {placed}, or give data.path=… instead"
    try:
        download(file.url, target, limit=file.size, progress=lambda done: progress(label, min(1.0, done / file.size)))
    except DownloadError as error:
        raise DataError(f"{file.url} can't be fetched: {error}", remedy) from error
    _check(target, file, f"the file has changed, or something on the way to it answers instead: {remedy}", of=file.url)
    return target


def download(url: str, to: Path, *, limit: int, progress: Callable[[int], None]) -> None:
    """Writes what a URL holds into a new file, which the caller removes if this fails.

    Args:
        url: http or https; proxies are those of the environment.
        limit: bytes that it may have at most.
        progress: called with the bytes that are there so far.

    Raises:
        DownloadError: it can't be had, ends too early, or is larger than the limit.
        OSError: the file can't be written.
    """
    import urllib.request  # not above: it takes long, and is rarely needed

    request = urllib.request.Request(url, headers={"User-Agent": "embexp"})
    with _of_server():
        response = urllib.request.build_opener().open(request, timeout=SECONDS)  # with the proxies as they are now
    with response:
        header = response.headers.get("Content-Length", "")
        length = int(header) if header.isdecimal() else None
        if length is not None and length > limit:
            raise DownloadError(f"the server offers {length:,} bytes, expected {limit:,}")
        done = 0
        with files.naming(to), to.open("xb") as file:
            while True:
                with _of_server():
                    block = response.read(_AT_ONCE)
                if not block:
                    break
                done += len(block)
                if done > limit:
                    raise DownloadError(f"the server sends more than the {limit:,} bytes that were expected")
                file.write(block)
                progress(done)
    if length is not None and done < length:
        raise DownloadError(f"the connection ended after {done:,} of {length:,} bytes")


@contextlib.contextmanager
def _of_server() -> Iterator[None]:
    """What goes wrong with a server inside the block becomes a DownloadError."""
    import http.client

    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a proxy that is no URL
        raise DownloadError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Why a server gave nothing, in a few words."""
    import ssl
    import urllib.error

    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"the server answers {error.code} {error.reason}".rstrip()
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        return _reason(error.reason)
    if isinstance(error, TimeoutError):
        return f"no answer for {SECONDS:.3g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _check(path: Path, file: Remote, remedy: str, *, of: str | None = None) -> None:
    """Raises DataError if a file has another digest than it should."""
    found = _digest(path, file)
    if found != file.digest:
        raise DataError(f"{of or path} has the digest {found}, expected {file.digest}", remedy)


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
