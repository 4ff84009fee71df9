"""The files of configs, without Hydra: folders, groups and choices, YAML within bounds, and the outline of a config.

The outline is the keys, choices and mode of a config, found in milliseconds, for shell completion. It reads the
defaults lists as Hydra does, for files as this project writes them; it resolves and checks nothing.

PyYAML and OmegaConf copy what an alias stands for and recurse into nested values, so a file of a kilobyte may take all
memory. The events of libyaml's parser are counted first, in time linear in the length of the file.

What a field brings can be chosen only once it is known, so `fields: [package.module:FIELD]` is read before a config is
composed, and the fields are taken in: from the command line, else from the user's own files.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent, ScalarEvent

from embexp.config.messages import format_value
from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.specs import fields
from embexp.system import user_code

EXPERIMENT = "experiment"
"""The group of experiments."""
_MOST_FILES = 20_000
"""Files and folders that a folder of configs may hold: looking at all of a disk would take minutes."""


@dataclass(frozen=True)
class Folders:
    """The folders that configs are read from.

    Attributes:
        shipped: the folder that comes with embexp, or the one that replaces it (`--config-path`).
        user: the user's own (`--config-dir`); its files override shipped ones of the same name.
        brought: those of fields that embexp does not ship.
    """

    shipped: Path
    user: Path | None = None
    brought: tuple[Path, ...] = ()

    @property
    def in_order(self) -> Sequence[Path]:
        """The folders in the order in which they are searched."""
        return (*(() if self.user is None else (self.user,)), self.shipped, *self.brought)

    def file(self, config: str) -> Path | None:
        """The file of a config such as `optimizer/adam`, or None."""
        for folder in self.in_order:
            path = folder / f"{config}.yaml"
            if os.path.isfile(path):  # unlike that of a Path, false for a name that is too long
                return path
        return None

    def is_group(self, name: str) -> bool:
        """Whether a folder of that name holds choices."""
        return bool(name) and any(os.path.isdir(folder / name) for folder in self.in_order)

    @functools.cached_property
    def choices(self) -> Mapping[str, Mapping[str, Path]]:
        """Files by choice, by group, both in alphabetical order, as they are at first. Without Hydra's own groups.

        Experiments may be in folders of their group: `experiment=published/umls`.
        """
        found: dict[str, dict[str, Path]] = {}
        for folder in reversed(self.in_order):
            for path in _yaml_files(folder):
                name = path.relative_to(folder).with_suffix("")
                top = name.parts[0]
                group = top if top == EXPERIMENT else name.parent.as_posix()
                if top != "hydra":
                    found.setdefault(group, {})[name.relative_to(group).as_posix()] = path
        return {group: dict(sorted(found[group].items())) for group in sorted(found)}


def _yaml_files(folder: Path) -> Iterator[Path]:
    """The YAML files in the folders of a folder.

    Raises:
        CommandLineError: there is more in them than a folder of configs has: it may be `/`, or somebody's home.
    """
    seen = 0
    for group in sorted(folder.iterdir()):
        for place, folders, names in os.walk(group) if group.is_dir() else ():
            seen += len(folders) + len(names)
            if seen > _MOST_FILES:
                rule = f"it contains more than {_MOST_FILES:,} files and folders"
                raise CommandLineError(f"{folder}: {rule}\n    name a folder that holds only the configs")
            yield from (Path(place, name) for name in names if name.endswith(".yaml"))


def find(config_dir: Path | None = None, *, config_path: str | None = None) -> Folders:
    """The shipped folder, as installed or in a checkout, the user's, and those of fields.

    Args:
        config_path: a folder, or `pkg://` and the name of a package, which replaces the shipped one.

    Raises:
        CommandLineError: one of them is not a folder.
    """
    if config_dir is not None and not os.path.isdir(config_dir):
        raise CommandLineError(f"--config-dir {config_dir}: there is no such folder")
    first = shipped() if config_path is None else _replacing(config_path)
    user = None if config_dir is None else config_dir.absolute()
    return Folders(first, user, tuple(map(Path, fields.configs())))


def shipped() -> Path:
    """The folder that comes with embexp."""
    return Path(fields.shipped_configs())


def _replacing(config_path: str) -> Path:
    name = config_path.removeprefix("pkg://")
    if name == config_path:
        folder: Path | None = Path(os.path.expanduser(config_path)).absolute()
    else:
        folder = _of_package(*name.replace("/", ".").split("."))
    if folder is None or not os.path.isdir(folder):
        raise CommandLineError(
            f"--config-path {config_path}: there is no such {'folder' if name == config_path else 'package'}"
        )
    return folder


def _of_package(*parts: str) -> Path | None:
    """The folder of a package. Imports no parent of it, as Python's own search does: a sweep's ledger may name it."""
    imported = ".".join(parts[:-1]) in sys.modules
    try:
        spec = importlib.util.find_spec(".".join(parts)) if imported else user_code.find_module(parts[0])
    except (ImportError, ValueError):
        return None
    rest = () if imported else parts[1:]
    places = () if spec is None else spec.submodule_search_locations or ()
    return next((each for place in places if (each := Path(place, *rest)).is_dir()), None)


def about(path: Path) -> str:
    """The description of a config file: the first sentence of its first comment that is not a `@package` line."""
    words: list[str] = []
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text = line.lstrip("#").strip()
            is_example = line.startswith("#  ")
            if not line.startswith("#") or (words and (is_example or not text)):
                break
            if text and not text.startswith("@"):
                words += text.split()
    return re.split(r"(?<=[.?]) (?<!al\. )(?=[A-Za-z`])", " ".join(words), maxsplit=1)[0]


DEEPEST = 32
"""Deepest nesting of values; Hydra and OmegaConf overflow the stack at about a hundred."""
MOST_DIGITS = 100
"""Digits of a number; with more of them, a whole number has no float, and Python may not even print it."""
MOST_VALUES = 10_000
"""Values of a file, with aliases replaced; OmegaConf takes half a second for as many, more than once."""
_LARGEST = 4 << 20
_MOST_READ = 1_000
"""Most files of a config, whose defaults list may lead back to itself, and most whose content is kept."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NUMBER = re.compile(r"[-+]?(0x[\da-fA-F_]+|0b[01_]+|\d[\d_:.]*([eE][-+]?\d+)?)")
_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map"))
"""Tags of plain values; the constructors of others, such as !!timestamp, raise errors of any kind."""


