"""From the user's words to a checked `RunSpec`: composed, validated, held against the data. No TensorFlow."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.config import folders, partly, validate
from embexp.config.compose import Composition
from embexp.config.compose import compose as compose_container
from embexp.config.loader import Loader
from embexp.errors import CombinationFault, ConfigError, Fault
from embexp.specs import checks, resolution, staged
from embexp.specs.checks import Sections
from embexp.specs.models import KerasModel, Task
from embexp.specs.partial import where_known
from embexp.specs.pretrained import Checkpoint, File, Sample
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        spec: what the user asked for.
        composition: the config as Hydra composed it.
        impossible: why it can't be started, although each of its settings is right by itself.
    """

    spec: RunSpec
    composition: Composition
    impossible: tuple[CombinationFault, ...] = ()


def compose(overrides: Sequence[str] = (), *, config_dir: str | Path | None = None) -> RunSpec:
    """Composes and checks the description of a run, as `embexp run OVERRIDES` does.

    Args:
        overrides: such as `["experiment=movielens", "data.path=ml-100k"]`.
        config_dir: a folder of configs of the user's own.

    Raises:
        ConfigError: with every fault.
        CommandLineError: `config_dir` is not a folder.
    """
    return job(loader(config_dir), overrides).spec


def loader(config_dir: str | Path | None = None, config_name: str = "config") -> Loader:
    """What composes configs out of the shipped folder and the user's."""
    return Loader(folders.find(None if config_dir is None else Path(config_dir)), config_name)


def job(loader: Loader, overrides: Sequence[str], *, look_at_data: bool = True) -> Job:
    """Composes and checks one run that can be started.

    Args:
        loader: composes.
        overrides: the words of the command line.
        look_at_data: whether to look at the head of the data's files.

    Raises:
        ConfigError: with every fault.
    """
    found = candidate(loader, overrides, look_at_data=look_at_data)
    if found.impossible:
        raise ConfigError(found.impossible)
    return found


def candidate(loader: Loader, overrides: Sequence[str], *, look_at_data: bool = True) -> Job:
    """Composes and checks one run of which its settings together may make nothing: see `Job.impossible`.

    Raises:
        ConfigError: with every fault, if any is of another kind.
    """
    composition = compose_container(loader, overrides)
    spec, faults = check(composition, look_at_data=look_at_data)
    impossible = tuple(fault for fault in faults if isinstance(fault, CombinationFault))
    if spec is None or len(impossible) < len(faults):
        raise ConfigError(faults)
    return Job(spec, composition, impossible)


def check(composition: Composition, *, look_at_data: bool = True) -> tuple[RunSpec | None, list[Fault]]:
    """Holds a composed config to every rule.

    Returns:
        The spec, or None where it can't be made, and all faults, those of composing included.
    """
    told = {fault.path for fault in composition.faults}
    spec, faults = validate.validate(composition.container, told=told)
    known = spec if spec is not None and not told else partly.known(composition.container, told)
    between = _between(Sections.of(known), look_at_data=look_at_data)
    faults += [fault for fault in between if fault.path not in told]
    faults += where_known(staged.faults(known), resolution.combination_faults(known), _of_runtime(known))
    return spec, [*composition.faults, *validate.with_sources(faults, composition.sources.of)]


def _between(sections: Sections, *, look_at_data: bool) -> list[Fault]:
    """Faults between the parts of a config, and between it and the world."""
    found = checks.faults(sections)
    found += _of_model(sections)
    found += _of_metric(sections)
    if look_at_data:
        found += _of_data(sections)
        found += _of_pretrained(sections)
    return found


def _of_model(sections: Sections) -> list[Fault]:
    from embexp.models import shapes, user_path

    model = sections.model
    if model is None:
        return []
    faults = user_path.faults(model.function) if isinstance(model, KerasModel) else []
    if not sections.complete or any(each.table not in sections.tables for each in sections.features.values()):
        return faults
    dims = {name: table.dim for name, table in sections.tables.items() if table.dim is not None}
    if len(dims) < len(sections.tables):
        from embexp.pretrained import heads

        dims = heads.dims(sections.pretrained, sections.tables)
    if len(dims) < len(sections.tables):  # the run tells, once the files are open
        return faults
    activations = {name: feature.activation_shape(dims[feature.table]) for name, feature in sections.features.items()}
    dense = getattr(sections.data, "dense_columns", ())
    classes = sections.task == "classification"
    return faults + shapes.faults(model, shapes=activations, dense_width=len(dense), classes=classes)


def _of_metric(sections: Sections) -> list[Fault]:
    """Early stopping on a metric that the task does not have."""
    metric = None if sections.train is None else sections.train.early_stopping.metric
    if metric is None or sections.task not in tuple(Task):
        return []
    from embexp.training import metrics

    try:
        metrics.watched(Task(sections.task), metric)
    except ConfigError as error:
        return list(error.faults)
    return []


def _of_runtime(spec: RunSpec) -> Iterator[Fault]:
    """A runtime whose package is not installed."""
    if spec.runtime.kind is RuntimeKind.ESTIMATOR and importlib.util.find_spec("tensorflow_estimator") is None:
        yield Fault(
            "runtime",
            repr(spec.runtime.kind.value),
            "it needs the package tensorflow-estimator, which is not installed",
            "pip install 'embexp[estimator]', or set runtime=session",
        )


def _of_pretrained(sections: Sections) -> list[Fault]:
    settings = [sections.pretrained, *(table.pretrained for table in sections.tables.values())]
    if not any(isinstance(setting, File | Sample | Checkpoint) for setting in settings):
        return []
    from embexp.pretrained import heads

    return heads.faults(sections.pretrained, sections.tables)


def _of_data(sections: Sections) -> list[Fault]:
    if sections.data is None:
        return []
    from embexp.data.columns import columns_of
    from embexp.data.factory import source_of

    try:
        columns, _ = columns_of(sections.data, sections.features)
    except ConfigError as error:
        return list(error.faults)
    return source_of(sections.data).head_faults(columns)
