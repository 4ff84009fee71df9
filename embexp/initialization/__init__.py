"""Init methods: how initial values get into tables.

Your own graphs and model functions can use `scaffold`, `AssignInSession`, `read_vectors`, `mapped`, and the modules
`constant`, `placeholder_feed` and `variable_load`; a function for `init=custom` returns an `InitMethod`. Each is
imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embexp.system import at_first_use

if TYPE_CHECKING:
    from embexp.initialization import constant, placeholder_feed, variable_load
    from embexp.initialization.method import AssignInSession, InitMethod, Source, mapped, read_vectors
    from embexp.initialization.scaffolding import scaffold

__all__ = [
    "AssignInSession",
    "InitMethod",
    "Source",
    "constant",
    "mapped",
    "placeholder_feed",
    "read_vectors",
    "scaffold",
    "variable_load",
]

__getattr__, __dir__ = at_first_use(
    __name__,
    {
        "embexp.initialization.constant": (),
        "embexp.initialization.method": ("AssignInSession", "InitMethod", "Source", "mapped", "read_vectors"),
        "embexp.initialization.placeholder_feed": (),
        "embexp.initialization.scaffolding": ("scaffold",),
        "embexp.initialization.variable_load": (),
    },
)
