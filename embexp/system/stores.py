"""Where objects of a store are on this machine: in the cache, whole and unchanged since they were fetched.

An object is kept in a folder `object-DIGEST`, of its URL, size and version, so that another version is fetched anew. A
folder or a pattern is a folder `objects-DIGEST` of links to these. Of several processes one fetches, and the others
wait for it. A process remembers what each URL stands for, and names the URL where messages would name the cache.

Objects of a store, such as s3://bucket/folder/file.csv: found and read through fsspec.

Credentials, endpoint and proxies are those that the libraries find in the environment; nothing of them is kept.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from embexp.errors import ConfigError, EmbexpError, Fault, plural
from embexp.system import caching, digests, files
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress

PACKAGES = {"s3": ("fsspec", "s3fs")}
"""By scheme, what reads its store: the extra `remote`."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_AT_ONCE = 1 << 24
"""Bytes of a request: one that breaks off is made again."""
_THREADS = 8
_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, of an account that may read it; for "
    "public data, set FSSPEC_S3_ANON=true"
)
_NO_CREDENTIALS = {
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"),
    *("TokenRetrievalError", "SSOError", "PermissionError"),
}
_UNREACHABLE = {"ConnectionError", "HTTPClientError", "gaierror", "TimeoutError"}
"""Names of classes: nothing of boto's is imported here."""
_BROKEN_OFF = {"ClientPayloadError", "IncompleteRead", "IncompleteReadError", "ResponseStreamingError"}
_NO_FILE_NAME = {"", ".", "..", ".content.json"}
_LONGEST = 300


class StoreError(Exception):
    """Objects that can't be had.

    Attributes:
        rule: why, as that of a `Fault`, without the URL.
        remedy: what helps, or "".
    """

    def __init__(self, rule: str, remedy: str = "") -> None:
        super().__init__(rule)
        self.rule, self.remedy = rule, remedy


def is_url(path: object) -> bool:
    """Whether a path is none of a file system, but has a scheme such as s3://."""
    return isinstance(path, str) and _URL.match(path) is not None


def check(url: str) -> None:
    """Checks a URL, and that the packages are installed which read it; asks no store.

    Raises:
        StoreError: it can't be read.
    """
    found = _URL.match(url)
    scheme = found[1] if found else ""
    if scheme not in PACKAGES:
        listed = " or ".join(f"{each}://BUCKET/KEY" for each in PACKAGES)
        raise StoreError(
            f"{scheme}:// is not a supported store", f"use {listed}, or copy the file to this machine and give its path"
        )
    bucket = url.partition("://")[2].strip("/").partition("/")[0]
    if not bucket or glob.has_magic(bucket):
        rule = "the bucket name can't be a pattern" if bucket else "it names no bucket"
        raise StoreError(rule, f"give {scheme}://BUCKET/KEY")
    if missing := [each for each in PACKAGES[scheme] if importlib.util.find_spec(each) is None]:
        verb = "which is" if len(missing) == 1 else "which are"
        rule = f"it needs {' and '.join(missing)}, {verb} not installed"
        raise StoreError(rule, "pip install 'embexp[remote]', or copy the file to this machine and give its path")


@dataclass(frozen=True)
class Object:
    """An object.

    Attributes:
        path: bucket and key.
        name: its path in the folder that was asked for; of a single object the last part of its key.
        size: in bytes.
        version: what changes with its content: the ETag, or the time of the last change.
    """

    path: str
    name: str
    size: int
    version: str


@dataclass(frozen=True)
class Listing:
    """What a URL stands for.

    Attributes:
        root: URL of the folder to which the names of the objects are relative.
        rest: what is behind the root in the URL: the name of a single object, a pattern, or "" for a folder.
    """

    root: str
    rest: str
    objects: tuple[Object, ...]
    single: bool = False


