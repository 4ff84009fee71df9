"""Rows that never moved, counted by cause: against whole tables compared in NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embexp.training.freezing.watching import Cause, RowHashes, by_cause, most_frequent


def blocks(matrix: np.ndarray, size: int) -> list[np.ndarray]:
    return [matrix[start : start + size] for start in range(0, len(matrix), size)]


@given(
    rows=st.integers(1, 40),
    seed=st.integers(0, 1000),
    block=st.integers(1, 50),
    with_frozen=st.booleans(),
    with_idle=st.booleans(),
    with_looked_up=st.booleans(),
)
def test_counts_are_those_of_whole_tables_compared(
    rows: int, seed: int, block: int, with_frozen: bool, with_idle: bool, with_looked_up: bool
) -> None:
    generator = np.random.default_rng(seed)
    before = generator.choice(np.array([0.0, -0.0, 1.0, np.nan], np.float32), (rows, 3))
    after = np.where(generator.random((rows, 1)) < 0.5, before, generator.choice(before.reshape(-1), (rows, 3)))
    frozen = generator.random(rows) < 0.3 if with_frozen else None
    idle = generator.random(rows) < 0.3 if with_idle else None
    looked_up = generator.random(rows) < 0.5 if with_looked_up else None
    special = np.flatnonzero(generator.random(rows) < 0.2)

    hashes = RowHashes(blocks(before, block))
    found = by_cause(hashes.changed(blocks(after, 7)), frozen=frozen, looked_up=looked_up, idle=idle, special=special)
    hashes.close()

    expected = {cause: [] for cause in Cause}  # type: ignore[var-annotated]
    moved = spared = 0
    for row in range(rows):
        if frozen is not None and frozen[row]:
            continue
        met = looked_up is not None and looked_up[row]
        if before[row].tobytes() != after[row].tobytes():
            moved += 1
        elif row in special and not met:
            spared += 1
        elif idle is not None and idle[row]:
            expected[Cause.LEARNING_RATE_ZERO].append(row)
        else:
            expected[Cause.NO_GRADIENT if met else Cause.NEVER_MET].append(row)
    assert (found.moved, found.special) == (moved, spared)
    assert {cause: np.flatnonzero(mask).tolist() for cause, mask in found.rows.items()} == {
        cause: numbers for cause, numbers in expected.items() if numbers
    }
    assert found.counts == {cause: len(numbers) for cause, numbers in expected.items()}
    trainable = rows if frozen is None else np.count_nonzero(~frozen)
    assert found.moved + found.count + found.special == trainable


@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    free=st.integers(0, 5),
    seed=st.integers(0, 100),
)
def test_the_most_frequent_come_first_and_earlier_rows_before_later_ones(
    counts: list[int], free: int, seed: int
) -> None:
    rows = np.random.default_rng(seed).random(len(counts) + free) < 0.6
    padded = [*counts, *[0] * free]
    ranked = sorted(np.flatnonzero(rows).tolist(), key=lambda row: (-padded[row], row))
    assert most_frequent(rows, np.array(counts)).tolist() == ranked[:5]
    assert most_frequent(rows, None, shown=3).tolist() == np.flatnonzero(rows)[:3].tolist()
