"""The keys, choices and mode of a config, without Hydra: in milliseconds, for shell completion.

Reads the defaults lists as Hydra does, for files as this project writes them; it resolves and checks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from embexp.config import yaml_files
from embexp.config.folders import Folders
from embexp.errors import CommandLineError

_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_DEEPEST = 20
"""Most levels of nested files, and most rounds: a defaults list may lead back to itself."""
_MOST_FILES = 1_000
"""Most files to read, for the same reason."""

Choice = str | Sequence[str] | None
_MODE = "hydra.mode"
RUN, MULTIRUN = "RUN", "MULTIRUN"


@dataclass
class Outline:
    """The outline of a config.

    Attributes:
        values: nested mappings; leaves are as the files have them, interpolations included.
        choices: what each group chooses, by `group` or `group@package`; None: nothing.
        named_by: the file whose defaults list names a config such as `optimizer/adam`, there or not.
    """

    values: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    named_by: dict[str, Path] = field(default_factory=dict)


def at(node: Any, path: str) -> Any:
    """The node or leaf at a dotted path of nested mappings and lists; None where there is none."""
    for key in filter(None, path.split(".")):
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            node = node.get(key) if isinstance(node, Mapping) else None
    return node


def paths(node: object, prefix: str = "") -> Iterator[str]:
    """Every dotted path of a config, without Hydra's own."""
    for key, child in node.items() if isinstance(node, dict) else ():
        path = f"{prefix}{key!s}"
        if path != "hydra":
            yield path
            yield from paths(child, f"{path}.")


Content = Callable[[Path], tuple[dict[str, Any], str | None]]
"""Reads a file: what it holds, and the package of its header. The mapping is not changed."""


def outline(
    folders: Folders,
    config_name: str = "config",
    chosen: Mapping[str, Choice] | None = None,
    *,
    content: Content | None = None,
) -> Outline:
    """The outline of a config.

    Args:
        content: reads a file; None: as YAML 1.1.
    """
    overrides: dict[str, Choice] = dict(chosen or {})
    for _ in range(_DEEPEST):  # a file that is chosen may choose others, which are read in the next round
        reader = _Reader(folders, overrides, content or _content)
        reader.read(config_name, package="", depth=0)
        found = {**reader.overrides, **(chosen or {})}
        if found == overrides:
            break
        overrides = found
    for group, choice in found.items():
        if group.startswith("hydra/"):  # in the defaults list of Hydra, which is not read
            reader.found.choices[group] = choice
            reader.read(f"{group}/{choice}", package=group.replace("/", "."), depth=1)
    return reader.found


class _Reader:
    """Reads files with known overrides, and collects the overrides that they contain."""

    def __init__(self, folders: Folders, chosen: Mapping[str, Choice], content: Content) -> None:
        self.found = Outline()
        self.overrides: dict[str, Choice] = {}
        self._folders = folders
        self._chosen = chosen
        self._content = content

    def read(self, config: str, *, package: str, depth: int) -> None:
        """Merges a file and all that its defaults list includes.

        Args:
            package: where its keys go, unless its header says otherwise.
        """
        file = self._folders.file(config)
        if file is None or depth > _DEEPEST or len(self.found.files) == _MOST_FILES:
            return
        self.found.files.append(file)
        content, header = self._content(file)
        if header is not None and header != "_group_":
            package = "" if header == "_global_" else header
        group = config.rpartition("/")[0]
        entries = content.get("defaults")
        content = {key: value for key, value in content.items() if key != "defaults"}
        own_last = True
        for entry in entries if isinstance(entries, list) else ():
            if entry == "_self_":
                _merge(self.found.values, package, content)
                own_last = False
            else:
                self._include(entry, file, group=group, package=package, depth=depth)
        if own_last:
            _merge(self.found.values, package, content)

    def _include(self, entry: Any, file: Path, *, group: str, package: str, depth: int) -> None:
        if isinstance(entry, str):
            name, _, place = entry.partition("@")
            self.found.named_by.setdefault(_absolute(name, group), file)
            self.read(_absolute(name, group), package=_joined(package, place), depth=depth + 1)
            return
        for key, choice in entry.items() if isinstance(entry, dict) else ():
            words = str(key).split()
            if not words:  # no group, which composing reports
                continue
            name, _, place = words[-1].partition("@")
            target = _absolute(name, group)
            relative = name.removeprefix("/").replace("/", ".")
            within = "" if place.startswith("_global_") else package
            place = _joined(within, place.removeprefix("_global_").removeprefix(".") if place else relative)
            for each in _each(choice):
                self.found.named_by.setdefault(f"{target}/{each}", file)
            named = target if place == target.replace("/", ".") else f"{target}@{place}"
            if "override" in words[:-1]:
                self.overrides[named] = choice
                continue
            made = self._chosen.get(named, choice)
            self.found.choices[named] = made
            for each in _each(made):
                self.read(f"{target}/{each}", package=place, depth=depth + 1)


def package_of(file: Path) -> str | None:
    """The package in a file's header, such as `_global_`; None: it has no header."""
    try:
        header = _PACKAGE.search(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return header and header.group(1)


def keys_of(file: Path) -> list[str]:
    """The keys at the top of a file."""
    return [str(key) for key in _content(file)[0]]


def _content(file: Path) -> tuple[dict[str, Any], str | None]:
    """What a file holds, and the package of its header."""
    try:
        content = yaml_files.load(file)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}, None
    return (content if isinstance(content, dict) else {}), package_of(file)


def _absolute(name: str, group: str) -> str:
    return name.removeprefix("/") if name.startswith("/") or not group else f"{group}/{name}"


def _joined(package: str, place: str) -> str:
    return ".".join(filter(None, (package, place)))


def _each(choice: Choice) -> Sequence[str]:
    return [choice] if isinstance(choice, str) else choice if isinstance(choice, list) else []


def _merge(values: dict[str, Any], package: str, content: Mapping[str, Any]) -> None:
    node = values
    for key in filter(None, package.split(".")):
        inner = node.get(key)
        if not isinstance(inner, dict):
            inner = node[key] = {}
        node = inner
    _merge_into(node, content)


def _merge_into(node: dict[str, Any], content: Mapping[str, Any]) -> None:
    for key, value in content.items():
        inner = node.get(key)
        if isinstance(value, Mapping):
            if not isinstance(inner, dict):
                inner = node[str(key)] = {}
            _merge_into(inner, value)
        else:
            node[str(key)] = value


def is_multirun(folders: Folders, config_name: str, overrides: Sequence[str], *, flag: bool | None) -> bool:
    """Whether to run a sweep.

    Args:
        flag: True for -m, False for --run, None for neither.

    Raises:
        CommandLineError: the option and `hydra.mode` contradict each other.
    """
    pairs = [text.lstrip("+").partition("=") for text in overrides]
    given = [value.strip("'\"") for key, _, value in pairs if key == _MODE]
    if given:
        mode, source = given[-1], "the command line"
    else:
        chosen = {key: value for key, _, value in pairs if folders.is_group(key.partition("@")[0])}
        mode, source = at(outline(folders, config_name, chosen).values, _MODE), "a file"
    if mode not in (RUN, MULTIRUN):  # null, or a fault that composing reports
        return bool(flag)
    if flag is not None and flag != (mode == MULTIRUN):
        option = "-m" if flag else "--run"
        raise CommandLineError(f"{option} contradicts {_MODE}={mode}, set in {source}: leave one of them out")
    return mode == MULTIRUN
