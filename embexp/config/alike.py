"""Composes the jobs of a sweep: one is copied for those that differ from it in plain values alone.

To compose a job takes 15 ms, and 100 ms more if no other made its choices. But `seed=1` only replaces one value where
`seed=0` composed, unless an interpolation refers to it, or the columns of the data depend on it.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from embexp.config import composition, hydra_globals, hydra_job, named_code, overrides
from embexp.config.composition import Composition, Job
from embexp.config.folders import at
from embexp.config.loader import Loader

_MOST = 1_000
"""Jobs that are kept to be copied."""
_OF_NO_KEY = re.compile(r"\$\{(?:oc\.env|now):[^${}]*\}")
_Key = tuple[str, ...]


class Jobs:
    """Composes and checks jobs, each as `composition.candidate` does."""

    def __init__(self, loader: Loader) -> None:
        """Prepares it."""
        self._loader = loader
        self._kept: dict[_Key, Composition] = {}
        self._deciding: dict[_Key, set[str]] = {}
        """Keys whose plain values decide more than themselves, by all that jobs have in common but their values."""

    def job(self, texts: Sequence[str]) -> Job:
        """Composes and checks a job.

        Raises:
            ConfigError: as `composition.candidate`.
        """
        return composition.checked(self.composed(texts))

    def composed(self, texts: Sequence[str]) -> Composition:
        """Composes a job, as `composition.compose_config` does."""
        loader = self._loader
        parsed, faults = overrides.parse(loader, texts)
        values = [each for each in parsed if not overrides.is_selection(loader.folders, each)]
        if faults or any(each.is_delete() for each in values):
            return composition.compose_config(loader, texts)
        plain = {str(each.input_line): each for each in values if _is_plain(each)}
        form = (os.getcwd(), *(_without_value(line, plain) for line in texts))
        deciding = self._deciding.setdefault(form, set())
        if like := self._kept.get(_key(form, plain.values(), deciding)):
            changed = [each for each in plain.values() if each.key_or_group not in deciding]
            container = _copied(like.container, changed)
            composition.absolute_paths(container, Path.cwd())

            def write() -> dict[str, Any]:
                written = _copied(like.write(), changed)
                chosen = like.sources.selections
                hydra_job.note_overrides([e for e in parsed if e in chosen or e in values], written["hydra"])
                return written

            return replace(
                like,
                compose=lambda: self._config(texts),
                write=write,
                container=container,
                sources=like.sources.with_values(values),
            )
        found = composition.compose_config(loader, texts)
        if not found.faults and (targets := _targets(found, loader)) is not None:
            deciding |= {each.key_or_group for each in plain.values() if _decides(each, found.container, targets)}
            if len(self._kept) == _MOST:
                self._kept.clear()
            written = found.write()  # the config itself is large
            kept = replace(found, compose=lambda: self._config(texts), write=lambda: copy.deepcopy(written))
            self._kept[_key(form, plain.values(), deciding)] = kept
        return found

    def _config(self, texts: Sequence[str]) -> Any:
        return composition.compose_config(self._loader, texts).config


def _is_plain(override: Override) -> bool:
    """Whether an override sets one value that stands for itself, and that composing does not look at."""
    value, of_data = override.value(), override.key_or_group.partition(".")[0] == "data"
    if isinstance(value, str) and ("${" in value or value == "???"):
        return False
    return not of_data and override.package is None and isinstance(value, str | int | float | None)


def _without_value(line: str, plain: Mapping[str, Override]) -> str:
    """An override, with the type of its value instead of a plain value."""
    return f"{plain[line].get_key_element()}={type(plain[line].value())}" if line in plain else line


def _key(form: _Key, plain: Collection[Override], deciding: Collection[str]) -> _Key:
    """What jobs have in common that are copies of each other."""
    return (*form, *(str(each.input_line) for each in plain if each.key_or_group in deciding))


def _copied(container: Mapping[str, Any], changed: Sequence[Override]) -> dict[str, Any]:
    copied = copy.deepcopy(dict(container))
    for override in changed:
        place, _, last = override.key_or_group.rpartition(".")
        at(copied, place)[last] = override.value()
    return copied


def _decides(override: Override, container: Mapping[str, Any], targets: Collection[str]) -> bool:
    """Whether more follows from a value than itself, or the config has another one at its key."""
    key, value = override.key_or_group, override.value()
    place, _, last = key.rpartition(".")
    parent = at(container, place)
    if not isinstance(parent, dict) or last not in parent or type(parent[last]) is not type(value):
        return True
    return parent[last] != value or any(f"{key}.".startswith(f"{e}.") or f"{e}.".startswith(f"{key}.") for e in targets)


def _targets(found: Composition, loader: Loader) -> set[str] | None:
    """The keys that interpolations refer to; None: that, or Hydra's node, may depend on any value of the job."""
    chosen = tuple(str(each.input_line) for each in found.sources.selections)
    if chosen not in loader.hydra_faults or not hydra_job.has_one_sweep_directory(found.config):
        return None
    targets = set[str]()
    content = {key: each for key, each in found.write().items() if key != "hydra"}
    for path, _, text in named_code.texts(content):
        if "${" in hydra_globals.without_references(_OF_NO_KEY.sub("", text)):
            return None
        targets.update(hydra_globals.references(path, text))
    return targets
