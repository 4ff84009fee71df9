"""Arrays and their alignment, the cache, digests, files written whole, processes, signals and memory."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def at_first_use(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose public names are imported when they are first used.

    Args:
        modules: the names, by the module that has them; a module without names is public itself.
    """
    places = {name: module for module, names in modules.items() for name in names or (module.rpartition(".")[2],)}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(places[name])
        return getattr(module, name) if modules[places[name]] else module

    return get, lambda: sorted({*vars(sys.modules[package]), *places})
