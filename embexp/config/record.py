"""Hydra's files in the `.hydra` of a run, and the directories of runs and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from embexp.config import hydra_globals
from embexp.errors import ConfigError, Fault
from embexp.system import files


def note_overrides(overrides: Sequence[Override], config: DictConfig) -> None:
    """Records the overrides of a config in the config, as Hydra does."""
    task = [str(each.input_line) for each in overrides if not each.is_hydra_override()]
    settings = config.hydra.job.config.override_dirname
    named = [
        str(each.input_line)
        for each in overrides
        if not each.is_hydra_override() and each.key_or_group not in settings.exclude_keys
    ]
    config.hydra.overrides.task = task
    config.hydra.overrides.hydra = [str(each.input_line) for each in overrides if each.is_hydra_override()]
    config.hydra.job.override_dirname = settings.item_sep.join(sorted(named)).replace("=", settings.kv_sep)


def run_directory(config: DictConfig) -> Path:
    """The directory of a single run."""
    return _path(config, "hydra.run.dir")


def is_dated(config: DictConfig) -> bool:
    """Whether the directory of a single run is named by the time, and so is a new one each time."""
    return "${now:" in str(OmegaConf.to_container(config.hydra.run, resolve=False))


def sweep_directory(config: DictConfig) -> Path:
    """The directory of a sweep."""
    return _path(config, "hydra.sweep.dir")


def job_directory(config: DictConfig, number: int) -> Path:
    """The directory of a job, relative to its sweep's."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
    return _path(config, "hydra.sweep.subdir")


def note_sweep(config: DictConfig, directory: Path) -> None:
    """Records in a config that it belongs to a sweep, and the sweep's directory."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.mode = RunMode.MULTIRUN
        config.hydra.sweep.dir = str(directory.absolute())


def write(config: DictConfig, directory: Path) -> None:
    """Writes config.yaml, hydra.yaml and overrides.yaml as Hydra does, into `.hydra`."""
    for name, text in texts(config, directory).items():
        files.write_text(directory / name, text)


def texts(config: DictConfig, directory: Path) -> dict[str, str]:
    """The content of the files that Hydra writes for a run, by their path in the run's directory.

    Args:
        directory: of the run; it need not exist.
    """
    if config.hydra.output_subdir is None:
        return {}
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.runtime.output_dir = str(directory.absolute())
        config.hydra.mode = config.hydra.mode or RunMode.RUN
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    hydra = OmegaConf.masked_copy(config, ["hydra"])
    nodes = {"config": job, "hydra": hydra, "overrides": config.hydra.overrides.task}
    return {f"{config.hydra.output_subdir}/{name}.yaml": OmegaConf.to_yaml(node) for name, node in nodes.items()}


def _path(config: DictConfig, key: str) -> Path:
    try:
        with hydra_globals.recorded(config):
            return Path(str(OmegaConf.select(config, key, throw_on_missing=True)))
    except OmegaConfBaseException as error:
        raise ConfigError([Fault(key, "a path", f"it can't be resolved: {str(error).splitlines()[0]}")]) from error
