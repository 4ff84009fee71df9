"""The factory of init methods."""

from __future__ import annotations

from typing import assert_never

from embexp.initialization import assign, constant, memory_map, placeholder_feed, scaffolding, variable_load
from embexp.initialization.method import InitMethod
from embexp.specs import inits


def build(init: inits.Init) -> InitMethod:
    """The method that a setting names."""
    match init:
        case inits.ConstantInGraph():
            return constant.method()
        case inits.PlaceholderFeed():
            return placeholder_feed.method()
        case inits.Scaffold():
            return scaffolding.method()
        case inits.VariableLoad():
            return variable_load.method()
        case inits.Assign():
            return assign.method(init.chunk_bytes)
        case inits.MemoryMap():
            return memory_map.method()
        case _:
            assert_never(init)
