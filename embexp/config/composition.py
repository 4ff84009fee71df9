"""From overrides to a checked `RunSpec`: composes, validates and applies every rule. No TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.config import folders, hydra_checks, partial_spec, resources, validate
from embexp.config.compose import Composition
from embexp.config.compose import compose as compose_container
from embexp.config.loader import Loader
from embexp.config.overrides import parse
from embexp.errors import CombinationFault, ConfigError, Fault
from embexp.specs import rules
from embexp.specs.run import RunSpec


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        spec: what the user asked for.
        composition: the config as Hydra composed it.
        impossible: settings that are valid, but can't be combined; a sweep skips the job.
    """

    spec: RunSpec
    composition: Composition
    impossible: tuple[CombinationFault, ...] = ()


def compose(overrides: Sequence[str] = (), *, config_dir: str | Path | None = None) -> RunSpec:
    """Composes and checks the spec of a run, as `embexp run OVERRIDES` does.

    Args:
        overrides: such as `["experiment=movielens", "data.path=ml-100k"]`.
        config_dir: a folder with the user's own configs.

    Raises:
        ConfigError: with all faults.
        CommandLineError: `config_dir` is not a folder.
    """
    return job(loader(config_dir), overrides).spec


def loader(
    config_dir: str | Path | None = None, config_name: str = "config", config_path: str | None = None
) -> Loader:
    """A loader that composes configs from the shipped folder, or the one that replaces it, and the user's."""
    found = folders.find(None if config_dir is None else Path(config_dir), config_path=config_path)
    return Loader(found, config_name)


def job(loader: Loader, overrides: Sequence[str], *, look_at_data: bool = True) -> Job:
    """Composes and checks one run that can be started.

    Args:
        loader: composes configs.
        overrides: as on the command line.
        look_at_data: whether to read the headers of data files.

    Raises:
        ConfigError: with all faults.
    """
    parsed, _ = parse(loader, overrides)
    faults: list[Fault] = list(hydra_checks.without_effect(parsed, multirun=False))
    try:
        found = candidate(loader, overrides, look_at_data=look_at_data)
    except ConfigError as error:
        raise ConfigError([*error.faults, *faults]) from None
    if found.impossible or faults:
        raise ConfigError([*found.impossible, *faults])
    return found


def candidate(loader: Loader, overrides: Sequence[str], *, look_at_data: bool = True) -> Job:
    """Composes and checks one run whose settings may be impossible to combine: see `Job.impossible`.

    Raises:
        ConfigError: with all faults, if any is not a `CombinationFault`.
    """
    composition = compose_container(loader, overrides)
    spec, faults = check(composition, look_at_data=look_at_data)
    impossible = tuple(fault for fault in faults if isinstance(fault, CombinationFault))
    if spec is None or len(impossible) < len(faults):
        raise ConfigError(faults)
    return Job(spec, composition, impossible)


def check(composition: Composition, *, look_at_data: bool = True) -> tuple[RunSpec | None, list[Fault]]:
    """Validates a composed config and checks it against every rule.

    Returns:
        The spec, or None if the config is invalid, and all faults, including those of composing.
    """
    reported = {fault.path for fault in composition.faults}
    spec, faults = validate.validate(composition.container, reported=reported)
    known = spec if spec is not None and not reported else partial_spec.partial_spec(composition.container, reported)
    between = [*rules.faults(known), *resources.faults(known, look_at_data=look_at_data)]
    faults += [fault for fault in between if fault.path not in reported]
    return spec, [*composition.faults, *validate.with_sources(faults, composition.sources.describe)]
