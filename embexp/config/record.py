"""What Hydra keeps of a config in a run's directory, and where that directory is."""

from __future__ import annotations

from pathlib import Path

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from embexp.errors import ConfigError, Fault
from embexp.system import files


def run_directory(config: DictConfig) -> Path:
    """The directory that a single run asks for."""
    return _path(config, "hydra.run.dir")


def sweep_directory(config: DictConfig) -> Path:
    """The directory that a sweep asks for."""
    return _path(config, "hydra.sweep.dir")


def job_directory(config: DictConfig, number: int) -> Path:
    """Where a job of a sweep lies within the sweep's directory."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
    return _path(config, "hydra.sweep.subdir")


def of_sweep(config: DictConfig, directory: Path) -> None:
    """Notes in a config that it is part of a sweep, and the directory that the sweep got."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.mode = RunMode.MULTIRUN
        config.hydra.sweep.dir = str(directory.absolute())


def write(config: DictConfig, directory: Path) -> None:
    """Writes config.yaml, hydra.yaml and overrides.yaml as Hydra does, into `.hydra`."""
    if config.hydra.output_subdir is None:
        return
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.runtime.output_dir = str(directory.absolute())
        config.hydra.mode = config.hydra.mode or RunMode.RUN
    folder = directory / str(config.hydra.output_subdir)
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    hydra = OmegaConf.masked_copy(config, ["hydra"])
    for name, node in (("config", job), ("hydra", hydra), ("overrides", config.hydra.overrides.task)):
        files.write_text(folder / f"{name}.yaml", OmegaConf.to_yaml(node))


def _path(config: DictConfig, key: str) -> Path:
    try:
        return Path(str(OmegaConf.select(config, key, throw_on_missing=True)))
    except OmegaConfBaseException as error:
        raise ConfigError([Fault(key, "a path", f"it can't be resolved: {str(error).splitlines()[0]}")]) from error
