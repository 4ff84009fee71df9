"""Where objects of a store are on this machine: in the cache, whole and unchanged since they were fetched.

An object is kept in a folder `object-DIGEST`, of its URL, size and version, so that another version is fetched anew. A
folder or a pattern is a folder `objects-DIGEST` of links to these. Of several processes one fetches, and the others
wait for it. A process remembers what each URL stands for, and names the URL where messages would name the cache.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from embexp.errors import ConfigError, EmbexpError, Fault, plural
from embexp.system import caching, digests, files
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress
from embexp.system.stores.objects import Object, Store, StoreError, check, in_threads, is_url

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
    progress(f"looking at {url}", None)
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
        progress(f"waiting for another process that fetches {url}", None)

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

        rule = f"{byte_size(size)} are to be fetched, and the disk of {cache} has {byte_size(free)} left"
        raise StoreError(rule, "choose another disk: output.cache=DIR")
