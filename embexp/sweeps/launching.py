"""`hydra.launcher`: how the jobs of a sweep are run, checked like every other setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from embexp.config import pydantic_errors
from embexp.config.loader import Loader
from embexp.config.nearest import did_you_mean
from embexp.config.overrides import parse
from embexp.config.shown import shown
from embexp.errors import ConfigError, Fault
from embexp.specs.sweeping import Launching

_PATH = "hydra.launcher"


def read(config: DictConfig) -> Launching:
    """The settings of a composed config.

    Raises:
        ConfigError: with all faults.
    """
    try:
        content: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError([Fault(_PATH, "a mapping", f"it can't be resolved: {str(error).splitlines()[0]}")]) from None
    return checked({key: value for key, value in content.items() if key != "_target_"})


def changed(recorded: Mapping[str, Any], overrides: Sequence[str], loader: Loader) -> Launching:
    """Recorded settings with overrides such as `hydra.launcher.jobs=2`, to resume a sweep with.

    Raises:
        ConfigError: with all faults; an override of anything else is one.
    """
    parsed, faults = parse(loader, overrides)
    content = dict(recorded)
    for override in parsed:
        place, _, key = override.key_or_group.rpartition(".")
        if place == _PATH:
            content[key] = override.value()
        else:
            rule = "a sweep is resumed as it was planned"
            remedy = f"only {_PATH} can change, such as {_PATH}.jobs=2; start a new sweep for anything else"
            faults.append(Fault(override.key_or_group, shown(override.value()), rule, remedy))
    if faults:
        raise ConfigError(faults)
    return checked(content)


def checked(content: Mapping[str, Any]) -> Launching:
    """Validates the settings.

    Raises:
        ConfigError: with all faults.
    """
    try:
        return Launching.model_validate(content)
    except ValidationError as error:
        rules: dict[str, list[str]] = {}
        for each in error.errors():
            rules.setdefault(str(each["loc"][0]), []).append(_rule(str(each["loc"][0]), each["type"], each))
    faults = []
    for key, found in rules.items():
        near = "" if key in Launching.model_fields else did_you_mean(key, Launching.model_fields)
        remedy = near or ("" if key in Launching.model_fields else f"its keys: {', '.join(Launching.model_fields)}")
        faults.append(Fault(f"{_PATH}.{key}", shown(content.get(key)), ", or ".join(dict.fromkeys(found)), remedy))
    raise ConfigError(faults)


def _rule(key: str, kind: str, error: Any) -> str:
    return f"the launcher has no key {key!r}" if kind == "extra_forbidden" else pydantic_errors.rule_of(error)
