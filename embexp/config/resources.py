"""Checks what a config names outside itself: the user's model, packages, data, pretrained files, memory and disk."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from embexp.config import validate
from embexp.config.messages import did_you_mean, format_value, listing
from embexp.config.named_code import Permission
from embexp.data import datasets
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs import footprint, tasks, tracking, vocabularies
from embexp.specs.base import NamedCode, Scope, Spec, is_complete, known_or, named_code, where_known
from embexp.specs.data import Clicks, Data, named_paths
from embexp.specs.freezing import FreezeRows
from embexp.specs.models import Model
from embexp.specs.pretrained import Checkpoint, File, NoPretrained, Pretrained, Sample, named_files
from embexp.specs.run import RunSpec, data_of
from embexp.specs.running import Output, RuntimeKind, VectorTests
from embexp.specs.tables import Feature, Table
from embexp.specs.tasks import Labels, Task
from embexp.system import caching, files, machine, stores, user_code
from embexp.system.stores import is_url

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
        look_at_data: whether to read the headers of data and pretrained files.
        here: whether the run is to have the memory and the disk of this machine.
        fetch: whether to fetch the data set that the spec names; if not, one that is not here is not looked at.
    """
    data, pretrained, tables = (_complete(spec, name) for name in ("data", "pretrained", "tables"))
    some_tables, some_features = _complete_entries(spec, "tables"), _complete_entries(spec, "features")
    task = known_or(None, lambda: spec.task)
    classes = task is not None and task.labels is Labels.CLASS
    files = _pretrained_files(spec.settings_of("pretrained"))
    here_only = _files_here(
        spec.settings_of("pretrained"),
        spec.settings_of("freeze"),
        _complete(spec, "output"),
        known_or(None, lambda: spec.restore.path),
    )
    cache = caching.cache_folder(known_or(None, lambda: spec.output.cache))

    def of_model() -> Iterator[Fault]:
        return _model_faults(_complete(spec, "model"), tables, _complete(spec, "features"), pretrained, data, classes)

    rules: list[Callable[[], Iterable[Fault]]] = [
        lambda: _code_faults(named_code(spec), permission),
        lambda: _own_metric_faults(name for name, each in spec.metrics.items() if each.function is not None),
        lambda: _raised(
            lambda: tasks.watched(
                spec.task, spec.train.early_stopping.metric, spec.task.cutoffs_of(spec), spec.further_metrics
            )
        ),
        lambda: _raised(
            lambda: tasks.objectives(spec.task, spec.sweep.objective, spec.task.cutoffs_of(spec), spec.further_metrics)
        ),
        lambda: _runtime_faults(spec.runtime.kind),
        lambda: _tracking_faults(spec.tracking),
        lambda: _cache_faults(cache),
    ]
    if not permission.own:  # composed from what a sweep has recorded
        rules.append(lambda: tracking.address_faults(spec))
    if look_at_data:
        rules += [
            lambda: stores.faults({**({} if data is None else named_paths(data)), **files}),
            lambda: _url_faults(here_only),
        ]
    later = look_at_data and not stores.are_here(files.values())  # dims are known when the file is here
    if not later:
        rules.insert(1, of_model)
    found, rules = list(where_known(*rules)), []
    if look_at_data:
        fetch = fetch and not found
        rules += [
            lambda: _data_faults(data, some_features, some_tables, task, cache=cache, fetch=fetch),
            lambda: _pretrained_faults(
                spec.settings_of("pretrained"), pretrained, some_tables, cache=cache, fetch=fetch
            ),
            *([of_model] if later else []),
            lambda: _restored_faults(spec.restore.path),
            lambda: _frozen_faults(spec.settings_of("freeze")),
            lambda: _vocabulary_faults(some_tables),
            lambda: _test_faults(spec.output.vectors),
        ]
    if here:
        rules += [
            lambda: _memory_faults(spec),
            lambda: _disk_faults(data, spec.features, spec.output.cache),
        ]
    found += where_known(*rules)
    return stores.with_urls(found)


def _complete(spec: Spec, name: str) -> Any:
    """A part of a spec; None if it is not complete."""
    found = spec.__dict__.get(name)
    return found if is_complete(found) else None


def _complete_entries(spec: Spec, name: str) -> dict[str, Any]:
    return {key: each for key, each in spec.__dict__.get(name, {}).items() if is_complete(each)}