class Refused(yaml.MarkedYAMLError):
    """A file that is YAML, but takes too long, or too much memory, to read."""

    def __init__(self, file: Path, line: int, rule: str, remedy: str) -> None:
        """Stores where and why; lines are counted from 0."""
        super().__init__(problem=rule, problem_mark=yaml.Mark(str(file), 0, line, 0, None, 0))
        self.fault = Fault("", "a file", rule, remedy, f"{file}:{line + 1}")


def load(file: Path) -> Any:
    """The content of a file, as PyYAML's safe loader has it.

    Raises:
        OSError: it can't be read.
        UnicodeDecodeError: it is not UTF-8.
        ValueError: a value of it can't be made, such as a date.
        yaml.YAMLError: it is not valid YAML, or `Refused`.
    """
    return yaml.load(checked(file), Loader=yaml.CSafeLoader)


def checked(file: Path) -> str:
    """The text of a file that can be read in little time and memory.

    Raises:
        Exception: as `load` does.
    """
    if file.stat().st_size > _LARGEST:
        rule = f"a config file may have at most {_LARGEST:,} bytes, but this one has {file.stat().st_size:,}"
        raise Refused(file, 0, rule, "put data into separate files, such as freeze.tokens_file")
    text = file.read_text(encoding="utf-8")
    _check(file, text)
    return text