class Store:
    """The store of a URL."""

    def __init__(self, url: str) -> None:
        """Asks it nothing yet.

        Raises:
            StoreError: see `check`; or the environment has something that the library does not take.
        """
        check(url)
        self._scheme, _, self._path = url.partition("://")
        with _reasons():
            import fsspec  # not above: it is rarely needed, and perhaps not installed

            # A new one each time: what it has found in the environment, or listed, may have changed since.
            options = {"skip_instance_cache": True, "use_listings_cache": False}
            self._system: Any = fsspec.filesystem(self._scheme, **options)

    def listing(self, *, flat: bool) -> Listing:
        """What the URL stands for: an object of that name, those of a folder, or those that match a pattern.

        Args:
            flat: whether folders in a folder are an error.

        Raises:
            StoreError: there is nothing, or the store can't be asked.
        """
        path = self._path.strip("/")
        with _reasons():
            try:
                found = self._system.info(path)
            except FileNotFoundError as error:
                if not glob.has_magic(path) or _is_about_bucket(error):
                    raise
                return self._matching(path)
            if found["type"] == "file" and not self._path.endswith("/"):
                folder, _, name = path.rpartition("/")
                return Listing(f"{self._scheme}://{folder}", name, (_object(found, name),), single=True)
            listed = self._system.ls(path, detail=True) if flat else self._system.find(path, detail=True).values()
        entries = [each for each in listed if each["name"].strip("/") != path]
        objects = []
        for each in entries:
            name = each["name"].removeprefix(f"{path}/")
            if each["type"] != "directory":
                objects.append(_object(each, name))
            elif not name.startswith((".", "_")):
                remedy = f"to read the files in its subfolders: {self._scheme}://{path}/*/*"
                raise StoreError(f"a folder of data files may hold only files, not the folder {name!r}", remedy)
        return self._whole(f"{self._scheme}://{path}", "", objects, "there is no object in this folder")

    def _matching(self, path: str) -> Listing:
        parts = path.split("/")
        fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
        root = "/".join(parts[:fixed])
        found = self._system.glob(path, detail=True).values()
        objects = [_object(each, each["name"].removeprefix(f"{root}/")) for each in found if each["type"] == "file"]
        rest = "/".join(parts[fixed:])
        return self._whole(f"{self._scheme}://{root}", rest, objects, "no object matches this pattern")

    def _whole(self, root: str, rest: str, objects: list[Object], if_none: str) -> Listing:
        kept = [each for each in objects if not each.name.endswith("/")]  # what stands for a folder
        if not kept:
            raise StoreError(if_none)
        for each in kept:
            if any(part in _NO_FILE_NAME or "\0" in part for part in each.name.split("/")):
                raise StoreError(f"the object {each.name!r} has a name that a file can't have")
        return Listing(root, rest, tuple(sorted(kept, key=lambda each: each.name)))

    def read(self, one: Object, to: Path, done: Callable[[int], None]) -> None:
        """Writes an object into a new file, which the caller removes if this fails.

        Args:
            done: called with the bytes that have come since the last call; may raise to end it.

        Raises:
            StoreError: it can't be had, or is another meanwhile.
            OSError: the file can't be written.
        """
        size = 0
        with contextlib.ExitStack() as stack:
            stack.enter_context(files.naming(to))
            target = stack.enter_context(to.open("xb"))
            with _reasons(one, size):
                source = stack.enter_context(self._system.open(one.path, "rb", block_size=_AT_ONCE, cache_type="none"))
                if _version(source.details) != one.version:
                    raise _changed()
            while True:
                with _reasons(one, size):
                    block = source.read(_AT_ONCE)
                if not block:
                    break
                target.write(block)
                size += len(block)
                done(len(block))
        if size != one.size:
            raise StoreError(f"the connection broke after {size:,} of {one.size:,} bytes", "try again")


def in_threads(work: Callable[[Object, Callable[[int], None]], None], objects: Sequence[Object]) -> Iterator[int]:
    """Works on objects, several at a time, and yields the bytes that are done so far; an error ends all of it.

    Args:
        work: with an object, and what it calls with the bytes that have come, which raises when all is to end.
    """
    over, guard, total, came = threading.Event(), threading.Lock(), 0, threading.Event()

    def count(size: int) -> None:
        nonlocal total
        if over.is_set():
            raise StoreError("the download was given up")
        with guard:
            total += size
        came.set()

    with ThreadPoolExecutor(min(_THREADS, len(objects)), "objects") as pool:
        try:
            running = [pool.submit(work, each, count) for each in objects]
            for each in running:
                each.add_done_callback(lambda _: came.set())
            while not all(each.done() and each.exception() is None for each in running):
                came.wait(1.0)
                came.clear()
                if failed := next((each for each in running if each.done() and each.exception() is not None), None):
                    failed.result()
                yield total
        finally:
            over.set()
            pool.shutdown(cancel_futures=True)


def _object(found: dict[str, Any], name: str) -> Object:
    return Object(found["name"], name, int(found["size"]), _version(found))


