"""Work on several items at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from embexp.system.parallel import at_once, if_long, in_order, part, reported


def test_what_is_made_has_the_order_of_the_items() -> None:
    def slow(number: int) -> int:
        time.sleep(0.02 / (number + 1))  # the later ones are done first
        return -number

    assert at_once(slow, range(6)) == [0, -1, -2, -3, -4, -5]
    assert at_once(slow, []) == []


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor")
def test_two_are_in_work_at_a_time() -> None:
    both = threading.Barrier(2, timeout=30)
    at_once(lambda _: both.wait(), range(2))


def test_the_error_of_an_item_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        at_once(lambda number: 1 // number, (2, 1, 0))


def test_few_items_are_made_before_they_are_asked_for() -> None:
    most = 2 * (os.cpu_count() or 1)
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    found = in_order(lambda number: -number, items())
    assert [next(found), next(found)] == [0, -1]
    assert taken <= most + 2
    found.close()
    assert taken <= most + 2


def test_a_stage_is_reported_once_it_is_long() -> None:
    clock, said = [0.0], list[tuple[str, float | None]]()
    progress = if_long(lambda stage, done: said.append((stage, done)), clock=lambda: clock[0])
    for second in range(5):
        clock[0] = float(second)
        progress("evaluating", second / 10)
    clock[0] = 5.0
    progress("evaluating", 0.1)  # the next one
    progress("comparing", None)
    clock[0] = 7.0
    progress("comparing", None)
    shown_late = [("evaluating", 0.2), ("evaluating", 0.3), ("evaluating", 0.4)]
    assert said == [*shown_late, ("comparing", None), ("comparing", None)]  # called once, it would be shown never


def test_parts_of_a_stage() -> None:
    said: list[tuple[str, float | None]] = []
    second_half = part(lambda stage, done: said.append((stage, done)), 0.5, 1.0)
    assert list(reported("abcd", 4, "reading", second_half)) == list("abcd")
    second_half("reading", None)
    assert said == [("reading", 0.5), ("reading", 0.625), ("reading", 0.75), ("reading", 0.875), ("reading", None)]
