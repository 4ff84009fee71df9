"""A variable's initializer is run with the matrix fed in place of its initial value.

The graph holds nothing of the matrix, and TensorFlow takes the memory that is fed as the variable's own until it first
writes to it.
"""

from __future__ import annotations

from typing import Any

from embexp.initialization.method import InitMethod, Pairs, SessionFills
from embexp.initialization.whole import Fills, mapped, pairs


def method() -> InitMethod:
    """`init=placeholder_feed`: in sessions only."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        fills.add(lambda session: fill(session, variables), always=always)
        fills.whole.extend(variable for variable, _ in variables)

    return InitMethod(in_session=in_session)


def fill(session: Any, fills: Fills) -> None:
    """Initializes variables: `session.run(x.initializer, {x.initial_value: matrix})`, one after the other.

    Args:
        session: a `tf.compat.v1.Session`, or a monitored one. The graph may be finalized.
        fills: variables, and for each a matrix, the path of a `.npy` file, or rows; see `whole.Source`. They
            may be initialized already, but better aren't: that would fill their memory before it is dropped.

    Raises:
        DataError: a file is not what it should be.
        RunError: there is no room for a file of what can't be mapped as it is.
        ValueError: a source doesn't have its variable's shape, or a variable is not float32.
    """
    with session.graph.as_default():  # eagerly, a variable doesn't tell its initial value
        for variable, source in pairs(fills):
            session.run(variable.initializer, {variable.initial_value: mapped(source)})
