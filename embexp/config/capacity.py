"""Whether this machine has the memory and the disk that a config asks for, as far as that is known without the data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from embexp.errors import DataError, Fault
from embexp.specs import footprint, vocabulary_rules
from embexp.specs.data import Clicks
from embexp.specs.partial import is_complete
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.system import machine

_BYTES = 32
"""Of an example of a click log in the cache, without its history: ids, splits, label, probability, division."""
_WORTH = 100_000_000
"""Bytes below which the check would cost more time than it saves: the log is written before the training."""
_HISTORY_BYTES = 2
"""For each place of a history: 4 bytes, and on average half of the places are taken."""


def memory_faults(spec: RunSpec) -> Iterator[Fault]:
    """A run that needs more memory than there is."""
    if not is_complete(spec):
        return
    try:
        rows, dims = _shapes(spec)
    except DataError:  # a pretrained file that can't be read, which is a fault of its own
        return
    found = footprint.needs(spec, footprint.rows_known(spec, rows), dims)
    free = machine.available()
    if (fault := footprint.fault(found, free.bytes, free.limit)) is not None:
        yield fault


def _shapes(spec: RunSpec) -> tuple[Mapping[str, int | None], Mapping[str, int]]:
    """Rows and dims of the tables that are known without the data."""
    if any(not isinstance(setting, NoPretrained) for _, setting in spec.settings_of("pretrained")):
        from embexp.pretrained import checks  # NumPy and Arrow, which take longer than all of this check

        return checks.rows(spec), checks.dims(spec.pretrained, spec.tables)
    from embexp.data.sources.factory import source_of

    source, rows = source_of(spec.data), {}
    for name, table in spec.tables.items():
        sizes = [source.vocabulary_size(spec.column_of(feature)) for feature in spec.features_of(name)]
        known = vocabulary_rules.rows_of(spec, name)
        rows[name] = table.vocabulary_size or known or max((size for size in sizes if size is not None), default=None)
    return rows, {name: table.dim for name, table in spec.tables.items() if table.dim is not None}


def disk_faults(spec: RunSpec) -> Iterator[Fault]:
    """A synthetic log that the cache's disk has no room for, unless it is there already."""
    data = spec.data
    if not isinstance(data, Clicks) or not is_complete(data):
        return
    needed = data.examples * (_BYTES + _HISTORY_BYTES * data.history_length)
    if needed < _WORTH:
        return
    from embexp.system import caching

    cache = caching.cache_folder(spec.output.cache)
    try:
        free = shutil.disk_usage(_existing(cache)).free
    except OSError:  # told when it is written to
        return
    if needed <= free:
        return
    from embexp.data.columns import columns_of
    from embexp.data.sources.factory import source_of

    columns, _ = columns_of(data, spec.features)
    if caching.exists(cache, "clicks", source_of(data).digest(columns, cache=cache)):
        return
    rule = (
        f"its examples take at least {needed / 1e9:,.1f} GB in the cache, and the disk of {cache} has"
        f" {free / 1e9:,.1f} GB left"
    )
    yield Fault("data.examples", f"{data.examples:,}", rule, "choose fewer, or another disk: output.cache=DIR")


def _existing(path: Path) -> Path:
    """A path, or the nearest folder above it that is there."""
    path = Path(os.path.abspath(path))
    return next(each for each in (path, *path.parents) if each.exists())
