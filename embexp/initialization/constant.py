"""The matrix as a constant of the graph: what `tf.constant_initializer(matrix)` does. The baseline of the others.

Every value becomes part of the GraphDef, which is copied, serialised and sent about, and can't exceed 2 GiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from embexp.initialization import graph_limit
from embexp.initialization.method import InitMethod, Pairs, SessionFills
from embexp.initialization.whole import Source, mapped, opened


def method() -> InitMethod:
    """`init=constant`: in sessions only; below 2 GiB for all tables together."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        """Their initial values are theirs already."""

    return InitMethod(in_session=in_session, initial_value=initial_value, check=graph_limit.check)


def initial_value(source: Source) -> Callable[..., Any]:
    """What to give a variable as its initial value: `tf.Variable(initial_value(m))`.

    It works as the `initializer` of `tf.compat.v1.get_variable` too. The matrix is read when it is called.

    Raises:
        RunError: the matrix has too many bytes for a graph.
    """
    rows = opened(source)
    graph_limit.check({"": (rows.rows, rows.dim)})

    def value(shape: Any = None, dtype: Any = None, partition_info: Any = None) -> Any:
        return tf.constant(mapped(rows), tf.float32, shape)

    return value
