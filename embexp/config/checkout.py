"""The shipped configs as the package `embexp.conf`, also in a checkout, where they lie beside `embexp`.

Imported with `embexp`, so it imports next to nothing: `importlib.abc` alone would double the time of `embexp --help`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_NAME = "embexp.conf"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Configs:
    """Finds `embexp.conf`, and nothing else, beside the package; an `importlib.abc.MetaPathFinder`."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The configs of the checkout; None for any other module."""
        return PathFinder.find_spec(fullname, [os.path.dirname(_PACKAGE)]) if fullname == _NAME else None


def find_configs() -> None:
    """Has `pkg://embexp.conf` work; does nothing in a wheel, which has the configs inside the package."""
    if not os.path.isdir(os.path.join(_PACKAGE, "conf")):
        sys.meta_path.append(Configs)
