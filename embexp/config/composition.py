"""From overrides to a checked `RunSpec`: composed, validated, held to every rule. No TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.config import folders, partial_spec, resources, validate
from embexp.config.compose import Composition
from embexp.config.compose import compose as compose_container
from embexp.config.loader import Loader
from embexp.errors import CombinationFault, ConfigError, Fault
from embexp.specs import rules
from embexp.specs.run import RunSpec


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        spec: what the user asked for.
        composition: the config as Hydra composed it.
        impossible: why it can't be started, although each of its settings is valid by itself.
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
        overrides: as on the command line.
        look_at_data: whether to look at the head of the data's files.

    Raises:
        ConfigError: with every fault.
    """
    found = candidate(loader, overrides, look_at_data=look_at_data)
    if found.impossible:
        raise ConfigError(found.impossible)
    return found


def candidate(loader: Loader, overrides: Sequence[str], *, look_at_data: bool = True) -> Job:
    """Composes and checks one run whose settings may be impossible together: see `Job.impossible`.

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
    """Validates a composed config and checks it against every rule.

    Returns:
        The spec, or None where it can't be made, and all faults, those of composing included.
    """
    reported = {fault.path for fault in composition.faults}
    spec, faults = validate.validate(composition.container, reported=reported)
    known = spec if spec is not None and not reported else partial_spec.partial_spec(composition.container, reported)
    between = [*rules.faults(known), *resources.faults(known, look_at_data=look_at_data)]
    faults += [fault for fault in between if fault.path not in reported]
    return spec, [*composition.faults, *validate.with_sources(faults, composition.sources.describe)]
