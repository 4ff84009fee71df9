"""The limit of `init=constant`: what fits into one graph. Without TensorFlow, as it is checked before its import."""

from __future__ import annotations

import math
from collections.abc import Mapping

from embexp.errors import RunError

LIMIT_BYTES = 2**31 - 1 - 1024 * 1024
"""Largest sum of constants in one graph, in bytes: a protocol buffer's limit, less some for the rest of the graph."""

_BYTES_PER_VALUE = 4


def check(sizes: Mapping[str, tuple[int, int]]) -> None:
    """Checks that float32 matrices can all be constants of one graph; reads and allocates nothing.

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
        f" ({shapes}); choose an init method that keeps them out of the graph: placeholder_feed, scaffold,"
        " variable_load or assign"
    )
