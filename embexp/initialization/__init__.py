"""Init methods, one module each: how initial values get into tables.

Your own graphs and model functions can use `scaffold`, `AssignInSession`, `mapped`, and the modules `constant`,
`placeholder_feed` and `variable_load`; a function for `init=custom` returns an `InitMethod`. Each is imported at its
first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embexp.initialization import constant, placeholder_feed, variable_load
    from embexp.initialization.assign import AssignInSession
    from embexp.initialization.method import InitMethod
    from embexp.initialization.scaffolding import scaffold
    from embexp.initialization.whole import mapped

__all__ = ["AssignInSession", "InitMethod", "constant", "mapped", "placeholder_feed", "scaffold", "variable_load"]

_LATER = {
    "AssignInSession": "embexp.initialization.assign",
    "InitMethod": "embexp.initialization.method",
    "mapped": "embexp.initialization.whole",
    "scaffold": "embexp.initialization.scaffolding",
}
_MODULES = {"constant", "placeholder_feed", "variable_load"}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