@functools.lru_cache(_MOST_READ)  # a file is read for each composition
def _check(file: Path, text: str) -> None:
    """Counts nested values, values and digits."""
    sizes: dict[str, int] = {}  # of what each anchor stands for
    opened: list[tuple[str | None, int]] = []  # anchor of each collection that has not ended, and the count before it
    count = 0
    for event in _events(text):
        line = event.start_mark.line
        if isinstance(event, CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, AliasEvent):
            if any(anchor == event.anchor for anchor, _ in opened):
                raise Refused(file, line, "one of its values contains itself", "remove the alias")
            count += sizes.get(str(event.anchor), 1)
        elif isinstance(event, NodeEvent):
            if (found := _of_node(event)) is not None:
                raise Refused(file, line, *found)
            count += 1
            if isinstance(event, CollectionStartEvent):
                opened.append((event.anchor, count - 1))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
        if len(opened) > DEEPEST:
            limit = f"values may be nested at most {DEEPEST} levels deep"
            raise Refused(file, line, limit, "use fewer brackets or less indentation")
        if count > MOST_VALUES:
            limit = f"a config file may have at most {MOST_VALUES:,} values after aliases are expanded"
            raise Refused(file, line, limit, "remove aliases, or put data into separate files")


def _of_node(event: Any) -> tuple[str, str] | None:
    """The rule that a single value violates, and the remedy."""
    if event.tag is not None and event.tag not in _TAGS:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        return f"it has the tag {tag}", "a config may hold only plain values: remove the tag"
    if not isinstance(event, ScalarEvent):
        return None
    if event.tag == "tag:yaml.org,2002:bool" and event.value.lower() not in yaml.SafeLoader.bool_values:
        return f"{format_value(event.value)} is neither true nor false", "remove the tag"
    may_be_number = len(event.value) > MOST_DIGITS and (event.implicit[0] or event.tag in _NUMBERS)
    if may_be_number and _NUMBER.fullmatch(event.value):
        digits = sum(map(str.isalnum, event.value.removeprefix("0x")))
        return (
            f"a number may have at most {MOST_DIGITS} digits, but this one has {digits:,}",
            "quote it if it is a text",
        )
    return None


def _events(text: str) -> Iterator[Any]:
    """The events of libyaml's parser. What it finds wrong is left to the loaders, whose messages are known."""
    parser = yaml.CSafeLoader(text)
    try:
        while parser.check_event():
            yield parser.get_event()
    except yaml.YAMLError:
        return
    finally:
        parser.dispose()


_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_MOST_LEVELS = 20
"""Most levels of nested files, and most rounds: a defaults list may lead back to itself."""

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
        merged: what is merged, in order: a config such as `optimizer/adam`, its package and its file.
        ignored: overrides in defaults lists that do nothing, as a file that includes theirs has one, too: group, choice
            and file.
    """

    values: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    named_by: dict[str, Path] = field(default_factory=dict)
    merged: list[tuple[str, str, Path]] = field(default_factory=list)
    ignored: list[tuple[str, Choice, Path]] = field(default_factory=list)


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
    added: Mapping[str, Choice] | None = None,
    content: Content | None = None,
) -> Outline:
    """The outline of a config.

    Args:
        added: choices, by `group` or `group@package`, that are added behind those of its defaults lists.
        content: reads a file; None: as YAML 1.1.
    """
    overrides: dict[str, Choice] = dict(chosen or {})
    for _ in range(_MOST_LEVELS):  # a file that is chosen may choose others, which are read in the next round
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
    for key, choice in (added or {}).items():
        group, _, place = key.partition("@")
        for each in _each(choice):
            reader.read(f"{group}/{each}", package=place or group.replace("/", "."), depth=1)
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
        if file is None or depth > _MOST_LEVELS or len(self.found.files) == _MOST_READ:
            return
        self.found.files.append(file)
        content, header = self._content(file)
        if header is not None and header != "_group_":
            package = "" if header == "_global_" else header
        group = config.rpartition("/")[0]
        entries = content.get("defaults")
        content = {key: value for key, value in content.items() if key != "defaults"}

        def merge() -> None:
            _merge(self.found.values, package, content)
            self.found.merged.append((config, package, file))

        own_last = True
        self._override(entries, file, group=group, package=package)
        for entry in entries if isinstance(entries, list) else ():
            if entry == "_self_":
                merge()
                own_last = False
            else:
                self._include(entry, file, group=group, package=package, depth=depth)
        if own_last:
            merge()

    def _override(self, entries: Any, file: Path, *, group: str, package: str) -> None:
        """Collects the overrides of a defaults list before what it includes is read: of two, Hydra takes the first."""
        for entry in entries if isinstance(entries, list) else ():
            for key, choice in entry.items() if isinstance(entry, dict) else ():
                if "override" in (words := str(key).split())[:-1]:
                    named, _ = _target(words[-1], group, package)
                    if self.overrides.setdefault(named, choice) != choice:
                        self.found.ignored.append((named, choice, file))

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
            named, place = _target(words[-1], group, package)
            target = named.partition("@")[0]
            for each in _each(choice):
                self.found.named_by.setdefault(f"{target}/{each}", file)
            if "override" in words[:-1]:
                continue
            made = self._chosen.get(named, choice)
            self.found.choices[named] = made
            for each in _each(made):
                self.read(f"{target}/{each}", package=place, depth=depth + 1)


def _target(words: str, group: str, package: str) -> tuple[str, str]:
    """The group that an entry of a defaults list names, as `group` or `group@package`, and the package."""
    name, _, place = words.partition("@")
    target = _absolute(name, group)
    relative = name.removeprefix("/").replace("/", ".")
    within = "" if place.startswith("_global_") else package
    place = _joined(within, place.removeprefix("_global_").removeprefix(".") if place else relative)
    return (target if place == target.replace("/", ".") else f"{target}@{place}"), place


def package_of(file: Path) -> str | None:
    """The package that a file means to name, such as `_global_`, wherever the comment is; None: it names none."""
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
        return of_text(checked(file))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}, None


@functools.lru_cache(_MOST_READ)  # an outline is made for each job, of the same files
def of_text(text: str) -> tuple[dict[str, Any], str | None]:
    """What a file holds, and the package of its header; the mapping is not to be changed.

    Raises:
        Exception: as `load` does.
    """
    content = yaml.load(text, Loader=yaml.CSafeLoader)
    return (content if isinstance(content, dict) else {}), _header(text)


def _header(text: str) -> str | None:
    """The package in a file's header as Hydra reads it: in its first lines, which all are such settings."""
    for line in filter(None, map(str.strip, text.splitlines())):
        if not re.match(r"#\s*@", line):
            return None
        if found := _PACKAGE.match(line):
            return found.group(1)
    return None


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
        raise CommandLineError(f"{option} contradicts {_MODE}={mode}, set in {source}: remove one of them")
    return mode == MULTIRUN


