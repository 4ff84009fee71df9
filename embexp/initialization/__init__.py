"""How values get into tables: where rows come from, and one module per init method.

For graphs and model functions of one's own: `scaffold`, `AssignInSession`, `mapped`, and the modules `constant`,
`placeholder_feed` and `variable_load`. They are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embexp.initialization import constant, placeholder_feed, variable_load
    from embexp.initialization.assign import AssignInSession
    from embexp.initialization.scaffolding import scaffold
    from embexp.initialization.whole import mapped

__all__ = ["AssignInSession", "constant", "mapped", "placeholder_feed", "scaffold", "variable_load"]

_LATER = {
    "AssignInSession": "embexp.initialization.assign",
    "mapped": "embexp.initialization.whole",
    "scaffold": "embexp.initialization.scaffolding",
}
_MODULES = {"constant", "placeholder_feed", "variable_load"}


def __getattr__(name: str) -> Any:
    """Imports what a public name stands for when the name is first used."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
