"""Checkpoints: everything that a run has learned, saved and restored; and what is in anyone's checkpoints.

Your own code can use `keys` and `read_rows`. Each is imported at its first use; neither imports TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embexp.checkpoints.contents import KeyInfo
    from embexp.checkpoints.reading import keys, read_rows

__all__ = ["KeyInfo", "keys", "read_rows"]

_LATER = {
    "KeyInfo": "embexp.checkpoints.contents",
    "keys": "embexp.checkpoints.reading",
    "read_rows": "embexp.checkpoints.reading",
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
