"""From overrides to a checked `RunSpec`: composes, validates and applies every rule. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from embexp.config import folders, hydra_checks, patterns, resources, selections, validate
from embexp.config.compose import Composition, check_interpolations, resolved
from embexp.config.compose import compose as compose_container
from embexp.config.loader import Loader
from embexp.config.messages import format_value
from embexp.config.overrides import parse, repeated
from embexp.config.permission import OWN_MODULES, Permission
from embexp.config.resources import data_columns
from embexp.errors import CombinationFault, ConfigError, Fault
from embexp.specs import arguments, run
from embexp.specs.run import RunSpec

_OWN_LAUNCHER = "embexp"

CHANGEABLE = ("train.steps", "train.epochs", "output", "checkpoint", "tracking")
"""Settings of a recorded run that may change: its length, and those that change no result."""


RESUMED = "a run is resumed with the settings that it began with"


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        impossible: settings that are valid, but can't be combined; a sweep skips the job.
    """

    spec: RunSpec
    composition: Composition
    impossible: tuple[CombinationFault, ...] = ()


def compose(
    overrides: Sequence[str] = (), *, config_dir: str | Path | None = None, allow_code: Sequence[str] = ()
) -> RunSpec:
    """Composes and checks the spec of a run, as `embexp run OVERRIDES` does.

    Args:
        overrides: such as `["experiment=movielens", "data.path=ml-100k"]`.
        config_dir: a folder with the user's own configs.
        allow_code: functions outside of the user's own modules that the config may name, such as `["keras:Model"]`.

    Raises:
        ConfigError: with all faults; a setting of Hydra, such as `hydra.run.dir`, is one.
        UsageError: `overrides` is no list of texts, or `config_dir` is not a folder.
    """
    texts = arguments.overrides(overrides, "embexp.compose")
    folder = None if config_dir is None else arguments.directory(config_dir, "embexp.compose")
    allowed = arguments.texts(allow_code, "embexp.compose", "allow_code")
    return job(loader(folder, permission=Permission(frozenset(allowed))), texts, in_python=True).spec


def loader(
    config_dir: str | Path | None = None,
    config_name: str = "config",
    config_path: str | None = None,
    *,
    permission: Permission = OWN_MODULES,
) -> Loader:
    """A loader that composes configs from the shipped folder, or the one that replaces it, and the user's.

    Args:
        config_dir: the user's folder.
        permission: which code the configs may name.
    """
    found = folders.find(None if config_dir is None else Path(config_dir), config_path=config_path)
    return Loader(found, config_name, permission)


def job(loader: Loader, overrides: Sequence[str], *, look_at_data: bool = True, in_python: bool = False) -> Job:
    """Composes and checks one run that can be started.

    Args:
        overrides: as on the command line.
        look_at_data: whether to read the headers of data files.
        in_python: whether the caller has no settings of Hydra.

    Raises:
        ConfigError: with all faults.
    """
    parsed, _ = parse(loader, overrides)
    if in_python:
        faults = list(hydra_checks.not_in_python(parsed))
    else:
        faults = list(hydra_checks.without_effect(parsed, multirun=False))
    twice = [] if in_python else list(repeated(parsed))  # in Python, the later of two counts
    try:
        found = candidate(loader, overrides, look_at_data=look_at_data)
    except ConfigError as error:
        told = {fault.path for fault in error.faults}
        raise ConfigError([*twice, *error.faults, *(fault for fault in faults if fault.path not in told)]) from None
    faults = [*twice, *found.impossible, *faults]
    if found.spec.seeds > 1:
        rule = "it repeats the settings of a sweep, and this is a single run"
        faults.append(Fault("seeds", str(found.spec.seeds), rule, "add -m, or set seed"))
    if faults:
        raise ConfigError(faults)
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
    here = runs_here(composition.config)
    spec, faults = _checked(
        composition.container,
        composition.faults,
        composition.permission,
        look_at_data=look_at_data,
        here=here,
        unknown=composition.expansion.unknown,
    )
    faults = patterns.folded(_kinds_told_once(faults, composition), composition.expansion.origins)
    return spec, [*composition.faults, *validate.with_sources(faults, composition.sources.describe)]


def _kinds_told_once(faults: list[Fault], composition: Composition) -> list[Fault]:
    """One fault for a kind set without its file, instead of one for each key that the file of another kind has."""
    made = selections.choices(composition.config)
    for override in composition.sources.values:
        place, _, last = override.key_or_group.rpartition(".")
        strange = [each for each in faults if each.path.startswith(f"{place}.") and "belongs to" in each.rule]
        if last == "kind" and strange:
            group = next((each for each in made if each.rpartition("@")[2] == place), place)
            rule = f"the file that is chosen for {place} has keys of another kind"
            fault = Fault(
                override.key_or_group, format_value(override.value()), rule, f"choose {group}={override.value()}"
            )
            faults = [fault, *(each for each in faults if each not in strange)]
    return faults