def _raised(check: Callable[[], object]) -> Iterator[Fault]:
    try:
        check()
    except ConfigError as error:
        yield from error.faults


def _code_faults(named: Iterable[tuple[str, NamedCode]], permission: Permission) -> Iterator[Fault]:
    for part, code in named:
        if (function := code.__dict__.get("function")) is None:
            continue
        path = f"{part}.function"
        yield from user_code.faults_of_function(function, path)
        if refusal := permission.refusal(function):
            yield Fault(path, repr(function), refusal, permission.remedy(function))


def _model_faults(
    model: Model | None,
    tables: Mapping[str, Table] | None,
    features: Mapping[str, Feature] | None,
    pretrained: Pretrained | None,
    data: Data | None,
    classes: bool,
) -> Iterator[Fault]:
    """Vectors with shapes that the model can't take."""
    if model is None or not tables or not features or any(each.table not in tables for each in features.values()):
        return
    dims = {name: table.dim for name, table in tables.items() if table.dim is not None}
    if len(dims) < len(tables):
        from embexp.vectors.pretrained import aligned

        dims = aligned.known_dims(pretrained, tables)
    if len(dims) == len(tables):  # else the run checks it, once the files are open
        vectors = {name: table.vector_dim(dims[name]) for name, table in tables.items()}
        shapes = {name: feature.activation_shape(vectors[feature.table]) for name, feature in features.items()}
        yield from model.input_faults(shapes, 0 if data is None else data.dense_width, classes)


def _own_metric_faults(own: Iterable[str]) -> Iterator[Fault]:
    for name in own:
        if any(each.is_named(name) for each in tasks.every_metric() if not each.listed):
            yield Fault(
                f"metrics.{name}", repr(name), "embexp already has a metric of that name", "choose another name"
            )


def _runtime_faults(kind: RuntimeKind) -> Iterator[Fault]:
    if kind is RuntimeKind.ESTIMATOR and importlib.util.find_spec("tensorflow_estimator") is None:
        rule = "it needs the package tensorflow-estimator, which is not installed"
        yield Fault("runtime", repr(kind.value), rule, "pip install 'embexp[estimator]', or set runtime=session")


def _tracking_faults(settings: tracking.Tracking) -> Iterator[Fault]:
    if missing := tracking.missing_packages(settings):
        rule, remedy = missing
        yield Fault("tracking", repr(settings.kind), rule, f"{remedy}, or set tracking=none")
    if isinstance(settings, tracking.MLflow):
        uri = tracking.chosen(settings.uri)
        place, is_folder = tracking.local_path(uri), tracking.scheme_of(uri) == "file"
        if place is not None and (why := files.store(place, is_folder=is_folder)):
            yield Fault("tracking.uri", str(place), why, "choose another, such as tracking.uri=sqlite:///tracked.db")


def _cache_faults(cache: Path) -> Iterator[Fault]:
    if why := files.cache(cache):
        yield Fault("output.cache", str(cache), why, f"use a separate folder, such as output.cache={cache}/cache")


def _data_faults(
    data: Data | None,
    features: Mapping[str, Feature],
    tables: Mapping[str, Table],
    task: Task | None,
    *,
    cache: Path,
    fetch: bool,
) -> Iterator[Fault]:
    if data is None or not (fetch or datasets.are_here(data)):
        return
    from embexp.data.columns import columns_of
    from embexp.data.sources.source import source_of

    try:
        _ensure(data, cache)
        columns, _ = columns_of(data, features, tables, task=task)
    except ConfigError as error:
        yield from error.faults
    else:
        yield from source_of(data).head_faults(columns)


def _pretrained_faults(
    settings: Iterable[tuple[Scope, Any]],
    inherited: Pretrained | None,
    tables: Mapping[str, Table],
    *,
    cache: Path,
    fetch: bool,
) -> Iterator[Fault]:
    if any(not isinstance(setting, NoPretrained) for _, setting in settings):
        from embexp.vectors.pretrained import aligned

        yield from aligned.faults_of_files(inherited, tables, cache=cache, fetch=fetch)


def _restored_faults(checkpoint: str | None) -> Iterator[Fault]:
    path = None if checkpoint is None or is_url(checkpoint) else Path(checkpoint)
    if path is not None and not path.exists() and not any(path.parent.glob(f"{glob.escape(path.name)}.*")):
        remedy = "name the directory of a run, or a checkpoint by its prefix, folder or .index file"
        yield Fault("restore.path", repr(str(path)), "there is no such file or folder", remedy)


