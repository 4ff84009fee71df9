"""Work on several items at a time, or on items while the next ones are made; and how far it is."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
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
    return list(in_order(work, items))


def in_order(work: Callable[[Item], Made], items: Iterable[Item]) -> Generator[Made, None, None]:
    """What `work` makes of each item, in their order, as many at a time as there are processors.

    As many again may lie ready. Items are made by the caller's thread, one after the other.

    Args:
        work: as that of `at_once`.
    """
    processors = os.cpu_count() or 1
    source = iter(items)
    pool = ThreadPoolExecutor(processors, "in_order")
    try:
        coming = deque(pool.submit(work, item) for item in itertools.islice(source, 2 * processors))
        while coming:
            made = coming.popleft().result()
            coming.extend(pool.submit(work, item) for item in itertools.islice(source, 1))
            yield made
    finally:
        pool.shutdown(cancel_futures=True)


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


def if_long(progress: Progress, *, after: float = 2.0, clock: Callable[[], float] = time.monotonic) -> Progress:
    """A `Progress` that begins to show a stage when it has taken so many seconds, so that short ones add no lines.

    A stage of which nobody knows how much is done is called once, before it: it is shown at once, so that no other
    stage's name stands there meanwhile.
    """
    name, fraction, began = "", 0.0, 0.0

    def shown(stage: str, done: float | None) -> None:
        nonlocal name, fraction, began
        if stage != name or (done or 0.0) < fraction:
            name, began = stage, clock()
        fraction = done or 0.0
        if done is None or clock() - began >= after:
            progress(stage, done)

    return shown


def part(progress: Progress, start: float, stop: float) -> Progress:
    """A `Progress` of stages that are from `start` to `stop` of a longer one."""
    return lambda stage, done: progress(stage, None if done is None else start + done * (stop - start))


def reported(items: Iterable[Item], count: int, stage: str, progress: Progress) -> Iterator[Item]:
    """The items, so many; reports how many were dealt with."""
    for number, item in enumerate(items):
        progress(stage, number / count)
        yield item


def quiet(stage: str, fraction: float | None) -> None:
    """A `Progress` that shows nothing."""
