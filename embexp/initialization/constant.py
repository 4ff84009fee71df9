"""The matrix as a constant of the graph, as by `tf.constant_initializer(matrix)`: the baseline of the others.

Every value becomes part of the GraphDef, which is copied and serialised, and can't exceed 2 GiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from embexp.initialization.method import InitMethod, Pairs, SessionFills, Source, as_rows, mapped
from embexp.specs.inits import ConstantInGraph


def method(init: ConstantInGraph, path: str) -> InitMethod:
    """`init=constant`: in sessions only; below 2 GiB for all tables together."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        """Adds nothing: the variables' initial values are constants."""

    return InitMethod(in_session=in_session, initial_value=initial_value, check=ConstantInGraph.check)


def initial_value(source: Source) -> Callable[..., Any]:
    """The initial value of a variable: `tf.Variable(initial_value(m))`.

    It also works as the `initializer` of `tf.compat.v1.get_variable`. The matrix is read when it is called.

    Raises:
        RunError: the matrix has too many bytes for a graph.
    """
    rows = as_rows(source)
    ConstantInGraph.check({"": (rows.rows, rows.dim)})

    def value(shape: Any = None, dtype: Any = None, partition_info: Any = None) -> Any:
        matrix = mapped(rows)
        if partition_info is not None:
            row, column = partition_info.var_offset
            matrix = matrix[row : row + shape[0], column : column + shape[1]]
        return tf.constant(matrix, tf.float32, shape)

    return value
