"""The shipped configs as the package `embexp.conf`, also in a checkout, where they lie beside `embexp`."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_NAME = "embexp.conf"


class Configs(importlib.abc.MetaPathFinder):
    """Finds `embexp.conf`, and nothing else, beside the package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The configs of the checkout; None for any other module."""
        if fullname != _NAME:
            return None
        return PathFinder.find_spec(fullname, [str(Path(__file__).parents[2])])


def find_configs() -> None:
    """Has `pkg://embexp.conf` work; does nothing in a wheel, which has the configs inside the package."""
    if not (Path(__file__).parents[1] / "conf").is_dir():
        sys.meta_path.append(Configs())
