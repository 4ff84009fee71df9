"""Parsing of a command's arguments."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from embexp.cli.commands import COMMANDS, HelpShown, module_of
from embexp.errors import CommandLineError
from embexp.specs import fields
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.config.folders import Folders
    from embexp.config.loader import Loader
    from embexp.config.named_code import Permission

WHICH_RUN = "which run? Give its directory"
_HYDRA_ONLY = {
    "--info": "use --cfg hydra, or `embexp run --help` for the groups",
    "-i": "use --cfg hydra, or `embexp run --help` for the groups",
    "--hydra-help": "use --help",
    "--experimental-rerun": "run with the overrides in .hydra/overrides.yaml",
}
"""Options of Hydra that embexp does not have, and what to do instead."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `CommandLineError` and suggests the nearest option."""

    def __init__(self, command: str, help_text: str) -> None:
        """Takes the whole help, whose first line is the usage."""
        usage = help_text.partition("\n")[0].removeprefix("usage: ")
        super().__init__(prog=f"embexp {command}", usage=usage, add_help=False, allow_abbrev=False)
        self.switches("-h", "--help")
        self._help = help_text
        self._questions: dict[str, str] = {}

    @classmethod
    def of_run(cls, command: str, help_text: str) -> Parser:
        """The parser of a command that takes the directory of a run, and the code that its record may name."""
        parser = cls(command, help_text)
        parser.needs("directory", WHICH_RUN)
        add_allow_code(parser)
        return parser

    def switches(self, *names: str) -> None:
        """Adds options without a value. One of a single dash is short for the next."""
        waiting: list[str] = []
        for name in names:
            waiting.append(name)
            if name.startswith("--"):
                self.add_argument(*waiting, action="store_true")
                waiting = []

    def values(self, *names: str) -> None:
        """Adds options with a text as their value."""
        for name in names:
            self.add_argument(name)

    def needs(self, name: str, question: str, **kind: Any) -> None:
        """Adds an argument, or an option, without which the command has nothing to do.

        Args:
            question: what to say where it is missing.
        """
        self.add_argument(name, **({} if name.startswith("-") else {"nargs": "?"}) | kind)
        self._questions[name.lstrip("-")] = question

    def parse(
        self, arguments: Sequence[str], faults: Callable[[argparse.Namespace], Iterable[str]] = lambda _: ()
    ) -> argparse.Namespace:
        """The options.

        Args:
            faults: what is wrong with options that can be parsed.

        Raises:
            HelpShown: the user has asked for the help, which is printed.
            CommandLineError: with all faults.
        """
        options = self.parse_intermixed_args(list(arguments))
        if options.help:
            print(self._help, end="")
            raise HelpShown
        found = [question for name, question in self._questions.items() if not getattr(options, name)]
        if found := [*found, *faults(options)]:
            raise self.incomplete(*found)
        return options

    def error(self, message: str) -> NoReturn:
        """Raises the error instead of ending the process."""
        unknown = message.removeprefix("unrecognized arguments: ") if message.startswith("unrecognized") else ""
        if unknown:
            what = "option" if unknown.startswith("-") else "argument"
            text, hint = f"there is no {what} {unknown}", self._hint(unknown.split())
        else:
            text, hint = _in_words(message)
        lines = [f"{self.prog}: {text}", *([f"    {hint}"] if hint else []), f"    {self.prog} --help"]
        raise CommandLineError("\n".join(lines))

    def incomplete(self, *faults: str) -> CommandLineError:
        """The error of a command line that lacks something or does not fit: its faults, at least one, and the usage."""
        return CommandLineError("\n    ".join([f"{self.prog}: {faults[0]}", *faults[1:], f"usage: {self.usage}"]))

    def _hint(self, unknown: Sequence[str]) -> str:
        """What an unknown argument may have been meant for."""
        for argument in unknown:
            option, equals, value = argument.partition("=")
            if option in _HYDRA_ONLY:
                return f"{option} is an option of Hydra that embexp does not have: {_HYDRA_ONLY[option]}"
            if option.startswith("--") and option[2:] in self._questions:
                return f"give {option[2:].upper()} in its place, without {option}"
            if equals and not any(action.dest == "overrides" for action in self._actions):
                return "a finished run has its settings: overrides are for run, plan and resume"
            if near := difflib.get_close_matches(option, self._option_string_actions, n=1, cutoff=0.75):
                return f"did you mean {near[0]}?"
            if equals and option.startswith("-"):
                return f"an override has no dashes: {option.lstrip('-')}={value}"
            if "--data" in self._option_string_actions and os.path.exists(argument):
                return f"name files of data with --data: --data {argument}"
            if owners := _commands_with(option):
                return f"{option} is an option of {', '.join(owners[:3])}{', …' if len(owners) > 3 else ''}"
        return ""