def check_composed(
    config: DictConfig, without: Sequence[str], folder: Path, permission: Permission
) -> tuple[RunSpec | None, list[Fault]]:
    """Checks a config that another app has composed with Hydra.

    Args:
        config: without the node `hydra`.
        without: keys at its top that belong to the app.
        folder: from which relative paths start.
        permission: which code the config may name.

    Returns:
        The spec, or None if the config is invalid, and all faults.
    """
    check_interpolations(config)
    container, unresolved = resolved(config, folder, without)
    expansion = patterns.expand(container, lambda: data_columns(container.get("data")))
    before = [*unresolved, *expansion.faults]
    spec, faults = _checked(container, before, permission, look_at_data=True, unknown=expansion.unknown)
    return spec, [*before, *patterns.folded(faults, expansion.origins)]


def runs_here(config: DictConfig) -> bool:
    """Whether a config is run on this machine: another launcher may have one with more memory."""
    found: Any = config.hydra.runtime.choices.get("hydra/launcher")
    return bool(found == _OWN_LAUNCHER)


def check_container(
    container: Mapping[str, Any], permission: Permission, *, here: bool
) -> tuple[RunSpec | None, list[Fault]]:
    """Checks a config that has been composed without faults.

    Args:
        permission: which code it may name.
        here: whether it is run on this machine.

    Returns:
        The spec, or None if the config is invalid, and all faults, without their sources.
    """
    return _checked(container, (), permission, look_at_data=True, here=here)


def check_spec(spec: RunSpec, permission: Permission) -> tuple[RunSpec | None, list[Fault]]:
    """Checks a spec that Python code may have made or changed without a check, as by `model_copy`.

    Args:
        permission: which code it may name.

    Returns:
        The spec, or None if it is invalid, and all faults.
    """
    return _checked(spec.model_dump(mode="json", warnings=False), (), permission, look_at_data=True)


def _checked(
    container: Mapping[str, Any],
    before: Sequence[Fault],
    permission: Permission,
    *,
    look_at_data: bool,
    here: bool = True,
    unknown: Sequence[str] = (),
) -> tuple[RunSpec | None, list[Fault]]:
    reported = {fault.path for fault in before} | set(unknown)
    named = [fault for fault in resources.name_faults(container) if fault.path not in reported]
    reported |= {fault.path for fault in named}
    spec, faults = validate.validate(container, reported=reported)
    known = spec if spec is not None and not reported else validate.partial_spec(container, reported)
    here = here and look_at_data
    between = list(run.rule_faults(known))
    fetch = not (reported or faults or between)  # nothing is downloaded for a run that can't be started
    between += resources.faults(known, permission, look_at_data=look_at_data, here=here, fetch=fetch)
    told = reported | {fault.path for fault in faults}
    return spec, [*named, *faults, *(fault for fault in between if fault.path not in told)]


def changed_spec(spec: RunSpec, texts: Sequence[str], loader: Loader, *, rule: str = RESUMED) -> RunSpec:
    """A recorded spec with overrides.

    Args:
        texts: overrides such as `train.epochs=40`.
        rule: why other settings can't change, for the error message.

    Raises:
        ConfigError: with all faults; an override of anything that decides the results before the resumption is one.
    """
    parsed, faults = parse(loader, texts)
    container: dict[str, Any] = spec.model_dump(mode="json")
    for override in parsed:
        path = override.key_or_group
        if not any(path == each or path.startswith(f"{each}.") for each in CHANGEABLE):
            faults.append(_unchangeable(path, format_value(override.value()), container, rule))
            continue
        _set(container, path.split("."), override.value())
    if faults:
        raise ConfigError(faults)
    changed, faults = validate.validate(container)
    if changed is not None:
        faults += run.rule_faults(changed)
    if changed is None or faults:
        raise ConfigError(validate.with_sources(faults, lambda path: "an override"))
    return changed


def _set(container: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Sets a value; what is no mapping on the way becomes one, so that validation reports the path."""
    node = container
    for key in keys[:-1]:
        if not isinstance(node.get(key), dict):
            node[key] = {}
        node = node[key]
    node[keys[-1]] = value


def _unchangeable(path: str, value: str, container: Any, rule: str) -> Fault:
    node: Any = container
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    was = "" if node is None else f" (it is {format_value(node)})"
    return Fault(
        path,
        value,
        f"{rule}{was}",
        f"only {', '.join(CHANGEABLE)} can change; start a new run for anything else",
    )
