"""Explains why config files can't be composed, with a fault that names the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import MissingConfigException

from embexp.config.folders import Folders
from embexp.config.nearest import did_you_mean, listing
from embexp.config.shown import shown
from embexp.errors import Fault


def fault(folders: Folders, error: Exception, composed: Iterable[str]) -> Fault:
    """The fault of config files that can't be composed.

    Args:
        folders: the config folders.
        error: what composing raised, one of `loader.COMPOSITION_ERRORS`.
        composed: the requested configs, such as `config` and `optimizer/adam`, the likely culprit first.
    """
    if isinstance(error, MissingConfigException):
        missing = error.missing_cfg_file or ""
        group, _, choice = missing.rpartition("/")
        named_by = _names(folders, composed, missing)
        return Fault(
            group,
            shown(choice),
            f"there is no file {missing}.yaml in {listing(map(str, folders.in_order))}",
            did_you_mean(choice, error.options or folders.choices().get(group, {})),
            "" if named_by is None else str(named_by),
        )
    if isinstance(error, RecursionError):
        return Fault("", "its files", "the defaults of one of them lead back to itself")
    if isinstance(error, AssertionError):
        return Fault("", "its files", "the defaults of one of them name no group")
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark, problem = error.problem_mark, error.problem or "it can't be read"
        return Fault("", "a file", f"it is not valid YAML: {problem}", source=f"{mark.name}:{mark.line + 1}")
    return Fault("", "its files", f"they can't be composed: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """The first line of an error, or of its cause if the error has no text."""
    text = str(error).strip()
    if not text and error.__cause__ is not None:
        return first_line(error.__cause__)
    return text.split("\n")[0].rstrip(".") or type(error).__name__


def _names(folders: Folders, configs: Iterable[str], missing: str) -> Path | None:
    """The file whose defaults list names the config `missing`, among `configs` and the configs that they include."""
    waiting, seen = list(configs), set()
    while waiting:
        config = waiting.pop(0)
        file = folders.file(config)
        if file is None or config in seen:
            continue
        seen.add(config)
        named = list(_defaults(file, group=config.rpartition("/")[0]))
        if missing in named:
            return file
        waiting += named
    return None


def _defaults(file: Path, group: str) -> Iterator[str]:
    """The configs that a file's defaults list names, such as `optimizer/adam`.

    Args:
        file: a YAML file; one that can't be read names none.
        group: of the file; names without a leading `/` are relative to it.
    """
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
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
