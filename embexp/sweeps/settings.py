"""The settings of `hydra.launcher` and of the sweeper `optuna`, checked."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from embexp.config.loader import Loader
from embexp.config.messages import did_you_mean, format_value
from embexp.config.overrides import parse
from embexp.config.validate import rule_of, valid_values
from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.specs.running import Launching
from embexp.specs.tracking import local_path
from embexp.system import files

LAUNCHER, SWEEPER = "hydra.launcher", "hydra.sweeper"
DEFAULT_TRIALS = 20
Count = Annotated[int, Field(strict=True, ge=1)]
_Model = TypeVar("_Model", bound=BaseModel)
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)? ?(?:(\d+(?:\.\d+)?)h)? ?(?:(\d+(?:\.\d+)?)m)? ?(?:(\d+(?:\.\d+)?)s)?")
_SECONDS = (86400, 3600, 60, 1)


def seconds_of(duration: Any) -> float:
    """The seconds of a duration such as `2h`, `90m`, `1h 30m` or `45s`; 0 if it is none."""
    found = _DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        return 0.0
    return sum(float(part) * each for part, each in zip(found.groups("0"), _SECONDS, strict=True))


def _duration(value: Any) -> Any:
    if not 0 < seconds_of(value) < math.inf:
        raise PydanticCustomError("duration", "it must be a duration with a unit, such as 2h, 90m, 1h 30m or 45s")
    return value


Duration = Annotated[str, BeforeValidator(_duration)]
"""Text; see `seconds_of`."""


class SamplerKind(StrEnum):
    """How the settings of the next trials are chosen."""

    TPE = "tpe"
    RANDOM = "random"
    CMAES = "cmaes"


class PrunerKind(StrEnum):
    """How trials are ended whose evaluations are worse than those of others."""

    NONE = "none"
    MEDIAN = "median"
    HYPERBAND = "hyperband"


class SearchSettings(BaseModel):
    """The node `hydra.sweeper`; see `conf/hydra/sweeper/optuna.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n_trials: Count | None = None
    budget: Duration | None = None
    n_jobs: Count | None = None
    sampler: SamplerKind = SamplerKind.TPE
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    pruner: PrunerKind = PrunerKind.NONE
    study_name: Annotated[str, Field(min_length=1)] | None = None
    storage: Annotated[str, Field(min_length=1)] | None = None
    params: dict[str, Any] | None = None

    def storage_url(self, directory: Path) -> str:
        """Where Optuna keeps the study: `storage` if that is a URL, else a SQLite file."""
        if self.storage is not None and "://" in self.storage:
            return self.storage
        path = directory / "optuna.sqlite" if self.storage is None else Path(os.path.expanduser(self.storage))
        return f"sqlite:///{path.absolute()}"

    def storage_rule(self, directory: Path) -> str:
        """Why the storage is a file of something else; "" if it is not, or not on a disk."""
        place = local_path(self.storage_url(directory))
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
