"""How much of `init=constant` fits into one graph. No TensorFlow: it is checked before a run imports it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from embexp.errors import RunError

LIMIT_BYTES = 2**31 - 1 - 1024 * 1024
"""Bytes that constants may have in one graph: what a protocol buffer can hold, less some for the rest of the graph."""

_BYTES_PER_VALUE = 4


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
