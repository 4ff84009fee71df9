"""The matrix as a constant of the graph: what `tf.constant_initializer(matrix)` does. The baseline of the others.

Every value becomes part of the GraphDef, which is copied, serialised and sent about, and can't exceed 2 GiB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from embexp.errors import RunError
from embexp.initialization.method import InitMethod, Pairs, SessionFills
from embexp.initialization.whole import Source, mapped, opened

LIMIT_BYTES = 2**31 - 1 - 1024 * 1024
"""Bytes that constants may have in one graph: what a protocol buffer can hold, less some for the rest of the graph."""

_BYTES_PER_VALUE = 4


def method() -> InitMethod:
    """`init=constant`: in sessions only; below 2 GiB for all tables together."""

    def in_session(variables: Pairs, fills: SessionFills, always: bool) -> None:
        """Their initial values are theirs already."""

    return InitMethod(in_session=in_session, initial_value=initial_value, check=check)


def initial_value(source: Source) -> Callable[..., Any]:
    """What to give a variable as its initial value: `tf.Variable(initial_value(m))`.

    It works as the `initializer` of `tf.compat.v1.get_variable` too. The matrix is read when it is called.

    Raises:
        RunError: the matrix has too many bytes for a graph.
    """
    rows = opened(source)
    check({"": (rows.rows, rows.dim)})

    def value(shape: Any = None, dtype: Any = None, partition_info: Any = None) -> Any:
        return tf.constant(mapped(rows), tf.float32, shape)

    return value


def check(sizes: Mapping[str, tuple[int, int]]) -> None:
    """Whether float32 matrices can all be constants of one graph; reads and allocates nothing.

    Args:
        sizes: rows and dim of each, by the name of its table, or "".

    Raises:
        RunError: together they have too many bytes.
    """
    total = sum(_BYTES_PER_VALUE * math.prod(size) for size in sizes.values())
    if total <= LIMIT_BYTES:
        return
    shapes = ", ".join(f"{name} {rows} × {dim}".strip() for name, (rows, dim) in sizes.items())
    raise RunError(
        f"init=constant: a graph holds less than 2 GiB (2,147,483,648 bytes), found {total:,} bytes of constants"
        f" ({shapes}); choose a way in that keeps them out of the graph: placeholder_feed, scaffold, variable_load"
        " or assign"
    )
