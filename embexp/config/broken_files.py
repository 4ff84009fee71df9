"""Explains why config files can't be composed, with a fault that names the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import MissingConfigException

from embexp.config import yaml_files
from embexp.config.folders import Folders
from embexp.config.messages import did_you_mean, format_value, listing
from embexp.config.outline import outline
from embexp.errors import Fault

_NO_OVERRIDE = re.compile(r"(?:In '(?P<config>[^']+)': )?Could not override '(?P<key>[^']+)'")
_CHOSEN_AGAIN = re.compile(r"Multiple values for (?P<key>\S+)\. ")
_TOO_EARLY = re.compile(r"In (?P<config>\S+): Override '(?P<key>\S+) : ")
"""What Hydra says of a defaults list that it can't compose."""
_YAML_REMEDIES = {
    "'\\t'": "indent with spaces: YAML takes no tabs",
    "duplicate key": "remove one of the two",
    "expected ',' or ']'": "close the list with ]",
    "expected ',' or '}'": "close the mapping with }",
    "unexpected end of stream": "close the quote",
    "could not find expected ':'": "write KEY: VALUE, with a blank after the colon",
    "mapping values are not allowed": "quote a text that has a colon",
    "constructor for the tag": "a config holds plain values: remove the tag",
    "undefined alias": "quote a text that begins with *",
    "another document": "a file is one document: remove the line ---",
    "block end": "indent the keys of a mapping alike",
}
"""What to do, by a part of what PyYAML says."""


