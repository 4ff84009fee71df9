"""Frozen rows stay in the file that they come from; what a table has beside them is assigned."""

from __future__ import annotations

from embexp.initialization import assign
from embexp.initialization.method import InitMethod


def method() -> InitMethod:
    """`init=memory_map`: the table's layout says which rows the file keeps, so only the others are to be filled.

    A table none of whose rows can stay in a file, which inherits the method, is assigned whole.
    """
    return assign.method()
