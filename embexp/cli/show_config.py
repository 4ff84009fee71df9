"""`embexp run --cfg`: the composed config, and its faults."""

from __future__ import annotations

import argparse

from omegaconf import Container, DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException

from embexp.cli.arguments import config_loader
from embexp.config import composition, hydra_globals
from embexp.config.composing.compose import compose
from embexp.errors import CommandLineError, ConfigError
from embexp.system import printable
from embexp.system.printable import print


def show(options: argparse.Namespace) -> int:
    """Prints the config as YAML.

    A config with faults is printed, too, and then raised as the error. Data files are not read.

    Raises:
        ConfigError: the config has faults.
        CommandLineError: the config has no such node, or it can't be resolved.
    """
    composed = compose(config_loader(options), options.overrides)
    _, faults = composition.check(composed, look_at_data=False)
    with hydra_globals.borrowed(composed.config):
        _print(_selected(composed.config, options.cfg), options.package, resolve=options.resolve and not faults)
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
            raise CommandLineError(f"--package {package}: the config has no such node")
        print(f"# @package {package}")
    printable.write_data(OmegaConf.to_yaml(node) if isinstance(node, Container) else f"{node}\n")


def _selected(config: DictConfig, what: str) -> DictConfig:
    """A copy of the experiment's config (job), of Hydra's (hydra), or of both (all)."""
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
