"""The comments of the YAML files, as descriptions of the keys that they stand above."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from embexp.config.folders import Folders
from embexp.config.grammar import chosen, models_at
from embexp.config.outline import package_of

_KEY = re.compile(r"^( *)([A-Za-z_][\w]*):(?: |$)")
_PLACES = {
    "table": ("tables", "name"),
    "feature": ("features", "name"),
    "initializer": ("tables", "name", "initializer"),
    "schedule": ("optimizer", "schedule"),
}
"""Where a choice of a group belongs in a config, if not at the key of that name."""


def descriptions(folders: Folders) -> dict[tuple[str, str], str]:
    """The comment of each key, by the name of its model and the key."""
    found: dict[tuple[str, str], str] = {}
    files = [("", path) for path in sorted(folders.shipped.glob("*.yaml"))]
    files += [(group, path) for group, choices in folders.choices.items() for path in choices.values()]
    for group, path in files:
        place = () if not group or package_of(path) == "_global_" else _PLACES.get(group, (group,))
        container = _nested(place, yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) or {})
        for keys, text in comments(path):
            *parents, key = (*place, *keys)
            model = chosen(models_at(parents, container), _at(container, parents))
            if model is not None:
                found.setdefault((model.__name__, key), text)
    return found


def comments(path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """The keys of a file with the comment above each."""
    above: list[str] = []
    stack: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.strip().lstrip("#").strip())
            continue
        if match := _KEY.match(line):
            indent, key = len(match[1]), match[2]
            stack = [*(each for each in stack if each[0] < indent), (indent, key)]
            if above:
                yield tuple(name for _, name in stack), " ".join(above)
        above = []


def _nested(place: tuple[str, ...], content: Any) -> Any:
    for key in reversed(place):
        content = {key: content}
    return content


def _at(container: Any, keys: list[str]) -> Any:
    for key in keys:
        container = container.get(key) if isinstance(container, dict) else None
    return container
