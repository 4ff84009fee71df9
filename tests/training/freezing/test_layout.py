"""The layout that a table gets where nobody asks for one."""

from __future__ import annotations

import pytest

from embexp.specs.tables import Storage
from embexp.training.freezing import policies


@pytest.mark.parametrize(
    ("rows", "dim", "slots", "frozen", "expected"),
    [
        (100_000, 64, 128, 90_000, "split"),
        (100_000, 64, 64, 90_000, "split"),
        (100_000, 64, 1, 90_000, "variable"),  # a number a row
        (100_000, 64, 0, 90_000, "variable"),  # no slots to save
        (100_000, 64, 128, 0, "variable"),
        (100_000, 64, 128, 100_000, "variable"),  # frozen whole: no slots at all
        (100_000, 64, 128, 5_000, "variable"),  # 3 % of the table
        (100_000, 1, 2, 90_000, "variable"),  # 0.3 MB
        (1_000, 64, 128, 900, "variable"),
    ],
)
def test_split_where_it_saves_enough(rows: int, dim: int, slots: int, frozen: int, expected: str) -> None:
    found = [
        policies.automatic_layout(rows=rows, row_bytes=4 * dim, slot_bytes=4 * slots, frozen_rows=frozen, splits=splits)
        for splits in (True, False)
    ]
    assert found == [Storage(expected), Storage.VARIABLE]
