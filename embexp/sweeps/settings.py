"""The settings of `hydra.launcher` and of the sweeper `optuna`, checked."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from embexp.config.loader import Loader
from embexp.config.messages import did_you_mean, format_value
from embexp.config.overrides import parse
from embexp.config.validate import rule_of, valid_values
from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.specs.running import Launching, SearchSettings
from embexp.specs.tracking import local_path
from embexp.system import files

LAUNCHER, SWEEPER = "hydra.launcher", "hydra.sweeper"
DEFAULT_TRIALS = 20
_Model = TypeVar("_Model", bound=BaseModel)


def storage_url(settings: SearchSettings, directory: Path) -> str:
    """Where Optuna keeps the study: `storage` if that is a URL, else a SQLite file."""
    if settings.storage is not None and "://" in settings.storage:
        return settings.storage
    path = directory / "optuna.sqlite" if settings.storage is None else Path(os.path.expanduser(settings.storage))
    return f"sqlite:///{path.absolute()}"


def storage_rule(settings: SearchSettings, directory: Path) -> str:
    """Why the storage is a file of something else; "" if it is not, or not on a disk."""
    place = local_path(storage_url(settings, directory))
    return "" if place is None else files.database(place, ("studies", "trials", "version_info"))


def checked_search_settings(content: Mapping[str, Any] | DictConfig) -> SearchSettings:
    """The settings of a search.

    Args:
        content: of the node `hydra.sweeper`, or the config of a sweep.

    Raises:
        CommandLineError: Optuna is not installed.
        ConfigError: with all faults.
    """
    if importlib.util.find_spec("optuna") is None:
        raise CommandLineError(
            "hydra/sweeper=optuna needs the package optuna, which is not installed\n    pip install 'embexp[sweeps]'"
        )
    return _validated(SearchSettings, content, SWEEPER)


def changed_launching(recorded: Mapping[str, Any], overrides: Sequence[str], loader: Loader) -> Launching:
    """Recorded settings with overrides such as `hydra.launcher.jobs=2`, to resume a sweep with.

    Raises:
        ConfigError: with all faults; an override of anything else is one.
    """
    parsed, faults = parse(loader, overrides)
    content = dict(recorded)
    for override in parsed:
        place, _, key = override.key_or_group.rpartition(".")
        if place == LAUNCHER:
            content[key] = override.value()
        else:
            rule = "a sweep is resumed as it was planned"
            remedy = f"only {LAUNCHER} can change, such as {LAUNCHER}.jobs=2; for anything else, start a new sweep"
            faults.append(Fault(override.key_or_group, format_value(override.value()), rule, remedy))
    if faults:
        raise ConfigError(faults)
    return checked_launching(content)


def checked_launching(content: Mapping[str, Any] | DictConfig) -> Launching:
    """Validates the settings of embexp's own launcher.

    Args:
        content: of its node, or the config of a sweep.

    Raises:
        ConfigError: with all faults.
    """
    return _validated(Launching, content, LAUNCHER)


def _node(config: DictConfig, path: str) -> dict[str, Any]:
    """A node of Hydra's as plain values."""
    try:
        content: Any = OmegaConf.to_container(
            config.hydra[path.removeprefix("hydra.")], resolve=True, throw_on_missing=True
        )
    except OmegaConfBaseException as error:
        raise ConfigError([Fault(path, "a mapping", f"it can't be resolved: {str(error).splitlines()[0]}")]) from None
    before = {"direction"}  # a key of sweeps that were recorded earlier, which said what the metric says
    return {key: each for key, each in content.items() if key != "_target_" and not (key in before and each is None)}


def _validated(model: type[_Model], content: Mapping[str, Any] | DictConfig, path: str) -> _Model:
    """A node's values as a model."""
    if isinstance(content, DictConfig):
        content = _node(content, path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found: dict[str, dict[str, str]] = {}
        for each in error.errors():
            key = str(each["loc"][0])
            if each["type"] == "extra_forbidden":
                rule = f"{path} has no key {key!r}"
                remedy = did_you_mean(key, model.model_fields) or f"its keys: {', '.join(model.model_fields)}"
            else:
                rule = rule_of(each)
                remedy = did_you_mean(str(each["input"]), valid_values(each))
            found.setdefault(key, {}).setdefault(rule, remedy)
    faults = [
        Fault(f"{path}.{key}", format_value(content.get(key)), ", or ".join(of_key), next(iter(of_key.values())))
        for key, of_key in found.items()
    ]
    raise ConfigError(faults)
