"""The mistakes of the YAML files beside this module: a command, the files that it finds, and what it must say."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Mistake:
    """A command line that can't work.

    Attributes:
        name: what is wrong.
        run: the command, without `embexp`.
        says: what it must tell, the beginning of each line of it in this order: path, value and remedy of a fault, and
            its sentence where that is the subject, as for the rules of specs.
        status: its exit status.
        thorough: whether it is left to `make test-thorough`, as it takes long or is like another.
        files: texts by path, UTF-8.
        latin: the same in Latin-1, for bytes that are no UTF-8.
        folders: empty folders.
        links: targets by path.
    """

    name: str
    run: str
    says: str = ""
    status: int = 2
    thorough: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    latin: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        """Those of the command line."""
        return shlex.split(self.run)

    def prepare(self, folder: Path) -> None:
        """Writes its files."""
        for name, text in {**self.files, **self.latin}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8" if name in self.files else "latin-1"))
        for name in self.folders:
            (folder / name).mkdir(parents=True)
        for name, target in self.links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(target)


@functools.cache
def mistakes() -> Mapping[str, Mistake]:
    """All of them, by file and name."""
    files: dict[str, list[dict[str, Any]]] = {
        path.stem: yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted(HERE.glob("*.yaml"))
    }
    return {f"{name}: {each['name']}": Mistake(**each) for name, found in files.items() for each in found}
