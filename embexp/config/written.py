"""Where a run, a sweep, its search, the cache and a tracker write, and whether the command line or a file says so.

A folder of configs may come from anybody. Its files choose where to write, but not a hidden folder of the user's home,
where programs keep what they start and trust; and what is outside of the working directory is said.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.config.folders import at
from embexp.config.hydra_globals import UnresolvedError, hydra_setting
from embexp.config.messages import as_override
from embexp.config.named_code import Given
from embexp.errors import Fault
from embexp.specs import tracking
from embexp.system import caching

if TYPE_CHECKING:
    from embexp.config.composition import Composition

RUN, SWEEP, CACHE = "hydra.run.dir", "hydra.sweep.dir", "output.cache"
_STORE, _STORAGE = "tracking.uri", "hydra.sweeper.storage"
EVERYWHERE = (CACHE, _STORE)
IN_RUNS, IN_SWEEPS = (RUN, *EVERYWHERE), (SWEEP, _STORAGE, *EVERYWHERE)
"""Settings that name a place, the directory of the run or the sweep first."""
_NAMES = {CACHE: "cache", _STORE: "tracker", _STORAGE: "search"}


@dataclass(frozen=True)
class Place:
    """A folder or a file outside of the working directory, or hidden in the user's home, that a file has written.

    Attributes:
        key: the setting that names it.
        text: its value.
        path: absolute.
        source: the file that sets it.
    """

    key: str
    text: str
    path: Path
    source: str


def places(composed: Composition, *keys: str) -> Iterator[Place]:
    """The places elsewhere that the files of a config name; what can't be resolved is a fault of its own.

    Args:
        *keys: the settings to look at, of `IN_RUNS` and `IN_SWEEPS`.
    """
    for key in keys:
        if key.startswith("hydra."):
            # Of a job that is a copy, `config` takes longer than all else: it is asked for only where it is looked at.
            text, is_given = None, key in Given(composed.config, composed.permission)
            with contextlib.suppress(UnresolvedError):
                text = hydra_setting(composed.config, key, secrets=False)
        else:
            text, is_given = at(composed.container, key), composed.sources.override(key) is not None
        if is_given or not isinstance(text, str) or not text or (path := _path(key, text)) is None:
            continue
        if not _whole(path).is_relative_to(_whole(Path.cwd())) or _is_hidden(path):
            yield Place(key, text, path, composed.sources.describe(key) or "a file")


def faults(composed: Composition, *keys: str) -> Iterator[Fault]:
    """The hidden folders of the home that files would have written."""
    for place in places(composed, *keys):
        if _is_hidden(place.path):
            rule = "it is in a hidden folder of your home, and a file of a config sets it; the command line may"
            again = composed.permission.caller.typed([f"{place.key}={as_override(place.text)}"])
            remedy = f"give another place, or this one on the command line: {again}"
            yield Fault(place.key, str(place.path), rule, remedy, place.source)


def outside(composed: Composition, keys: Sequence[str]) -> str:
    """What to add to the line that says where a run or a sweep is: the places that files put elsewhere.

    Args:
        keys: `IN_RUNS` or `IN_SWEEPS`.
    """
    found = ""
    for place in places(composed, *keys):
        found += f"{'' if place.key == keys[0] else f'; {_NAMES[place.key]} in {place.path}'}, set in {place.source}"
    return found


def _is_hidden(path: Path) -> bool:
    """Whether a path is in a hidden folder of the home: none that the working directory is in, nor embexp's cache."""
    if _whole(path).is_relative_to(_whole(caching.cache_folder(None))):
        return False
    with contextlib.suppress(RuntimeError):  # there is no home
        for home in (Path.home(), _whole(Path.home())):
            for each in (path, _whole(path)):
                first = each.relative_to(home).parts[:1] if each.is_relative_to(home) else ()
                if "".join(first).startswith(".") and not _whole(Path.cwd()).is_relative_to(_whole(home / first[0])):
                    return True
    return False


def _path(key: str, text: str) -> Path | None:
    """The path of a value; None: it is no file."""
    if key == _STORE:
        return tracking.local_path(tracking.absolute(text))
    if key == _STORAGE and "://" in text:
        return tracking.local_path(text)
    return Path(os.path.abspath(os.path.expanduser(text)))


def _whole(path: Path) -> Path:
    return Path(os.path.realpath(path))
