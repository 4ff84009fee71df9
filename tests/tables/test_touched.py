"""Rows that training looked up: in the whole run and since last asked, against sets of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.specs.optimizers import SGD
from embexp.tables.optimizers import RowGroups
from embexp.tables.table import EmbeddingTable, SplitTable
from embexp.tables.tpu_tables import TPUTable
from embexp.tables.variables import ReadableTable

ROWS, DIM = 12, 2


class Zeros:
    rows, dim = ROWS, DIM

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.zeros((stop - start, DIM), np.float32)


def table_of(layout: str) -> Any:
    match layout:
        case "split":
            return SplitTable(
                "item",
                RowGroups("item", (np.arange(ROWS) > 0).astype(np.uint8), np.array([[0, 1]], np.float32), [0]),
                DIM,
            )
        case "tpu":
            return TPUTable("item", Zeros(), ROWS, DIM, optimizer=SGD())
        case _:
            return EmbeddingTable("item", ROWS, DIM)


def rows_in(mask: np.ndarray | None) -> set[int]:
    assert mask is not None
    assert (mask.dtype, mask.shape) == (np.bool_, (ROWS,))
    return set(np.flatnonzero(mask).tolist())


SOME = st.frozensets(st.integers(1, ROWS - 1))  # row 0 of the split table never moves


@pytest.mark.parametrize("layout", ["variable", "split", "tpu"])
@given(calls=st.lists(st.tuples(st.sampled_from(["mark", "mark", "take", "restore", "ask"]), SOME), max_size=12))
def test_marked_taken_and_restored_in_any_order(layout: str, calls: list[tuple[str, frozenset[int]]]) -> None:
    table: ReadableTable = table_of(layout)
    ever, since = set[int](), set[int]()
    for call, rows in calls:
        match call:
            case "mark":
                table.mark_touched(np.array(sorted(rows), np.int64))
                ever, since = ever | rows, since | rows
            case "take":
                assert rows_in(table.take_touched()) == since
                since = set()
            case "restore":
                mask = np.isin(np.arange(ROWS), sorted(rows))
                table.restore_touched(mask)
                mask[:] = True  # the table keeps a copy
                ever, since = set(rows), set()
        assert (rows_in(table.looked_up()), table.touched_rows()) == (ever, len(ever))
    assert rows_in(table.take_touched()) == since
    assert rows_in(table.looked_up()) == ever


def test_what_is_taken_stays_as_it_is() -> None:
    table = table_of("variable")
    table.mark_touched([1])
    first = table.take_touched()
    table.mark_touched([2])
    second = table.take_touched()
    assert (rows_in(first), rows_in(second)) == ({1}, {2})


def test_what_can_not_be_restored() -> None:
    for mask in (np.zeros(ROWS, np.uint8), np.zeros(ROWS - 1, np.bool_)):
        with pytest.raises(ValueError, match=r"table 'item' takes bool \(12,\), got"):
            table_of("variable").restore_touched(mask)
    table = EmbeddingTable("user", 3, 1, frozen=True)
    assert table.take_touched() is None
    with pytest.raises(ValueError, match="table 'user' does not track"):
        table.restore_touched(np.zeros(3, np.bool_))
