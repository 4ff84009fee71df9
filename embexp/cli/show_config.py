"""`embexp run --cfg`: the composed config, and what is wrong with it."""

from __future__ import annotations

import argparse

from omegaconf import Container, DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException

from embexp.config import composition, hydra_globals
from embexp.config.compose import compose
from embexp.errors import CommandLineError, ConfigError


def show(options: argparse.Namespace) -> int:
    """Prints the config as YAML.

    The config is shown with its faults too, which then follow as the error; data files are not looked at.

    Raises:
        ConfigError: it is wrong.
        CommandLineError: there is no such part, or it can't be resolved.
    """
    composed = compose(composition.loader(options.config_dir, options.config_name), options.overrides)
    _, faults = composition.check(composed, look_at_data=False)
    with hydra_globals.borrowed(composed.config):
        _print(_part(composed.config, options.cfg), options.package, resolve=options.resolve and not faults)
    if faults:
        raise ConfigError(faults)
    return 0


def _print(config: DictConfig, package: str | None, *, resolve: bool) -> None:
    if resolve:
        try:
            OmegaConf.resolve(config)
        except OmegaConfBaseException as error:
            raise CommandLineError(f"--resolve: {str(error).splitlines()[0]}") from error
    node = config
    if package is not None and package != "_global_":
        node = OmegaConf.select(config, package)
        if node is None:
            raise CommandLineError(f"--package {package}: the config has no such part")
        print(f"# @package {package}")
    print(OmegaConf.to_yaml(node) if isinstance(node, Container) else f"{node}\n", end="")


def _part(config: DictConfig, what: str) -> DictConfig:
    """A copy of the experiment's part, of Hydra's, or of both."""
    config = config.copy()
    OmegaConf.set_readonly(config, None)
    OmegaConf.set_readonly(config.hydra, None)
    with open_dict(config), flag_override(config, "struct", False):
        if what == "job":
            del config["hydra"]
        elif what == "hydra":
            for key in [key for key in config if key != "hydra"]:
                del config[key]
    return config
