"""Work on several items at a time, or on items while the next ones are made; and how far it is."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")
Progress = Callable[[str, float | None], None]
"""Called with the name of a stage and, where known, the fraction of it that is done (0 to 1)."""


def at_once(work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """What `work` makes of each item, in their order, as many at a time as there are processors.

    Args:
        work: in a thread; does most of its work in NumPy, Arrow or the system, which let other threads run meanwhile.
        items: to work on; what is made of all of them has to fit into memory.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1, "at_once") as pool:
        return list(pool.map(work, items))


def ahead(items: Iterable[Item], *, depth: int = 2) -> Generator[Item, None, None]:
    """The items in their order, so many of them made in a thread before they are asked for.

    Args:
        items: made one after the other; none is None.
        depth: how many may lie ready; bounds the memory.
    """
    source = iter(items)
    pool = ThreadPoolExecutor(1, "ahead")
    try:
        coming = deque(pool.submit(next, source, None) for _ in range(depth))
        while (item := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, source, None))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)


def quiet(stage: str, fraction: float | None) -> None:
    """A `Progress` that shows nothing."""
