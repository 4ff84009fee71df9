"""Init methods, one module each: how initial values get into tables.

Your own graphs and model functions can use `scaffold`, `AssignInSession`, `read_vectors`, `mapped`, and the modules
`constant`, `placeholder_feed` and `variable_load`; a function for `init=custom` returns an `InitMethod`.
"""

from embexp.initialization import constant, placeholder_feed, variable_load
from embexp.initialization.assign import AssignInSession
from embexp.initialization.method import InitMethod, Source, mapped, read_vectors
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