def _version(found: dict[str, Any]) -> str:
    return str(found.get("ETag") or found.get("LastModified") or "")


def _changed() -> StoreError:
    return StoreError("it changed during the download", "try again")


@contextlib.contextmanager
def _reasons(one: Object | None = None, size: int = 0) -> Iterator[None]:
    """Turns what a library raises inside the block, which calls it only, into a StoreError.

    Args:
        one: the object that is read; None: nothing is.
        size: how many bytes of it have come.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise _reason(error, one, size) from error


def _reason(error: BaseException, one: Object | None, size: int) -> StoreError:
    chain = list(_chain(error))
    kinds = {kind.__name__ for each in chain for kind in type(each).__mro__}
    said = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
    if "FileExpired" in kinds:
        return _changed()
    if isinstance(error, FileNotFoundError):
        if one is not None:
            return StoreError("it was removed during the download")
        what = "bucket" if _is_about_bucket(error) else "object or folder"
        return StoreError(f"there is no such {what}", "check its spelling, including upper and lower case")
    if kinds & _NO_CREDENTIALS:
        rule = f"access is denied: {said}" if "PermissionError" in kinds else said[:1].lower() + said[1:]
        return StoreError(rule, _CREDENTIALS)
    if one is not None and kinds & _BROKEN_OFF:
        return StoreError(f"the connection broke after {size:,} of {one.size:,} bytes", "try again")
    if kinds & _UNREACHABLE:
        last = next((each for each in reversed(chain) if isinstance(each, OSError) and each.errno), None)
        if last is not None:
            number = last.errno or 0
            said = os.strerror(number) if number > 0 else str(last.strerror)  # negative: of a name
        return StoreError(f"the store can't be reached: {said}", _endpoint())
    return StoreError(f"the store can't be read: {said}", _endpoint() if "ValueError" in kinds else "")


def _endpoint() -> str:
    """Where the environment says that the store is, as a remedy."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "FSSPEC_S3_ENDPOINT_URL"):
        if value := os.environ.get(name):
            return f"check the address: {name} is {re.sub(r'(?<=://)[^/@]+(?=@)', '…', value)}"
    return "check the network; to use a store other than AWS, set AWS_ENDPOINT_URL"


def _is_about_bucket(error: BaseException) -> bool:
    """Whether the store has answered that there is no such bucket; an error may also have a response that is None."""
    answers = [getattr(each, "response", None) for each in _chain(error)]
    return any(isinstance(each, dict) and each.get("Error", {}).get("Code") == "NoSuchBucket" for each in answers)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


_FORMAT = 1
_AGAIN_SECONDS = 30.0
"""After which the store is asked again: the jobs of a sweep are checked in less."""


@dataclass(frozen=True)
class _Asked:
    """What came of a URL, and when it was asked for; a folder of the cache, or an error."""

    at: float
    folder: Path | None = None
    error: StoreError | None = None


_asked: dict[tuple[str, str, bool], _Asked] = {}
_place_of: dict[str, str] = {}
_url_of: dict[str, str] = {}


def faults(settings: Mapping[str, str]) -> list[Fault]:
    """What can be known about URLs without asking their stores.

    Args:
        settings: paths by config path; those of this machine are left out.
    """
    found = []
    for setting, path in settings.items():
        try:
            if is_url(path):
                check(path)
        except StoreError as error:
            found.append(Fault(setting, repr(path), error.rule, error.remedy))
    return found


def fetch(settings: Mapping[str, str], *, cache: Path, flat: bool = True, progress: Progress | None = None) -> None:
    """Fetches the objects that URLs stand for, unless they are here as the store has them now.

    Args:
        settings: paths by config path; those of this machine are left out.
        cache: folder in which they are kept.
        flat: whether folders in a folder are an error.
        progress: called as the work goes on; None: shown on standard error.

    Raises:
        ConfigError: some can't be had; with all of them.
        OSError: the cache can't be written.
    """
    urls = {setting: path for setting, path in settings.items() if is_url(path)}
    found: list[Fault] = []
    for setting, url in urls.items():
        try:
            _place(url, cache, flat, progress)
        except StoreError as error:
            found.append(Fault(setting, repr(url), error.rule, error.remedy))
    if found:
        raise ConfigError(found)


def local(path: str) -> str:
    """Where a URL that was fetched is on this machine; any other path as it is."""
    return _place_of.get(path, path)


def are_here(paths: Iterable[str | None]) -> bool:
    """Whether paths are of this machine, or of objects that this process has fetched."""
    return not any(is_url(path) and path not in _place_of for path in paths)