def fault(folders: Folders, error: Exception, composed: Iterable[str]) -> Fault:
    """The fault of config files that can't be composed.

    Args:
        error: what composing raised, one of `loader.COMPOSITION_ERRORS`.
        composed: the requested configs, such as `config` and `optimizer/adam`, the likely culprit first.
    """
    composed = list(composed)
    if isinstance(error, MissingConfigException):
        return _missing(folders, error, composed)
    if isinstance(error, RecursionError):
        file, first = folders.file(composed[0]), composed[:1]
        if _names(folders, first, first[0]) is None:
            rule, remedy = "one of its values leads back to itself", "remove the alias"
        else:
            rule, remedy = "its defaults lead back to itself", "remove it from its own defaults"
        return Fault("", "its files", rule, remedy, str(file or ""))
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return _invalid(error.problem_mark.name, error)
    for file in _files(folders, composed):
        if (found := unreadable(file)) is not None:
            return found
    if isinstance(error, AssertionError):
        return Fault("", "its files", "the defaults of one of them name no group", "write - GROUP: CHOICE")
    return _of_defaults(folders, str(error), composed) or Fault(
        "", "its files", f"they can't be composed: {first_line(error)}"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error, or of its cause if the error has no text."""
    text = str(error).strip()
    if not text and error.__cause__ is not None:
        return first_line(error.__cause__)
    return text.split("\n")[0].rstrip(".") or type(error).__name__


def _missing(folders: Folders, error: MissingConfigException, composed: list[str]) -> Fault:
    """The fault of a file that is not there."""
    missing = error.missing_cfg_file or ""
    group, _, choice = missing.rpartition("/")
    where = listing(map(str, folders.in_order))
    if not group:
        configs = sorted({path.stem for folder in folders.in_order for path in folder.glob("*.yaml")})
        near = did_you_mean(choice, configs) or f"there {'are' if len(configs) > 1 else 'is'} {listing(configs)}"
        groups = [each for each, choices in folders.choices.items() if choice in choices]
        remedy = f"choose it with {groups[0]}={choice}" if groups else near
        return Fault("--config-name", format_value(choice), f"there is no file {missing}.yaml in {where}", remedy)
    named_by = _names(folders, composed, missing)
    return Fault(
        group,
        format_value(choice),
        f"there is no file {missing}.yaml in {where}",
        did_you_mean(choice, error.options or folders.choices.get(group, {})),
        "" if named_by is None else str(named_by),
    )


def _of_defaults(folders: Folders, text: str, composed: list[str]) -> Fault | None:
    """The fault of a defaults list with an override that is none; None: Hydra complains about something else."""
    if found := _NO_OVERRIDE.match(text):
        key = found["key"]
        made = outline(folders, composed[-1]).choices
        rule = f"it overrides /{key}, and nothing in this config is chosen there"
        near = did_you_mean(key, made) or did_you_mean(key.partition("@")[0], folders.choices)
        group = (found["config"] or "").rpartition("/")[0]
        bare = key.removeprefix(f"{group}/").partition("@")[0]
        if group and key.startswith(f"{group}/") and folders.is_group(bare):
            rule = f"it overrides {bare}, which is {group}/{bare} for a file in the folder {group}"
            near, key = f"begin the group with a slash: override /{bare}", bare
    elif found := _CHOSEN_AGAIN.match(text):
        key = found["key"]
        rule, near = f"it chooses {key}, which is chosen already", f"write override /{key}: CHOICE"
    elif found := _TOO_EARLY.match(text):
        key = found["key"]
        rule = f"its defaults list overrides {key} before it is chosen"
        near = "move the overrides to the end of the list, before _self_"
    else:
        return None
    config = found.groupdict().get("config")
    files = [folders.file(config)] if config else list(_files(folders, composed))
    places = [f"{file}:{line}" for file in files if file is not None and (line := _line(file, key)) is not None]
    return Fault("", "its files", rule, near, places[0] if places else "")


def _line(file: Path, key: str) -> int | None:
    """The line of a defaults list that names a group."""
    entry = re.compile(rf"\s*-\s*(override\s+)?/?{re.escape(key)}\s*:")
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if entry.match(text):
            return number
    return None


def _invalid(file: str | Path, error: yaml.MarkedYAMLError) -> Fault:
    """The fault of a file that is not valid YAML, or is refused."""
    if isinstance(error, yaml_files.Refused):
        return error.fault()
    mark, problem = error.problem_mark, error.problem or "it can't be read"
    remedy = next((remedy for part, remedy in _YAML_REMEDIES.items() if part in problem), "")
    line = f":{mark.line + 1}" if mark is not None else ""
    return Fault("", "a file", f"it is not valid YAML: {problem}", remedy, f"{file}{line}")


def _key_line(file: Path, key: str) -> int:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.startswith(f"{key}:")), 1)


def unreadable(file: Path) -> Fault | None:
    """The fault of a file that holds no text, or no mapping; None: it does."""
    try:
        yaml_files.checked(file)
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)  # with the messages of Hydra's
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        return Fault("", "a file", "it is not UTF-8", "save it as UTF-8", f"{file}:{line}")
    except FileNotFoundError:
        return Fault("", "a file", "it is a link to a file that is not there", "", str(file))
    except OSError as error:
        what = "it is a folder" if file.is_dir() else f"it can't be read: {error.strerror}"
        return Fault("", "a file", what, "", str(file))
    except yaml.MarkedYAMLError as error:
        return _invalid(file, error)
    except (ValueError, yaml.YAMLError) as error:
        return Fault("", "a file", f"it is not valid YAML: {first_line(error)}", "", str(file))
    if content is None:
        return None
    if isinstance(content, dict):
        defaults = content.get("defaults", [])
        entries = defaults if isinstance(defaults, list) else [0]
        if any(not isinstance(entry, str | dict) for entry in entries):
            rule = f"its defaults are a list of choices, and these are {format_value(defaults)}"
            return Fault("", "a file", rule, "write - GROUP: CHOICE", f"{file}:{_key_line(file, 'defaults')}")
        return None
    what = "a list" if isinstance(content, list) else format_value(content)
    return Fault("", "a file", f"a config is a mapping of keys, and this is {what}", "write KEY: VALUE", str(file))


def _names(folders: Folders, configs: Iterable[str], missing: str) -> Path | None:
    """The file whose defaults list names the config `missing`, among `configs` and the configs that they include."""
    for config, file in _walked(folders, configs):
        if missing in _defaults(file, group=config.rpartition("/")[0]):
            return file
    return None


def _files(folders: Folders, configs: Iterable[str]) -> Iterator[Path]:
    """The files of some configs, and of those that they include."""
    return (file for _, file in _walked(folders, configs))


def _walked(folders: Folders, configs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    waiting, seen = list(configs), set()
    while waiting:
        config = waiting.pop(0)
        file = folders.file(config)
        if file is None or config in seen:
            continue
        seen.add(config)
        yield config, file
        waiting += _defaults(file, group=config.rpartition("/")[0])


def _defaults(file: Path, group: str) -> Iterator[str]:
    """The configs that a file's defaults list names, such as `optimizer/adam`.

    Args:
        file: a YAML file; one that can't be read names none.
        group: of the file; names without a leading `/` are relative to it.
    """
    try:
        content = yaml_files.load(file)
    except (OSError, ValueError, yaml.YAMLError):
        return
    entries = content.get("defaults") if isinstance(content, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str):
            yield _absolute(entry, group)
        elif isinstance(entry, dict):
            for key, choice in entry.items():
                yield from (f"{_absolute(str(key), group)}/{each}" for each in _each(choice))


def _absolute(name: str, group: str) -> str:
    """`override /optimizer@tables.item.optimizer` as `optimizer`, `adam` as `optimizer/adam` in that group."""
    bare = name.split()[-1].partition("@")[0] if name.split() else ""
    return f"{group}/{bare}" if group and not bare.startswith("/") else bare.removeprefix("/")


def _each(choice: Any) -> list[Any]:
    return choice if isinstance(choice, list) else [choice]
