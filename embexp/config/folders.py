"""The config folders, and the groups and choices of their YAML files. Needs no Hydra."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.errors import CommandLineError


@dataclass(frozen=True)
class Folders:
    """The folders that configs are read from.

    Attributes:
        shipped: the folder that comes with embexp.
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
            if path.is_file():
                return path
        return None

    def is_group(self, name: str) -> bool:
        """Whether a folder of that name holds choices."""
        return bool(name) and any(os.path.isdir(folder / name) for folder in self.in_order)

    def choices(self) -> Mapping[str, Mapping[str, Path]]:
        """Files by choice, by group, both in alphabetical order. Without Hydra's own groups."""
        found: dict[str, dict[str, Path]] = {}
        for folder in reversed(self.in_order):
            for path in folder.glob("*/**/*.yaml"):
                group = path.parent.relative_to(folder).as_posix()
                if group.split("/")[0] != "hydra":
                    found.setdefault(group, {})[path.stem] = path
        return {group: dict(sorted(found[group].items())) for group in sorted(found)}


def find(config_dir: Path | None = None) -> Folders:
    """The shipped folder, as installed or in a checkout, and the user's.

    Raises:
        CommandLineError: `config_dir` is not a folder.
    """
    if config_dir is not None and not config_dir.is_dir():
        raise CommandLineError(f"--config-dir {config_dir}: there is no such folder")
    package = Path(__file__).absolute().parents[1]
    installed = package / "conf"
    shipped = installed if installed.is_dir() else package.parent / "conf"
    return Folders(shipped=shipped, user=None if config_dir is None else config_dir.absolute())


def about(path: Path) -> str:
    """The description of a config file: its first comment that is not a `@package` line."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                break
            text = line.lstrip("#").strip()
            if text and not text.startswith("@"):
                return text
    return ""
