"""Checks what a config names outside itself: the user's model, packages, data, pretrained files, memory and disk."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from embexp.config import validate
from embexp.config.messages import did_you_mean, format_value, listing
from embexp.config.named_code import Permission
from embexp.data import datasets, fetching
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs import footprint, tracking, vocabularies
from embexp.specs.base import UnknownPartError, is_complete, known_or, named_code, where_known
from embexp.specs.data import Clicks, Data
from embexp.specs.freezing import FreezeRows
from embexp.specs.models import Task
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.system import machine, user_code

_Part = TypeVar("_Part")
_BYTES = 32
"""Of an example of a click log in the cache, without its history: ids, splits, label, probability, division."""
_WORTH = 100_000_000
"""Bytes below which the check would cost more time than it saves: the log is written before the training."""
_HISTORY_BYTES = 2
"""For each place of a history: 4 bytes, and on average half of the places are taken."""
_AGAIN_SECONDS = 30.0
"""After which what failed is tried again: the jobs of a sweep are checked in less, and ask for the same data set."""
_failed: dict[str, tuple[float, list[Fault]]] = {}
_MISSING = (None, "???")
_WITHOUT_FILES = "clicks"
"""The kind of source that has no path."""


def faults(
    spec: RunSpec, permission: Permission, *, look_at_data: bool, here: bool = True, fetch: bool = True
) -> list[Fault]:
    """Faults of a spec and the files, functions and packages that it names.

    Args:
        spec: may be partial.
        permission: which code it may name.
        look_at_data: whether to read the headers of data and pretrained files.
        here: whether the run is to have the memory and the disk of this machine.
        fetch: whether to fetch the data set that the spec names; if not, one that is not here is not looked at.
    """
    checks = [_code_faults(spec, permission), _model_faults(spec), _metric_faults(spec), _objective_faults(spec)]
    checks += [_runtime_faults(spec), _tracking_faults(spec)]
    if not permission.own:  # composed from what a sweep has recorded
        checks += [tracking.address_faults(spec)]
    if look_at_data:
        checks += [_data_faults(spec, fetch=fetch), _pretrained_faults(spec), _restored_faults(spec)]
        checks += [_frozen_faults(spec)]
    if here:
        checks += [_memory_faults(spec), _disk_faults(spec)]
    return list(where_known(*checks))


def _code_faults(spec: RunSpec, permission: Permission) -> Iterator[Fault]:
    """Functions that do not exist or may not be run."""
    for part, code in named_code(spec):
        if (function := code.__dict__.get("function")) is None:
            continue
        path = f"{part}.function"
        yield from user_code.faults_of_function(function, path)
        if refusal := permission.refusal(function):
            yield Fault(path, repr(function), refusal, permission.remedy(function))


def _model_faults(spec: RunSpec) -> Iterator[Fault]:
    """Vectors with shapes that the model can't take."""
    model = _if_complete(lambda: spec.model)
    tables, features = spec.tables, spec.features
    if model is None or not (tables and features and is_complete(tables) and is_complete(features)):
        return
    if any(feature.table not in tables for feature in features.values()):
        return
    dims = {name: table.dim for name, table in tables.items() if table.dim is not None}
    if len(dims) < len(tables):
        from embexp.pretrained import checks

        dims = checks.dims(_if_complete(lambda: spec.pretrained), tables)
    if len(dims) < len(tables):  # the run checks it, once the files are open
        return
    yield from model.input_faults(
        {name: feature.activation_shape(dims[feature.table]) for name, feature in features.items()},
        getattr(_if_complete(lambda: spec.data), "dense_width", 0),
        known_or(None, lambda: spec.task) is Task.CLASSIFICATION,
    )


def _metric_faults(spec: RunSpec) -> Iterator[Fault]:
    """An own metric with the name of another, and early stopping on a metric that the task lacks."""
    from embexp.specs import metrics as metric_specs

    for name in spec.metrics:
        if metric_specs.direction(name) is not None:
            yield Fault(f"metrics.{name}", repr(name), "embexp has a metric of that name", "choose another name")
    metric = spec.train.early_stopping.metric
    if metric is None:
        return
    try:
        metric_specs.watched(spec.task, metric, spec.recommendation.cutoffs, spec.metrics)
    except ConfigError as error:
        yield from error.faults


def _objective_faults(spec: RunSpec) -> Iterator[Fault]:
    """An objective of searches that is no validation metric of the task."""
    chosen = spec.sweep.objective
    if chosen is None:
        return
    from embexp.specs.metrics import objectives

    try:
        objectives(spec.task, chosen, spec.recommendation.cutoffs, spec.own_metrics)
    except ConfigError as error:
        yield from error.faults


def _runtime_faults(spec: RunSpec) -> Iterator[Fault]:
    """A runtime whose package is not installed."""
    if spec.runtime.kind is RuntimeKind.ESTIMATOR and importlib.util.find_spec("tensorflow_estimator") is None:
        rule = "it needs the package tensorflow-estimator, which is not installed"
        remedy = "pip install 'embexp[estimator]', or set runtime=session"
        yield Fault("runtime", repr(spec.runtime.kind.value), rule, remedy)


