"""Composes the config of a job without Hydra, from files and overrides in their plainest form: in milliseconds.

What it composes is what Hydra composes. Whatever is not of that form it leaves to Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from embexp.config import fetched, hydra_globals, patterns, record, values, yaml_files
from embexp.config.compose import absolute_paths, resolved
from embexp.config.loader import Loader
from embexp.config.outline import outline, package_of
from embexp.config.overrides import is_selection
from embexp.config.patterns import Expansion

_SCALARS = (str, int, float, bool, type(None))
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\}")


@dataclass(frozen=True)
class Quick:
    """A composed config.

    Attributes:
        container: as that of a `Composition`.
        choices: by `group` or `group@package`.
        added: keys that plain overrides added to those of the files.
        hydra: the node `hydra` of the files.
    """

    container: dict[str, Any]
    choices: Mapping[str, str | None]
    added: frozenset[str]
    hydra: Any


@dataclass(frozen=True)
class _Files:
    """The merged files of some choices."""

    values: dict[str, Any]
    hydra: Any
    choices: Mapping[str, str | None]
    expansion: Expansion


class QuickComposer:
    """Composes configs. The files are taken not to change during its life."""

    def __init__(self, loader: Loader) -> None:
        """Reads nothing yet.

        Args:
            loader: parses overrides, and has the folders.
        """
        self._loader = loader
        self._contents: dict[Path, tuple[dict[str, Any], str | None] | None] = {}
        self._merged: dict[tuple[str, ...], _Files | None] = {}
        self._parsed: dict[str, Override] = {}
        self._chooses: dict[str, bool] = {}

    def compose(self, overrides: Sequence[str]) -> Quick | None:
        """The config of a job; None: it is to be composed by Hydra.

        Args:
            overrides: without settings of Hydra.
        """
        files, rest = self._divided(overrides)
        if files is None:
            return None
        if not all(_is_plain(each, files.values) for each in rest):
            return self._by_omegaconf(files, rest)
        container: dict[str, Any] = _copied(files.values)
        for each in rest:
            parent, _, last = each.key_or_group.rpartition(".")
            _at(container, parent)[last] = each.value()
        if not _resolve(container, container):
            return self._by_omegaconf(files, rest)
        if fetched.fill_path(container) or "???" in texts(container):
            return None
        absolute_paths(container, Path.cwd())
        added = {each.key_or_group for each in rest if files.expansion.made(each.key_or_group) and not _prefixed(each)}
        return Quick(container, files.choices, frozenset(added), files.hydra)

    def config(self, overrides: Sequence[str], hydra: Sequence[str], like: DictConfig) -> DictConfig:
        """The config of a job that `compose` composes, as Hydra would have it, with its settings and the overrides.

        Args:
            overrides: without settings of Hydra.
            hydra: overrides for Hydra itself.
            like: of another job with the same settings of Hydra, which Hydra has composed.
        """
        files, rest = self._divided(overrides)
        assert files is not None
        config = OmegaConf.create(files.values)
        config.hydra = like.hydra
        OmegaConf.set_readonly(config.hydra, False)  # as Hydra does
        with open_dict(config.hydra):
            own = {key: choice for key, choice in like.hydra.runtime.choices.items() if key.startswith("hydra/")}
            config.hydra.runtime.choices = {**files.choices, **own}
        OmegaConf.set_struct(config, True)
        for override in rest:
            values.apply(self._loader.folders, override, config)
        record.note_overrides([self._parse(text) for text in (*hydra, *overrides)], config)
        return config

    def is_choice(self, override: str) -> bool:
        """Whether an override chooses a file."""
        if override not in self._chooses:
            self._chooses[override] = is_selection(self._loader.folders, self._parse(override))
        return self._chooses[override]

    def _by_omegaconf(self, files: _Files, overrides: Sequence[Override]) -> Quick | None:
        config = OmegaConf.create(files.values)
        OmegaConf.set_struct(config, True)
        added = set()
        for override in overrides:
            key = override.key_or_group
            new = not _prefixed(override) and (not values.is_present(config, key) or files.expansion.made(key))
            try:
                if values.apply(self._loader.folders, override, config) is not None:
                    return None
            except Exception:  # of a fault that needs the choices of the whole config
                return None
            if new:
                added.add(key)
        with hydra_globals.recorded():
            container, unresolved = resolved(config, Path.cwd())
        return None if unresolved else Quick(container, files.choices, frozenset(added), files.hydra)

    def _divided(self, overrides: Sequence[str]) -> tuple[_Files | None, list[Override]]:
        """The files of the overrides that choose some, if all are of the plain form, and the other overrides."""
        files = self._files([self._parse(text) for text in overrides if self.is_choice(text)])
        return files, [self._parse(text) for text in overrides if not self.is_choice(text)]

    def _parse(self, text: str) -> Override:
        if text not in self._parsed:
            self._parsed[text] = self._loader.parse(text)
        return self._parsed[text]

    def _files(self, chosen: Sequence[Override]) -> _Files | None:
        key = tuple(str(each.input_line) for each in chosen)
        if key not in self._merged:
            self._merged[key] = self._read(chosen)
        return self._merged[key]

    def _read(self, chosen: Sequence[Override]) -> _Files | None:
        made: dict[str, Any] = {each.get_key_element(): each.value() for each in chosen}
        for each in chosen:
            known = self._loader.folders.file(f"{each.key_or_group}/{each.value()}") is not None
            if _prefixed(each) or each.is_hydra_override() or not isinstance(each.value(), str) or not known:
                return None
        found = outline(self._loader.folders, self._loader.config_name, made, content=self._content)
        odd = any(content is None for content in self._contents.values())
        if odd or not made.keys() <= found.choices.keys():
            return None
        choices = {key: None if choice is None else str(choice) for key, choice in found.choices.items()}
        rest = {key: value for key, value in found.values.items() if key != "hydra"}
        if patterns.has_globs(rest):
            return None
        expansion = Expansion()
        if patterns.present(rest):
            rest = _copied(rest)
            expansion = patterns.expand(rest, list)
            if expansion.faults:
                return None
        named = {key: choice for key, choice in choices.items() if not key.startswith("hydra/")}
        return _Files(rest, found.values.get("hydra"), named, expansion)

    def _content(self, file: Path) -> tuple[dict[str, Any], str | None]:
        """What a file holds, with numbers as OmegaConf reads them."""
        if file not in self._contents:
            self._contents[file] = _plain_content(file)
        return self._contents[file] or ({}, None)


def _plain_content(file: Path) -> tuple[dict[str, Any], str | None] | None:
    """What a file holds, and its package; None: its defaults list has a form that is left to Hydra."""
    try:
        yaml_files.checked(file)
        config = OmegaConf.load(file)
        content: Any = OmegaConf.to_container(config, resolve=False)
    except Exception:  # which Hydra tells
        return None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        return None
    entries = content.get("defaults", [])
    if not isinstance(entries, list) or not all(map(_is_plain_entry, entries)):
        return None
    return content, package_of(file)


def _is_plain_entry(entry: Any) -> bool:
    """Whether a defaults list says `name`, or `group: choice` with or without `override`."""
    if isinstance(entry, str):
        return not any(part in entry for part in ("$", "_here_", " "))
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    [(key, choice)] = entry.items()
    words = str(key).split()
    named = isinstance(choice, str | None) and "$" not in str(choice)
    return named and len(words) <= 2 and words[:-1] in ([], ["override"]) and "_here_" not in words[-1]


def _prefixed(override: Override) -> bool:
    return override.is_add() or override.is_force_add() or override.is_delete()


def _is_plain(override: Override, files: Mapping[str, Any]) -> bool:
    """Whether an override replaces a scalar, or a list, by another one, or adds one."""
    if override.is_delete() or override.package is not None:
        return False
    parent, _, last = override.key_or_group.rpartition(".")
    node, value = _at(files, parent), override.value()
    if not isinstance(node, Mapping) or isinstance(node.get(last), Mapping):
        return False
    if override.is_add() == (last in node) and not override.is_force_add():
        return False
    items = value if isinstance(value, list) else [value]
    simple = all(type(each) in _SCALARS and not (isinstance(each, str) and "${" in each) for each in items)
    return simple and (isinstance(value, list) or not isinstance(node.get(last), list))


def _resolve(node: Any, container: Mapping[str, Any]) -> bool:
    """Replaces references to scalars by these, in place; False: there are interpolations of another form."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list):
            if not _resolve(value, container):
                return False
        elif isinstance(value, str) and "$" in value:
            reference = _REFERENCE.fullmatch(value)
            found = reference and _at(container, reference.group(1))
            if found is None or type(found) not in _SCALARS or "$" in str(found) or found == "???":
                return False
            node[key] = found
    return True


def _at(node: Any, path: str) -> Any:
    for key in filter(None, path.split(".")):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _copied(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _copied(value) for key, value in node.items()}
    return [_copied(each) for each in node] if isinstance(node, list) else node


def texts(node: Any) -> Iterator[str]:
    """The texts in nested mappings and lists."""
    for value in node.values() if isinstance(node, dict) else node:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from texts(value)
