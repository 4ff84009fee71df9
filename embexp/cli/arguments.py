"""Parsing of a command's arguments."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from embexp.errors import CommandLineError

if TYPE_CHECKING:
    from embexp.config.folders import Folders
    from embexp.config.loader import Loader
    from embexp.config.permission import Permission

_HYDRA_ONLY = {
    "--info": "use --cfg hydra, or `embexp run --help` for the groups",
    "-i": "use --cfg hydra, or `embexp run --help` for the groups",
    "--hydra-help": "use --help",
    "--experimental-rerun": "run with the overrides in .hydra/overrides.yaml",
}
"""Options of Hydra that embexp does not have, and what to do instead."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `CommandLineError` and suggests the nearest option."""

    def __init__(self, command: str, usage: str) -> None:
        super().__init__(prog=f"embexp {command}", usage=usage, add_help=False, allow_abbrev=False)
        self.add_argument("-h", "--help", action="store_true")

    def error(self, message: str) -> NoReturn:
        """Raises the error instead of ending the process."""
        unknown = message.removeprefix("unrecognized arguments: ") if message.startswith("unrecognized") else ""
        hint = ""
        for argument in unknown.split():
            option = argument.partition("=")[0]
            if option in _HYDRA_ONLY:
                hint = f"{option} is an option of Hydra that embexp does not have: {_HYDRA_ONLY[option]}"
                break
            near = difflib.get_close_matches(option, self._option_string_actions, n=1)
            if near:
                hint = f"did you mean {near[0]}?"
                break
        text = f"{self.prog}: there is no option {unknown}" if unknown else f"{self.prog}: {message}"
        raise CommandLineError("\n".join([text, *([f"    {hint}"] if hint else []), f"    {self.prog} --help"]))


def add_allow_code(parser: Parser) -> None:
    """Adds the option that allows code by name."""
    parser.add_argument("--allow-code", action="append", default=[], metavar="MODULE:FUNCTION")


def add_config_arguments(parser: Parser) -> None:
    """Adds the arguments of commands that compose a config."""
    add_allow_code(parser)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-r", "--run", action="store_true")
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("-cp", "--config-path")
    parser.add_argument("-cn", "--config-name", default="config")


def config_folders(options: argparse.Namespace) -> Folders:
    """The config folders that the options name."""
    from embexp.config import folders

    return folders.find(Path(options.config_dir) if options.config_dir else None, config_path=options.config_path)


def config_loader(options: argparse.Namespace) -> Loader:
    """A loader that composes configs from these folders."""
    from embexp.config.loader import Loader

    return Loader(config_folders(options), options.config_name, permission(options))


def permission(options: argparse.Namespace) -> Permission:
    """The code that the configs may name."""
    from embexp.config.permission import Permission

    return Permission(frozenset(options.allow_code))


def is_multirun(options: argparse.Namespace) -> bool:
    """Whether to run a sweep: by -m, or by `hydra.mode`.

    Raises:
        CommandLineError: these contradict each other.
    """
    from embexp.config import mode

    if options.multirun and options.run:
        raise CommandLineError("-m runs several experiments, --run is for one")
    flag = True if options.multirun else False if options.run else None
    return mode.is_multirun(config_folders(options), options.config_name, options.overrides, flag=flag)