def named(text: str) -> str:
    """A text with the URLs of objects in the place of where they are in the cache."""
    for place in sorted(_url_of, key=len, reverse=True):
        text = text.replace(place, _url_of[place])
    return text


def with_urls(found: Iterable[Fault]) -> list[Fault]:
    """Faults that name URLs."""
    return [
        replace(each, value=named(each.value), rule=named(each.rule), remedy=named(each.remedy)) if _url_of else each
        for each in found
    ]


@contextlib.contextmanager
def naming_urls() -> Iterator[None]:
    """Errors that leave the block name URLs, not the cache."""
    try:
        yield
    except EmbexpError as error:
        if isinstance(error, ConfigError):
            error.faults = tuple(with_urls(error.faults))
        error.args = tuple(named(each) if isinstance(each, str) else each for each in error.args)
        raise


def _place(url: str, cache: Path, flat: bool, progress: Progress | None) -> None:
    """Has the objects of a URL in the cache; see `fetch`."""
    key = (url, str(cache), flat)
    before = _asked.get(key)
    if before is not None and time.monotonic() < before.at + _AGAIN_SECONDS:
        if before.error is not None:
            raise before.error
        if before.folder is not None and caching.unchanged(before.folder):
            return
    try:
        if progress is not None:
            folder = _fetched(url, cache, flat, progress)
        else:
            from embexp.system import terminal  # rich, which a check of a config does not need

            with terminal.shown_if_long(after=1.0) as shown:
                folder = _fetched(url, cache, flat, shown)
    except StoreError as error:
        _asked[key] = _Asked(time.monotonic(), error=error)
        raise
    _asked[key] = _Asked(time.monotonic(), folder)


def _fetched(url: str, cache: Path, flat: bool, progress: Progress) -> Path:
    """The folder of the cache that has the objects of a URL; notes its place, and what messages name instead."""
    progress(f"listing {url}", None)
    store = Store(url)
    listing = store.listing(flat=flat)
    cache = Path(os.path.abspath(cache))
    keys = {
        each: digests.of_json([_FORMAT, f"{listing.root}/{each.name}", each.size, each.version])
        for each in listing.objects
    }

    def kept(one: Object) -> Path:
        return caching.place_of(cache, "object", keys[one]) / PurePosixPath(one.name).name

    def get(one: Object, count: Callable[[int], None]) -> None:
        caching.folder(cache, "object", keys[one], lambda empty: store.read(one, empty / kept(one).name, count))

    def link(empty: Path) -> None:
        for each in listing.objects:
            here = empty / each.name
            here.parent.mkdir(parents=True, exist_ok=True)
            here.symlink_to(os.path.relpath(kept(each), here.parent))

    def wait() -> None:
        progress(f"waiting for another process that is downloading {url}", None)

    with FileLock(cache / f".objects-{digests.of_json(url)[:32]}.lock", url).awaited(wait):
        missing = [each for each in listing.objects if not caching.exists(cache, "object", keys[each])]
        if missing:
            size = sum(each.size for each in missing)
            _check_room(size, cache)
            from embexp.system.terminal import byte_size

            label = f"fetching {url} ({plural(len(missing), 'object')}, {byte_size(size)})"
            progress(label, 0.0)
            for done in in_threads(get, missing):
                progress(label, min(1.0, done / max(1, size)))
        if listing.single:
            folder = kept(listing.objects[0]).parent
        else:
            content = [[each.name, keys[each]] for each in listing.objects]
            folder = caching.folder(cache, "objects", digests.of_json([_FORMAT, content]), link)
    for each in listing.objects:  # messages may name what a link leads to
        _url_of[str(kept(each))] = f"{listing.root}/{each.name}"
    _url_of.update({str(folder): listing.root, glob.escape(str(folder)): listing.root})
    pattern = bool(listing.rest) and not listing.single
    _place_of[url] = os.path.join(glob.escape(str(folder)) if pattern else str(folder), listing.rest).rstrip("/")
    return folder


def _check_room(size: int, cache: Path) -> None:
    """Raises StoreError if the cache's disk has no room for so many bytes."""
    if size > (free := files.free_bytes(cache)):
        from embexp.system.terminal import byte_size

        rule = f"{byte_size(size)} must be downloaded, but the disk of {cache} has only {byte_size(free)} left"
        raise StoreError(rule, "choose another disk: output.cache=DIR")
