"""`init=placeholder_feed`: a variable's initializer is run with the matrix fed in place of its initial value.

The graph holds nothing of the matrix, and the variable uses the fed memory until TensorFlow first writes to it.
"""

from __future__ import annotations

from typing import Any

from embexp.initialization.method import Fills, InitMethod, Pairs, SessionFills, mapped, pairs
from embexp.specs.inits import PlaceholderFeed


def method(init: PlaceholderFeed, path: str) -> InitMethod:
    """`init=placeholder_feed`: in sessions only."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        fills.add(lambda session: fill(session, variables), always=always, whole=variables)

    return InitMethod(in_session=in_session)


def fill(session: Any, fills: Fills) -> None:
    """Initializes variables: `session.run(x.initializer, {x.initial_value: matrix})`, one after the other.

    Args:
        session: a `tf.compat.v1.Session`, or a monitored one. The graph may be finalized.
        fills: variables with their values, see `Source`. A partitioned variable stands for all its parts. If a variable
            is already initialized, memory is filled and then dropped.

    Raises:
        DataError: a file is missing, or is not a file of vectors.
        RunError: there is no space for the temporary file of a source that can't be mapped.
        ValueError: a source doesn't have its variable's shape, or a variable has another type.
    """
    with session.graph.as_default():  # outside the graph, a variable has no `initial_value`
        for variable, source in pairs(fills):
            session.run(variable.initializer, {variable.initial_value: mapped(source)})
