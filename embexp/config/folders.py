"""The config folders, and the groups and choices of their YAML files. Needs no Hydra."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.errors import CommandLineError
from embexp.system import user_code

_MOST_FILES = 20_000
"""Files and folders that a folder of configs may hold: looking at all of a disk would take minutes."""


@dataclass(frozen=True)
class Folders:
    """The folders that configs are read from.

    Attributes:
        shipped: the folder that comes with embexp, or the one that replaces it (`--config-path`).
        user: the user's own (`--config-dir`); its files override shipped ones of the same name.
    """

    shipped: Path
    user: Path | None = None

    @property
    def in_order(self) -> Sequence[Path]:
        """The folders in the order in which they are searched."""
        return (self.shipped,) if self.user is None else (self.user, self.shipped)

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
        """Files by choice, by group, both in alphabetical order, as they are at first. Without Hydra's own groups."""
        found: dict[str, dict[str, Path]] = {}
        for folder in reversed(self.in_order):
            for path in _yaml_files(folder):
                group = path.parent.relative_to(folder).as_posix()
                if group.split("/")[0] != "hydra":
                    found.setdefault(group, {})[path.stem] = path
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
                rule = f"there are more than {_MOST_FILES:,} files and folders in it"
                raise CommandLineError(f"{folder}: {rule}\n    name the folder that holds the configs alone")
            yield from (Path(place, name) for name in names if name.endswith(".yaml"))


def find(config_dir: Path | None = None, *, config_path: str | None = None) -> Folders:
    """The shipped folder, as installed or in a checkout, and the user's.

    Args:
        config_path: a folder, or `pkg://` and the name of a package, which replaces the shipped one.

    Raises:
        CommandLineError: one of them is not a folder.
    """
    if config_dir is not None and not os.path.isdir(config_dir):
        raise CommandLineError(f"--config-dir {config_dir}: there is no such folder")
    shipped = _shipped() if config_path is None else _replacing(config_path)
    return Folders(shipped=shipped, user=None if config_dir is None else config_dir.absolute())


def _shipped() -> Path:
    package = Path(__file__).absolute().parents[1]
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


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
    """The description of a config file: its first comment that is not a `@package` line."""
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                break
            text = line.lstrip("#").strip()
            if text and not text.startswith("@"):
                return text
    return ""
