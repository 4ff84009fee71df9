"""Work on several items at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def at_once(work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """What `work` makes of each item, in their order, as many at a time as there are processors.

    Args:
        work: in a thread; does most of its work in NumPy, Arrow or the system, which let other threads run meanwhile.
        items: to work on; what is made of all of them has to fit into memory.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1, "at_once") as pool:
        return list(pool.map(work, items))