_FIELDS = "fields"


def take_in_fields(
    folders: Folders,
    config_name: str,
    overrides: Sequence[str],
    refusal: Callable[[str], str],
    remedy: Callable[[str], str] = lambda path: "",
) -> Folders:
    """Takes in the fields that a config names; returns the folders of configs with those of the fields.

    Args:
        refusal: why the code of a path may not be run; "": it may.
        remedy: what to do about that.

    Raises:
        ConfigError: a path may not be imported, or leads to no field that can be used.
    """
    named = _fields_named(folders, config_name, overrides)
    installed = {each.path for each in fields.origins() if each.installed}
    for path in [each for each in named if isinstance(each, str) and ":" in each and each not in installed]:
        if why := refusal(path):
            raise ConfigError([Fault(_FIELDS, repr(path), why, remedy(path))])
        if faults := user_code.faults_of_function(path, _FIELDS):
            raise ConfigError(faults)
        known = fields.named(path)
        if user_code.forget_changed(user_code.read_package(path, () if known is None else known.paths())):
            fields.remove(path)
        user_code.note_imported(user_code.read_package(path, fields.add(path).paths()))
    return replace(folders, brought=tuple(map(Path, fields.configs()))) if named else folders


def _fields_named(folders: Folders, config_name: str, overrides: Sequence[str]) -> Sequence[Any]:
    """The value of `fields`, as far as it is a list; a value of another form is a fault that validation reports."""
    pairs = [text.lstrip("+").partition("=") for text in overrides]
    given = [value for key, _, value in pairs if key == _FIELDS]
    if given:
        try:
            found = yaml.safe_load(given[-1])
        except yaml.YAMLError:
            return ()
    elif folders.user is None and folders.shipped == shipped():
        return ()  # none of embexp's files names one
    else:
        chosen = {key: value for key, _, value in pairs if folders.is_group(key.partition("@")[0])}
        found = outline(folders, config_name, chosen).values.get(_FIELDS)
    return found if isinstance(found, list) else ()
