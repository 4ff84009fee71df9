"""Checks what a config names outside itself: the user's model, packages, data and pretrained files."""

from __future__ import annotations

import glob
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from embexp.config import capacity, fetched
from embexp.config.permission import Permission
from embexp.errors import ConfigError, Fault
from embexp.specs import addresses
from embexp.specs import tracker_packages as packages
from embexp.specs.freezing import FreezeRows
from embexp.specs.models import KerasModel, Task
from embexp.specs.partial import UnknownPartError, is_complete, known_or, where_known
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind

_Part = TypeVar("_Part")


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
    checks = [_model_faults(spec, permission), _metric_faults(spec), _objective_faults(spec), _runtime_faults(spec)]
    checks += [_tracking_faults(spec)]
    if not permission.own:  # composed from what a sweep has recorded
        checks += [addresses.faults(spec)]
    if look_at_data:
        checks += [
            _data_faults(spec, fetch=fetch),
            _pretrained_faults(spec),
            _restored_faults(spec),
            _frozen_faults(spec),
        ]
    if here:
        checks += [capacity.memory_faults(spec), capacity.disk_faults(spec)]
    return list(where_known(*checks))


def _model_faults(spec: RunSpec, permission: Permission) -> Iterator[Fault]:
    """A function that does not exist or may not be run, or vectors with shapes that the model can't take."""
    from embexp.models import shapes, user_code

    model = _if_complete(lambda: spec.model)
    if isinstance(model, KerasModel):
        yield from user_code.faults_of_function(model.function)
        if refusal := permission.refusal(model.function):
            yield Fault("model.function", repr(model.function), refusal, permission.remedy(model.function))
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
    yield from shapes.faults(
        model,
        shapes={name: feature.activation_shape(dims[feature.table]) for name, feature in features.items()},
        dense_width=getattr(_if_complete(lambda: spec.data), "dense_width", 0),
        classes=known_or(None, lambda: spec.task) is Task.CLASSIFICATION,
    )


def _metric_faults(spec: RunSpec) -> Iterator[Fault]:
    """Early stopping on a metric that the task lacks."""
    metric = spec.train.early_stopping.metric
    if metric is None:
        return
    from embexp.training import metric_names

    try:
        metric_names.watched(spec.task, metric, spec.recommendation.cutoffs)
    except ConfigError as error:
        yield from error.faults


def _objective_faults(spec: RunSpec) -> Iterator[Fault]:
    """An objective of searches that is no validation metric of the task."""
    chosen = spec.sweep.objective
    if chosen is None:
        return
    from embexp.training.metric_names import objectives

    try:
        objectives(spec.task, chosen, spec.recommendation.cutoffs)
    except ConfigError as error:
        yield from error.faults


def _runtime_faults(spec: RunSpec) -> Iterator[Fault]:
    """A runtime whose package is not installed."""
    if spec.runtime.kind is RuntimeKind.ESTIMATOR and importlib.util.find_spec("tensorflow_estimator") is None:
        yield Fault(
            "runtime",
            repr(spec.runtime.kind.value),
            "it needs the package tensorflow-estimator, which is not installed",
            "pip install 'embexp[estimator]', or set runtime=session",
        )


def _tracking_faults(spec: RunSpec) -> Iterator[Fault]:
    """A tracker whose packages are not installed."""
    if missing := packages.missing(spec.tracking):
        yield Fault("tracking", repr(spec.tracking.kind), missing.rule, f"{missing.remedy}, or set tracking=none")


def _data_faults(spec: RunSpec, *, fetch: bool) -> Iterator[Fault]:
    """Missing data files and columns, and a data set that can't be fetched."""
    if not is_complete(spec.data) or (not fetch and fetched.needs_fetching(spec.data)):
        return
    from embexp.data.columns import columns_of
    from embexp.data.sources.factory import source_of

    try:
        fetched.ensure(spec.data)
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
