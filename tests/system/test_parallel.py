"""Work on several items at a time."""

from __future__ import annotations

import os
import threading
import time

import pytest

from embexp.system.parallel import at_once


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
