"""Hydra's process-wide settings: embexp's while it uses Hydra, then those of the caller again.

A notebook or another Hydra application may use them. Not thread-safe, like Hydra.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hydra import version
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig

VERSION_BASE = "1.3"
JOB_NAME = "embexp"


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
