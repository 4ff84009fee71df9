"""Hydra's process-wide settings: embexp's while it uses Hydra, then those of the caller again.

A notebook or another Hydra application may use them. Not thread-safe, like Hydra.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from hydra import version
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig, OmegaConf
from omegaconf.resolvers import oc

from embexp.errors import ConfigError, Fault

VERSION_BASE = "1.3"
JOB_NAME = "embexp"
_within: list[bool] = []
"""An entry for each block that is entered: the last one to be left restores what is the same for all."""
SECRET = "by its name, this environment variable is a secret: "


@contextlib.contextmanager
def borrowed(config: DictConfig | None = None) -> Iterator[None]:
    """Within the block, Hydra has embexp's settings; afterwards its previous ones.

    Args:
        config: resolves interpolations such as `${hydra:job.num}`; None: unchanged.
    """
    hydra, current = GlobalHydra.instance(), HydraConfig.instance()
    base, job = version.VersionBase.instance(), JobRuntime.instance()
    before = hydra.hydra, current.cfg, base.version_base, job.get("name")
    hydra.clear()
    version.setbase(VERSION_BASE)
    job.set("name", JOB_NAME)
    try:
        if config is not None:
            current.set_config(config)
        with _own_sweepers():
            yield
    finally:
        hydra.hydra, current.cfg, base.version_base, name = before
        job.set("name", name)


@contextlib.contextmanager
def recorded(config: DictConfig | None = None) -> Iterator[None]:
    """As `borrowed`, for values that a run records: `${oc.env:NAME}` of a file, which may be anybody's, has no secret.

    Args:
        config: resolves interpolations, and has the overrides of the command line, which may name a secret.
    """
    _within.append(True)
    OmegaConf.register_new_resolver("oc.env", _variable, replace=True)
    try:
        with borrowed():
            if config is not None:
                HydraConfig.instance().cfg = cast(Any, config)  # not set_config, which copies it
            yield
    finally:
        _within.pop()
        if not _within:
            OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


class UnresolvedError(ConfigError):
    """A setting of Hydra can't be resolved."""


def resolved(config: DictConfig, path: str, *, secrets: bool = True) -> Any:
    """A setting of Hydra as plain values, with interpolations resolved.

    Args:
        config: with the node `hydra`.
        secrets: whether it may have the value of an environment variable that is a secret by its name; see `recorded`.

    Raises:
        UnresolvedError: it can't be resolved, or is missing.
    """
    try:
        with borrowed() if secrets else recorded():
            HydraConfig.instance().cfg = cast(Any, config)  # not set_config, which copies it
            value = OmegaConf.select(config, path, throw_on_missing=True)
            return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except Exception as error:  # also of a resolver
        rule = f"it can't be resolved: {str(error).splitlines()[0].rstrip('.')}"
        raise UnresolvedError([Fault(path, "a value", rule)]) from error


def _variable(name: str, *default: Any) -> Any:
    """The value of an environment variable, as OmegaConf's own resolver has it.

    Raises:
        ValueError: by its name it is a secret, and the command line does not name it.
    """
    from embexp.records import manifest

    config: Any = HydraConfig.instance().cfg
    given: Any = {} if config is None else OmegaConf.to_container(config.hydra.overrides, resolve=False)
    words = [word for each in given.values() for word in each]
    if manifest.masked_value(name, "") == manifest.MASKED and not any(
        re.search(rf"oc\.env:{re.escape(name)}\b", word) for word in words
    ):
        raise ValueError(f"{SECRET}{name!r}")
    return oc.env(name, *default)


@contextlib.contextmanager
def _own_sweepers() -> Iterator[None]:
    """Within the block, `hydra/sweeper=optuna` is embexp's, even if hydra-optuna-sweeper is installed.

    That package stores a config of this name, which Hydra would take for the schema of embexp's file.
    """
    sweepers = ConfigStore.instance().repo.get("hydra", {}).get("sweeper", {})
    stored = sweepers.pop("optuna.yaml", None)
    try:
        yield
    finally:
        if stored is not None:
            sweepers["optuna.yaml"] = stored


def output_directory() -> Path | None:
    """The output directory of the job of a Hydra app that runs now; None: there is none."""
    config = _hydra_config()
    path = None if config is None else config.runtime.get("output_dir")
    return None if path is None else Path(path)


def started_in() -> Path:
    """The working directory in which the Hydra app that runs now was started; that of the process, if there is none."""
    config = _hydra_config()
    return Path.cwd() if config is None else Path(config.runtime.cwd)


def _hydra_config() -> Any:
    """The node `hydra` of the app that runs now; None: there is none."""
    if not HydraConfig.initialized():
        return None
    config: Any = HydraConfig.get()
    return None if "runtime" not in config or config.runtime.get("output_dir", None) is None else config
