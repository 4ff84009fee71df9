"""Init methods, one module each: how initial values get into tables.

Your own graphs and model functions can use `scaffold`, `AssignInSession`, `mapped`, and the modules `constant`,
`placeholder_feed` and `variable_load`; a function for `init=custom` returns an `InitMethod`.
"""

from embexp.initialization import constant, placeholder_feed, variable_load
from embexp.initialization.assign import AssignInSession
from embexp.initialization.method import InitMethod, mapped
from embexp.initialization.scaffolding import scaffold

__all__ = ["AssignInSession", "InitMethod", "constant", "mapped", "placeholder_feed", "scaffold", "variable_load"]
