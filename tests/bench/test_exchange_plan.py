"""`bench.exchange_plan` against a step that is counted by hand, and against the exchange that it plans."""

from __future__ import annotations

import numpy as np
import pytest

from bench import exchange_plan
from embexp.strategies.cluster import exchange
from embexp.strategies.cluster.partition import Partition


def test_a_step_counted_by_hand() -> None:
    """Rows 0 and 2 are worker 0's, 1 and 3 worker 1's. Worker 0 asks for 0 (twice) and 2, worker 1 for 1, 2 and 3."""
    made = exchange_plan.plan(np.array([[0, 0, 2, 1, 2, 3]]), Partition(4, 2, 1), dim=4)
    assert made.distinct == (2 + 3) / 2
    assert made.room == exchange._LEAST == exchange_plan._LEAST
    assert made.enlarged == 0
    assert made.imbalance == 3 / 2.5
    assert made.padding == 1 - 5 / (4 * 8)
    assert made.bytes_of_a_worker == 8 * (8 * 4 + 4)


def test_parts_grow_by_an_eighth_more_than_what_is_needed() -> None:
    ids = np.arange(400)[None]
    made = exchange_plan.plan(ids, Partition(400, 2, 1), dim=1)
    assert (made.room, made.enlarged) == (100 + 100 // 8 + exchange._LEAST, 1)


def test_zipf() -> None:
    ids = exchange_plan.zipf(1_000, 1.0, (50, 1_000))
    shares = np.bincount(ids.ravel(), minlength=1_000) / ids.size
    assert shares[0] == pytest.approx(1 / np.sum(1 / np.arange(1, 1_001)), rel=0.05)
    assert shares[0] / shares[1] == pytest.approx(2, rel=0.1)
    assert ids.max() < 1_000