def _in_words(message: str) -> tuple[str, str]:
    """A message of argparse in the words of other errors, and a hint."""
    option, _, problem = message.removeprefix("argument ").partition(": ")
    option = option.rpartition("/")[2]
    if problem == "expected one argument":
        return f"{option} needs a value", ""
    if found := re.fullmatch(r"invalid choice: (.*) \(choose from (.*)\)", problem):
        value, valid = found[1].strip("'"), re.findall(r"'([^']*)'", found[2])
        near = difflib.get_close_matches(value, valid, n=1)
        hint = f"did you mean {near[0]}?" if near else ""
        return f"{option} {value}: it must be {', '.join(valid[:-1])} or {valid[-1]}", hint
    if found := re.fullmatch(r"invalid int value: '(.*)'", problem):
        return f"{option} {found[1]}: it must be a whole number", ""
    return message, ""


def _commands_with(option: str) -> list[str]:
    """The commands whose help describes an option."""
    if not re.fullmatch(r"--[a-z][a-z-]+", option):
        return []
    found = []
    for command in COMMANDS:
        module = module_of(command)
        texts = {f"{command} {each}": module.subcommand(each)[1] for each in getattr(module, "SUBCOMMANDS", ())}
        for name, text in (texts or {command: module.HELP}).items():
            if re.search(rf"(?<![\w-]){option}(?![\w-])", text):
                found.append(f"embexp {name}")
    return found


def add_allow_code(parser: Parser) -> None:
    """Adds the option that allows code by name."""

    def allowed(path: str) -> str:
        fields.allow([path])  # before a record is read that names it as a field
        return path

    parser.add_argument("--allow-code", action="append", default=[], type=allowed, metavar="MODULE:FUNCTION")


def add_config_arguments(parser: Parser) -> None:
    """Adds the arguments of commands that compose a config."""
    add_config_folders(parser)
    parser.add_argument("overrides", nargs="*")
    parser.switches("-m", "--multirun", "-r", "--run")


def add_config_folders(parser: Parser) -> None:
    """Adds the options that say where configs are, and what code they may name."""
    add_allow_code(parser)
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("-cp", "--config-path")
    parser.add_argument("-cn", "--config-name", default="config")


def config_folders(options: argparse.Namespace) -> Folders:
    """The config folders that the options name, with those of the fields that the config names."""
    from embexp.config import folders

    found = folders.find(Path(options.config_dir) if options.config_dir else None, config_path=options.config_path)

    def refusal(path: str) -> str:
        return replace(permission(options), folders=tuple(found.in_order)).refusal(path)

    return folders.take_in_fields(
        found, options.config_name, options.overrides, refusal, lambda path: permission(options).remedy(path)
    )


def config_loader(options: argparse.Namespace) -> Loader:
    """A loader that composes configs from these folders."""
    from embexp.config.loader import Loader

    return Loader(config_folders(options), options.config_name, permission(options))


def permission(options: argparse.Namespace) -> Permission:
    """The code that the configs may name."""
    from embexp.config.named_code import Permission

    return Permission(frozenset(options.allow_code))


def is_multirun(options: argparse.Namespace) -> bool:
    """Whether to run a sweep: by -m, or by `hydra.mode`.

    Raises:
        CommandLineError: these contradict each other.
    """
    from embexp.config import folders

    if options.multirun and options.run:
        raise CommandLineError("-m runs several experiments, --run is for one")
    flag = True if options.multirun else False if options.run else None
    return folders.is_multirun(config_folders(options), options.config_name, options.overrides, flag=flag)
