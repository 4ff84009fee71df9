"""`data.fetch`: the rules of data sets by name, and the path that a name stands for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from embexp.config.nearest import did_you_mean, listing
from embexp.config.shown import shown
from embexp.data import datasets, fetching
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs.data import Data

_AGAIN_SECONDS = 30.0
"""After which what failed is tried again: the jobs of a sweep are checked in less, and ask for the same data set."""
_failed: dict[str, tuple[float, list[Fault]]] = {}
_MISSING = (None, "???")
_WITHOUT_FILES = "clicks"
"""The kind of source that has no path."""


def name_of(data: Any) -> str | None:
    """The value of `data.fetch` in a plain node `data`; None: it has none."""
    name = data.get("fetch") if isinstance(data, Mapping) else None
    return name if isinstance(name, str) else None


def fill_path(container: Mapping[str, Any]) -> list[Fault]:
    """Sets `data.path` of a plain config to where its data set is, or will be, in place.

    Returns:
        The fault of a path that is given as well.
    """
    data: Any = container.get("data")
    name = name_of(data)
    if name is None or data.get("kind") == _WITHOUT_FILES:
        return []
    given = data.get("path")
    data["path"] = str(fetching.place(name) if name in datasets.DATA_SETS else fetching.folder() / name)
    if given in (*_MISSING, data["path"]):
        return []
    return [
        Fault(
            "data.fetch", shown(name), f"data.path is given as well: {shown(given)}", "leave out the one or the other"
        )
    ]


def name_faults(container: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of a name that no data set has, and of one that the source does not read."""
    data: Any = container.get("data")
    name = name_of(data)
    if name is None:
        return
    if name not in datasets.DATA_SETS:
        near = did_you_mean(name, datasets.DATA_SETS) or f"the data sets are {', '.join(datasets.DATA_SETS)}"
        yield Fault("data.fetch", shown(name), "there is no data set of this name", near)
    elif data.get("kind") not in (kinds := datasets.DATA_SETS[name].kinds):
        rule = f"data={data.get('kind')} does not read this data set; it is for data={listing(kinds)}"
        experiments = listing(f"experiment={each}" for each in datasets.DATA_SETS[name].experiments)
        yield Fault("data.fetch", shown(name), rule, f"choose {experiments}")


def needs_fetching(data: Data) -> bool:
    """Whether a description of data names a data set that is not here yet."""
    name = getattr(data, "fetch", None)
    return name is not None and not fetching.is_here(name)


def ensure(data: Data) -> None:
    """Fetches the data set that a description of data names, if it names one.

    Raises:
        ConfigError: it can't be had.
    """
    name = getattr(data, "fetch", None)
    if name is None:
        return
    before = _failed.get(name)
    if before is not None and time.monotonic() < before[0] + _AGAIN_SECONDS:
        raise ConfigError(before[1])
    try:
        fetching.fetch(name)
    except DataError as error:
        rule, _, rest = str(error).partition("\n    ")
        faults = [Fault("data.fetch", shown(name), rule, rest)]
        _failed[name] = (time.monotonic(), faults)
        raise ConfigError(faults) from error
