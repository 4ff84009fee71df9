"""The file and line, or the override, that set a value. Read only after a fault."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from hydra.core.override_parser.types import Override

from embexp.config import yaml_files
from embexp.config.loader import Loader


class Sources:
    """The sources of the values of a composed config."""

    def __init__(
        self,
        loader: Loader,
        selections: Sequence[Override],
        values: Sequence[Override],
        lifted: Collection[str] = (),
        origins: Mapping[str, str] | None = None,
    ) -> None:
        """Stores what the config was composed from.

        Args:
            lifted: packages of files whose keys were moved to the top of the config.
        """
        self._loader = loader
        self._selections = selections
        self.values = values
        self._lifted = lifted
        self._origins = origins or {}

    def describe(self, path: str) -> str:
        """The source of a value, such as `conf/config.yaml:31` or `the command line (seed=1)`; "" if it has none."""
        below = ""
        for override in reversed(self.values):
            key = override.key_or_group
            if key == path or path.startswith(f"{key}."):
                return f"the command line ({override.input_line})"
            if key.startswith(f"{path}."):
                below = below or f"the command line ({override.input_line})"
        for override in self._selections:
            if override.get_key_element().lstrip("+~").rpartition("@")[2] == path:
                return f"the command line ({override.input_line})"
        if below:
            return below
        for written in (path, self._in_pattern(path)):
            for package, file in reversed(self._files):
                inner = _inside(written, package)
                if inner is not None and (line := _lines(file).get(inner)) is not None:
                    return f"{_short(file)}:{line}"
        return ""

    def _in_pattern(self, path: str) -> str:
        """The path of a value in the pattern that it is from; the path itself if it is from none."""
        for name, pattern in self._origins.items():
            if path == name or path.startswith(f"{name}."):
                return f"{pattern}{path.removeprefix(name)}"
        return path

    @functools.cached_property
    def _files(self) -> Sequence[tuple[str, Path]]:
        """Packages and files, in merge order."""
        found = []
        for each in self._loader.files([str(selection.input_line) for selection in self._selections]):
            file = self._loader.folders.file(each.config_path or "")
            if file is not None:
                package = "" if each.package in self._lifted else each.package or ""
                found.append((package.replace("_global_", "").strip("."), file))
        return found


def _inside(path: str, package: str) -> str | None:
    """`path` relative to `package`, or None if it is not inside it."""
    if not package:
        return path
    return path.removeprefix(f"{package}.") if path.startswith(f"{package}.") else None


@functools.cache
def _lines(file: Path) -> dict[str, int]:
    """Line of each key of a YAML file, by its dotted path."""
    try:
        node = yaml.compose(yaml_files.checked(file), Loader=yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return dict(_walk(node, ""))


def _walk(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = f"{prefix}{key.value}"
            yield path, key.start_mark.line + 1
            yield from _walk(value, f"{path}.")


def _short(path: Path) -> str:
    here = Path(os.getcwd())
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
