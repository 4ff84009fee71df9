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
from embexp.config.named_code import Given
from embexp.config.override_text import as_override
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
    """A folder or a file that is written.

    Attributes:
        key: the setting that names it.
        text: its value.
        path: absolute.
        source: the file that sets it; "": the command line does, or nothing.
    """

    key: str
    text: str
    path: Path
    source: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether a file puts it outside of the working directory."""
        return bool(self.source) and not _whole(self.path).is_relative_to(_whole(Path.cwd()))

    @property
    def is_hidden(self) -> bool:
        """Whether a file puts it into a hidden folder of the user's home; embexp's own cache is none."""
        if not self.is_outside or _whole(self.path).is_relative_to(_whole(caching.cache_folder(None))):
            return False
        with contextlib.suppress(RuntimeError):  # there is no home
            for home in (Path.home(), _whole(Path.home())):
                for path in (self.path, _whole(self.path)):
                    if path.is_relative_to(home) and str(path.relative_to(home)).startswith(".") and path != home:
                        return True
        return False


def places(composed: Composition, *keys: str) -> Iterator[Place]:
    """The places that a config names; what can't be resolved is a fault of its own.

    Args:
        *keys: the settings to look at, of `IN_RUNS` and `IN_SWEEPS`.
    """
    given = Given(composed.config, composed.permission)
    for key in keys:
        if key.startswith("hydra."):
            text, is_given = None, key in given
            with contextlib.suppress(UnresolvedError):
                text = hydra_setting(composed.config, key, secrets=False)
        else:
            text, is_given = at(composed.container, key), composed.sources.override(key) is not None
        if isinstance(text, str) and text and (path := _path(key, text)) is not None:
            yield Place(key, text, path, "" if is_given else composed.sources.describe(key) or "a file")


def faults(composed: Composition, *keys: str) -> Iterator[Fault]:
    """The hidden folders of the home that files would have written."""
    for place in places(composed, *keys):
        if place.is_hidden:
            rule = "it is in a hidden folder of your home, and a file of a config sets it; the command line may"
            again = composed.permission.caller.typed([f"{place.key}={as_override(place.text)}"])
            remedy = f"give another place, or this one on the command line: {again}"
            yield Fault(place.key, str(place.path), rule, remedy, place.source)


def outside(composed: Composition, keys: Sequence[str]) -> str:
    """What to add to the line that says where a run or a sweep is: the places that files put elsewhere.

    Args:
        keys: `IN_RUNS` or `IN_SWEEPS`.
    """
    own, *others = keys
    found = ""
    for place in places(composed, own, *others):
        if place.is_outside:
            found += f"{'' if place.key == own else f'; {_NAMES[place.key]} in {place.path}'}, set in {place.source}"
    return found


def _path(key: str, text: str) -> Path | None:
    """The path of a value; None: it is no file."""
    if key == _STORE:
        return tracking.local_path(tracking.absolute(text))
    if key == _STORAGE and "://" in text:
        return tracking.local_path(text)
    return Path(os.path.abspath(os.path.expanduser(text) if key == _STORAGE else text))


def _whole(path: Path) -> Path:
    return Path(os.path.realpath(path))