def _tracking_faults(spec: RunSpec) -> Iterator[Fault]:
    """A tracker whose packages are not installed."""
    if missing := tracking.missing_packages(spec.tracking):
        rule, remedy = missing
        yield Fault("tracking", repr(spec.tracking.kind), rule, f"{remedy}, or set tracking=none")


def _data_faults(spec: RunSpec, *, fetch: bool) -> Iterator[Fault]:
    """Missing data files and columns, and a data set that can't be fetched."""
    if not is_complete(spec.data) or (not fetch and _needs_fetching(spec.data)):
        return
    from embexp.data.columns import columns_of
    from embexp.data.sources.source import source_of

    try:
        _ensure(spec.data)
        columns, _ = columns_of(
            spec.data, _complete_entries(lambda: spec.features), _complete_entries(lambda: spec.tables)
        )
    except ConfigError as error:
        yield from error.faults
    else:
        yield from source_of(spec.data).head_faults(columns)


def _pretrained_faults(spec: RunSpec) -> Iterator[Fault]:
    """Missing or invalid pretrained files and checkpoints."""
    if all(isinstance(setting, NoPretrained) for _, setting in spec.settings_of("pretrained")):
        return
    from embexp.pretrained import checks

    yield from checks.faults(_if_complete(lambda: spec.pretrained), _complete_entries(lambda: spec.tables))


def _restored_faults(spec: RunSpec) -> Iterator[Fault]:
    """A checkpoint to restore from of which there is no file."""
    path = None if spec.restore.path is None else Path(spec.restore.path)
    if path is not None and not path.exists() and not any(path.parent.glob(f"{glob.escape(path.name)}.*")):
        remedy = "name a run's directory, or a checkpoint: its prefix, its folder or its .index file"
        yield Fault("restore.path", repr(str(path)), "there is no such file or folder", remedy)


def _frozen_faults(spec: RunSpec) -> Iterator[Fault]:
    """Missing files with the tokens or the mask of frozen rows."""
    for scope, freeze in spec.settings_of("freeze"):
        if isinstance(freeze, FreezeRows) and is_complete(freeze):
            for key, path in (("tokens_file", freeze.tokens_file), ("mask_file", freeze.mask_file)):
                if path is not None and not Path(path).is_file():
                    what = "it is a folder, not a file" if Path(path).is_dir() else "there is no such file"
                    yield Fault(f"{scope.path}.{key}", repr(path), what)


def _if_complete(part: Callable[[], _Part]) -> _Part | None:
    """A part of the spec, or None if it is not complete."""
    found = known_or(None, part)
    return found if is_complete(found) else None


def _complete_entries(named: Callable[[], Mapping[str, _Part]]) -> dict[str, _Part]:
    """The tables or features that are complete."""
    try:
        return {name: each for name, each in named().items() if is_complete(each)}
    except UnknownPartError:
        return {}


def _memory_faults(spec: RunSpec) -> Iterator[Fault]:
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
    from embexp.data.sources.source import source_of

    source, rows = source_of(spec.data), {}
    for name, table in spec.tables.items():
        sizes = [source.vocabulary_size(spec.column_of(feature)) for feature in spec.features_of(name)]
        known = vocabularies.rows_of(spec, name)
        rows[name] = table.vocabulary_size or known or max((size for size in sizes if size is not None), default=None)
    return rows, {name: table.dim for name, table in spec.tables.items() if table.dim is not None}


def _disk_faults(spec: RunSpec) -> Iterator[Fault]:
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
    from embexp.data.sources.source import source_of

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
    rule = f"data.path is given as well: {format_value(given)}"
    return [Fault("data.fetch", format_value(name), rule, "leave out the one or the other")]


def name_faults(container: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of a name that no data set has, and of one that the source does not read."""
    data: Any = container.get("data")
    name = name_of(data)
    if name is None:
        return
    if name not in datasets.DATA_SETS:
        near = did_you_mean(name, datasets.DATA_SETS) or f"the data sets are {', '.join(datasets.DATA_SETS)}"
        yield Fault("data.fetch", format_value(name), "there is no data set of this name", near)
    elif data.get("kind") not in (kinds := datasets.DATA_SETS[name].kinds):
        rule = f"data={data.get('kind')} does not read this data set; it is for data={listing(kinds)}"
        experiments = listing(f"experiment={each}" for each in datasets.DATA_SETS[name].experiments)
        yield Fault("data.fetch", format_value(name), rule, f"choose {experiments}")


def _needs_fetching(data: Data) -> bool:
    """Whether a description of data names a data set that is not here yet."""
    name = getattr(data, "fetch", None)
    return name is not None and not fetching.is_here(name)


def _ensure(data: Data) -> None:
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
        faults = [Fault("data.fetch", format_value(name), rule, rest)]
        _failed[name] = (time.monotonic(), faults)
        raise ConfigError(faults) from error


def data_columns(container: Any) -> Sequence[str]:
    """The names of all columns, in the order of the file.

    Args:
        container: the node `data` as plain values, with absolute paths.

    Raises:
        ConfigError: the data is not described, is of a kind without columns, or its files can't be read.
    """
    from embexp.data.sources.source import source_of

    try:
        data: Data = TypeAdapter(Data).validate_python(container)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(["data", *(str(part) for part in first["loc"][1:])])
        raise ConfigError([Fault(path, "invalid", validate.rule_of(first))]) from None
    _ensure(data)
    return source_of(data).column_names()