def _frozen_faults(settings: Iterable[tuple[Scope, Any]]) -> Iterator[Fault]:
    for scope, freeze in settings:
        if isinstance(freeze, FreezeRows) and is_complete(freeze):
            for key, path in (("tokens_file", freeze.tokens_file), ("mask_file", freeze.mask_file)):
                if path is not None and not is_url(path) and not Path(path).is_file():
                    yield _no_file(f"{scope.path}.{key}", path)


def _vocabulary_faults(tables: Mapping[str, Table]) -> Iterator[Fault]:
    """Files of tokens that are not there, or have empty or repeated ones."""
    given = {name: table.vocabulary.path for name, table in tables.items() if table.vocabulary.path is not None}
    for name, path in given.items():
        place = f"tables.{name}.vocabulary.path"
        if not is_url(path) and not Path(path).is_file():
            yield _no_file(place, path)
        elif not is_url(path):
            from embexp.data.vocabularies.vocabulary import tokens_of_file

            try:
                tokens_of_file(Path(path))
            except DataError as error:
                yield Fault(place, repr(path), str(error), "the file must have one token per line, without duplicates")


def _no_file(place: str, path: str) -> Fault:
    return Fault(place, repr(path), "it is a folder, not a file" if Path(path).is_dir() else "there is no such file")


def _pretrained_files(settings: Iterable[tuple[Scope, Any]]) -> dict[str, str]:
    """The files of pretrained settings, by config path."""
    found: dict[str, str] = {}
    for scope, setting in settings:
        if isinstance(setting, File | Sample) and is_complete(setting):
            found |= named_files(scope.path, setting)
    return found


def _url_faults(named: Mapping[str, str | None]) -> Iterator[Fault]:
    """URLs in settings that are read from this machine only."""
    for place, path in named.items():
        if path is not None and is_url(path):
            rule = "only data and the files of pretrained=file can be read from a store"
            yield Fault(place, repr(path), rule, "copy it to this machine and give its path")


def _files_here(
    pretrained: Iterable[tuple[Scope, Any]],
    freeze: Iterable[tuple[Scope, Any]],
    output: Output | None,
    restored: str | None,
) -> dict[str, str | None]:
    """What settings name that is read from this machine only, by config path."""
    found = {"restore.path": restored}
    for scope, setting in (*pretrained, *freeze):
        if isinstance(setting, Checkpoint) and is_complete(setting):
            found[f"{scope.path}.path"] = setting.path
        if isinstance(setting, FreezeRows) and is_complete(setting):
            found |= {f"{scope.path}.tokens_file": setting.tokens_file, f"{scope.path}.mask_file": setting.mask_file}
    if output is not None:
        found["output.cache"] = output.cache
        for kind, paths in output.vectors.files.items():
            found |= {f"output.vectors.{kind}.{place}": path for place, path in enumerate(paths)}
    return found


def _test_faults(tests: VectorTests) -> Iterator[Fault]:
    for kind, paths in tests.files.items():
        names = [Path(path).stem for path in paths]
        for place, path in enumerate(paths):
            at = f"output.vectors.{kind}.{place}"
            if not is_url(path) and not Path(path).is_file():
                yield _no_file(at, path)
            elif names.index(names[place]) < place:
                rule = f"another test of kind {kind} is also named {names[place]}"
                yield Fault(at, repr(path), rule, "rename the file")


def _memory_faults(spec: RunSpec) -> Iterator[Fault]:
    """A run that needs more memory than there is, by the rows and dims that are known without the data."""
    if not is_complete(spec):
        return
    rows: dict[str, int | None] = {}
    if any(not isinstance(setting, NoPretrained) for _, setting in spec.settings_of("pretrained")):
        from embexp.vectors.pretrained import aligned  # NumPy and Arrow, which take longer than all of this check

        try:
            rows, dims = aligned.known_rows(spec), aligned.known_dims(spec.pretrained, spec.tables)
        except DataError:  # a pretrained file that can't be read, which is a fault of its own
            return
    else:
        from embexp.data.sources.source import source_of

        source = source_of(spec.data)
        for name, table in spec.tables.items():
            sizes = (source.vocabulary_size(spec.column_of(feature)) for feature in spec.features_of(name))
            known = table.vocabulary_size or vocabularies.rows_of(spec, name)
            rows[name] = known or max((size for size in sizes if size is not None), default=None)
        dims = {name: table.dim for name, table in spec.tables.items() if table.dim is not None}
    free = machine.available()
    found = footprint.needs(spec, footprint.rows_known(spec, rows), dims)
    if (fault := footprint.fault(found, free.bytes, free.limit)) is not None:
        yield fault


