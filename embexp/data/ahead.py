"""Work on items while the next ones are made."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


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
