"""Checkpoints: everything that a run has learned, saved and restored.

For models of your own there are `save`, `restore`, which returns an account of every value, and `convert`, between
object-based and name-based checkpoints. Each is imported at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embexp.checkpoints.account import Account, LiveAccount, Mismatch, Value
    from embexp.checkpoints.converting import Conversion, convert
    from embexp.checkpoints.kinds import Kind
    from embexp.checkpoints.restoring import restore
    from embexp.checkpoints.saving import save

__all__ = ["Account", "Conversion", "Kind", "LiveAccount", "Mismatch", "Value", "convert", "restore", "save"]

_MODULES = {
    "Account": "account",
    "Conversion": "converting",
    "Kind": "kinds",
    "LiveAccount": "account",
    "Mismatch": "account",
    "Value": "account",
    "convert": "converting",
    "restore": "restoring",
    "save": "saving",
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
