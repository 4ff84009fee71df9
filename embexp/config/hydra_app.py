"""Runs inside a `@hydra.main` app of the user's own: its config as a spec, and its output directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.config.permission import Permission
from embexp.errors import ConfigError, UsageError
from embexp.specs import arguments
from embexp.specs.run import RunSpec

if TYPE_CHECKING:
    from omegaconf import DictConfig


def spec_of(cfg: DictConfig, *, without: Sequence[str] = (), allow_code: Sequence[str] = ()) -> RunSpec:
    """The spec of a config that Hydra has composed, in a `@hydra.main` app or with `hydra.compose`.

    The config is checked against every rule, as by `embexp.compose`. Relative paths start from the working directory
    in which the app was started, also with `hydra.job.chdir=true`.

    Args:
        cfg: composed from embexp's groups (`pkg://embexp.conf`); interpolations are resolved.
        without: keys at the top of `cfg` that belong to the app, and not to embexp.
        allow_code: functions outside of the user's own modules that the config may name, such as `["keras:Model"]`.

    Raises:
        UsageError: `cfg` is no DictConfig, or lacks a key of `without`.
        ConfigError: with all faults.
    """
    from omegaconf import DictConfig

    from embexp.config import composition

    if not isinstance(cfg, DictConfig):
        remedy = "embexp.compose takes overrides, embexp.RunSpec.model_validate a plain mapping"
        raise UsageError(f"embexp.spec_of takes a DictConfig of Hydra, not {type(cfg).__name__}; {remedy}")
    own = arguments.overrides(without, "embexp.spec_of(without=…)") if without else []
    allowed = arguments.texts(allow_code, "embexp.spec_of", "allow_code")
    if missing := [key for key in own if key not in cfg]:
        raise UsageError(f"embexp.spec_of: without names {', '.join(missing)}, which the config does not have")
    spec, faults = composition.check_composed(cfg, own, _started_in(), Permission(frozenset(allowed)))
    if spec is None or faults:
        raise ConfigError(faults)
    return spec


def output_directory() -> Path | None:
    """The output directory of the job of a Hydra app that runs now; None: there is none."""
    config = _hydra_config()
    path = None if config is None else config.runtime.get("output_dir")
    return None if path is None else Path(path)


def _started_in() -> Path:
    config = _hydra_config()
    return Path.cwd() if config is None else Path(config.runtime.cwd)


def _hydra_config() -> Any:
    """The node `hydra` of the app that runs now; None: there is none."""
    module = sys.modules.get("hydra.core.hydra_config")
    if module is None or not module.HydraConfig.initialized():
        return None
    config = module.HydraConfig.get()
    return None if "runtime" not in config or config.runtime.get("output_dir", None) is None else config