def _disk_faults(data: Data | None, features: Mapping[str, Feature], cache_folder: str | None) -> Iterator[Fault]:
    """A synthetic log that the cache's disk has no room for, unless it is there already."""
    if not isinstance(data, Clicks):
        return
    needed = data.examples * (_BYTES + _HISTORY_BYTES * data.history_length)
    if needed < _WORTH:
        return
    from embexp.data.columns import columns_of
    from embexp.data.sources.source import source_of

    cache = caching.cache_folder(cache_folder)
    path = Path(os.path.abspath(cache))
    try:
        free = shutil.disk_usage(next(parent for parent in (path, *path.parents) if parent.exists())).free
    except OSError:  # reported when it is written to
        return
    if needed <= free or caching.exists(
        cache, "clicks", source_of(data).digest(columns_of(data, features)[0], cache=cache)
    ):
        return
    rule = (
        f"its examples take at least {needed / 1e9:,.1f} GB in the cache, and the disk of {cache} has"
        f" {free / 1e9:,.1f} GB left"
    )
    yield Fault("data.examples", f"{data.examples:,}", rule, "use fewer examples, or another disk: output.cache=DIR")


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
    data["path"] = str(datasets.place(name) if name in datasets.DATA_SETS else datasets.folder() / name)
    if given in (*_MISSING, data["path"]):
        return []
    rule = f"data.path is also given: {format_value(given)}"
    return [Fault("data.fetch", format_value(name), rule, "remove one of the two")]


def name_faults(container: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of a name that no data set has, and of one that the source does not read."""
    data: Any = container.get("data")
    name = name_of(data)
    if name is None:
        return
    if name not in datasets.DATA_SETS:
        near = did_you_mean(name, datasets.DATA_SETS) or f"the data sets are {', '.join(datasets.DATA_SETS)}"
        yield Fault("data.fetch", format_value(name), "there is no data set with this name", near)
    elif data.get("kind") not in (kinds := datasets.DATA_SETS[name].kinds):
        rule = f"data={data.get('kind')} can't read this data set; it needs data={listing(kinds)}"
        experiments = listing(f"experiment={experiment}" for experiment in datasets.DATA_SETS[name].experiments)
        yield Fault("data.fetch", format_value(name), rule, f"choose {experiments}")


def _ensure(data: Data, cache: Path) -> None:
    """Fetches the data set, or the objects of a store, that a description of data names, if it names some.

    Raises:
        ConfigError: they can't be had.
    """
    name = getattr(data, "fetch", None)
    if name is None:
        return datasets.ensure(data, cache=cache)
    before = _failed.get(name)
    if before is not None and time.monotonic() < before[0] + _AGAIN_SECONDS:
        raise ConfigError(before[1])
    try:
        datasets.fetch(name)
    except DataError as error:
        faults = [Fault("data.fetch", format_value(name), error.rule, error.remedy)]
        _failed[name] = (time.monotonic(), faults)
        raise ConfigError(faults) from error


def data_columns(container: Mapping[str, Any]) -> Sequence[str]:
    """The names of all columns, in the order of the file.

    Args:
        container: the config as plain values, with absolute paths.

    Raises:
        ConfigError: the data is not described, is of a kind without columns, or its files can't be read.
    """
    from embexp.data.sources.source import source_of

    output = container.get("output")
    cache = output.get("cache") if isinstance(output, Mapping) else None
    try:
        data: Data = data_of(container.get("data"))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(["data", *(str(part) for part in first["loc"][1:])])
        raise ConfigError([Fault(path, "invalid", validate.rule_of(first))]) from None
    folder = caching.cache_folder(cache if isinstance(cache, str) else None)
    if faults := [*stores.faults(named_paths(data)), *_cache_faults(folder)]:
        raise ConfigError(faults)
    _ensure(data, folder)
    with stores.naming_urls():
        return source_of(data).column_names()
