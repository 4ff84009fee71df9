"""Train, validation and test, against plain-Python readings of the rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data import splits
from embexp.data.splits import permuted
from embexp.errors import DataError
from embexp.specs.data import Split

fractions = st.floats(0, 0.49)


def divided(
    split: Split,
    count: int,
    *,
    folds: int | None = None,
    fold: int | None = None,
    timestamps: list[float] | None = None,
    groups: list[int] | None = None,
    step: int | None = None,
) -> list[int]:
    """Part of each example: 0 train, 1 validation, 2 test."""
    assigned = splits.assignment(
        split,
        count,
        folds=folds,
        fold=fold,
        timestamps=None if timestamps is None else np.array(timestamps, np.float64),
        groups=None if groups is None else np.array(groups),
    )
    step = step or max(1, count)
    pieces = [assigned(start, min(start + step, count)) for start in range(0, count, step)]
    return [int(each) for each in np.concatenate([np.empty(0, np.uint8), *pieces])]


def rounded(fraction: float, count: int) -> int:
    return int(np.floor(fraction * count + 0.5))


@given(
    count=st.integers(1, 500), validation=fractions, test=fractions, seed=st.integers(0, 99), step=st.integers(1, 99)
)
def test_random_parts_have_their_sizes_whatever_the_chunks(
    count: int, validation: float, test: float, seed: int, step: int
) -> None:
    split = Split(kind="random", validation=validation, test=test, seed=seed)
    parts = divided(split, count)
    assert parts == divided(split, count, step=step)
    assert parts.count(2) == rounded(test, count)
    assert parts.count(1) == min(rounded(validation, count), count - parts.count(2))


def test_random_parts_look_random_and_differ_by_seed() -> None:
    parts = np.array([divided(Split(seed=seed, validation=0.2, test=0.3), 10_000) for seed in (0, 1)])
    # The share of the test in each tenth of the file: 300 expected, standard deviation 14.
    assert np.abs((parts == 2).reshape(2, 10, 1000).sum(2) - 300).max() < 75
    both = ((parts[0] == 2) & (parts[1] == 2)).sum()
    assert abs(int(both) - 900) < 125


@given(
    count=st.integers(5, 300),
    folds=st.integers(2, 5),
    validation=st.floats(0, 0.9),
    seed=st.integers(0, 99),
)
def test_folds_partition_and_validation_is_taken_off_the_rest(
    count: int, folds: int, validation: float, seed: int
) -> None:
    split = Split(kind="folds", validation=validation, seed=seed)
    parts = np.array([divided(split, count, folds=folds, fold=fold) for fold in range(folds)])
    assert ((parts == 2).sum(0) == 1).all()  # each example tests in exactly one fold
    sizes = (parts == 2).sum(1)
    assert sizes.max() - sizes.min() <= 1
    for part, size in zip(parts, sizes, strict=True):
        assert (part == 1).sum() == min(rounded(validation, count - size), count - size)


def test_validation_differs_from_fold_to_fold() -> None:
    split = Split(kind="folds", validation=0.2)
    parts = [np.array(divided(split, 5000, folds=5, fold=fold)) for fold in (0, 1)]
    # Of the 3,000 examples that are in the rest of both folds, one in 25 validates in both if they are independent.
    both = int(((parts[0] == 1) & (parts[1] == 1)).sum())
    assert 60 < both < 190


@given(
    timestamps=st.lists(st.integers(0, 8) | st.floats(-1e9, 1e9), min_size=1, max_size=60),
    validation=fractions,
    test=fractions,
)
def test_by_time_the_latest_test_and_ties_go_by_position(
    timestamps: list[float], validation: float, test: float
) -> None:
    count = len(timestamps)
    order = sorted(range(count), key=lambda row: (timestamps[row], row))
    tests, validations = rounded(test, count), rounded(validation, count)
    expected = [0] * count
    for place, row in enumerate(order):
        if place >= count - tests:
            expected[row] = 2
        elif place >= count - tests - validations:
            expected[row] = 1
    split = Split(kind="time", validation=validation, test=test)
    assert divided(split, count, timestamps=timestamps) == expected


@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=60))
def test_leave_one_out_keeps_one_to_train_on(rows: list[tuple[int, int]]) -> None:
    """The latest example of a group tests, the one before validates, but the earliest always trains."""
    groups, timestamps = [group for group, _ in rows], [float(time) for _, time in rows]
    expected = [0] * len(rows)
    for group in set(groups):
        mine = sorted((row for row in range(len(rows)) if groups[row] == group), key=lambda row: (timestamps[row], row))
        if len(mine) > 1:
            expected[mine[-1]] = 2
        if len(mine) > 2:
            expected[mine[-2]] = 1
    split = Split(kind="leave_one_out", group="user")
    assert divided(split, len(rows), timestamps=timestamps, groups=groups) == expected
    none = Split(kind="leave_one_out", group="user", validation=0.0)
    assert not none.validates
    trained = [0 if part == 1 else part for part in expected]
    assert divided(none, len(rows), timestamps=timestamps, groups=groups) == trained


def test_without_timestamps_position_is_time() -> None:
    assert divided(Split(kind="time", validation=0.2, test=0.4), 5) == [0, 0, 1, 2, 2]
    assert divided(Split(kind="leave_one_out", group="g"), 5, groups=[1, 1, 1, 2, 2]) == [0, 1, 2, 0, 2]


def test_written_parts_are_rising_row_numbers_that_cover_all(tmp_path: Path) -> None:
    split = Split(validation=0.25, test=0.25)
    splits.write(splits.assignment(split, 1001, folds=None, fold=None, timestamps=None, groups=None), 1001, tmp_path)
    parts = {part: np.load(tmp_path / f"{part}.npy") for part in splits.SPLITS}
    for rows in parts.values():
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
    assert sorted(np.concatenate(list(parts.values()))) == list(range(1001))
    given_parts = divided(split, 1001)
    assert [given_parts[row] for row in parts["test"]] == [2] * 250


def test_nothing_left_to_train_on_is_an_error(tmp_path: Path) -> None:
    assigned = splits.assignment(
        Split(validation=0.4, test=0.5), 1, folds=None, fold=None, timestamps=None, groups=None
    )
    text = r"the split of 1 examples leaves none to train on \(train: 0, validation: 0, test: 1\)"
    with pytest.raises(DataError, match=text):
        splits.write(assigned, 1, tmp_path)


@given(count=st.integers(1, 2000), key=st.integers(0, 2**62 - 1))
def test_the_permutation_is_one(count: int, key: int) -> None:
    assert sorted(permuted(np.arange(count), count, key)) == list(range(count))


def test_permuting_a_huge_range_takes_memory_of_what_is_asked_only() -> None:
    places = permuted(np.array([0, 1, 10**15 - 1]), 10**15, 7)
    assert len(set(places)) == 3
    assert ((places >= 0) & (places < 10**15)).all()


@given(
    groups=st.lists(st.integers(-3, 5), min_size=1, max_size=80),
    validation=fractions,
    test=fractions,
    seed=st.integers(0, 9),
)
def test_a_random_split_within_users_takes_its_shares_of_each(
    groups: list[int], validation: float, test: float, seed: int
) -> None:
    split = Split(kind="random", within="user", group="u", validation=validation, test=test, seed=seed)
    parts = divided(split, len(groups), groups=groups)
    for user in set(groups):
        mine = [part for part, group in zip(parts, groups, strict=True) if group == user]
        tests = min(rounded(test, len(mine)), len(mine) - 1)
        assert mine.count(2) == tests
        assert mine.count(1) == min(rounded(validation, len(mine)), len(mine) - 1 - tests)
        assert mine.count(0) >= 1


def test_a_random_split_within_users_is_random_within_them() -> None:
    """Each of 500 users has ten examples; each of their places should test about as often as the others."""
    groups = np.repeat(np.arange(500), 10).tolist()
    seeds = [Split(kind="random", within="user", group="u", validation=0.1, test=0.2, seed=seed) for seed in (0, 1)]
    parts = np.array([divided(split, 5_000, groups=groups) for split in seeds])
    tests = (parts == 2).reshape(2, 500, 10)
    assert (tests.sum(axis=2) == 2).all()
    assert np.abs(tests.sum(axis=1) - 100).max() < 40  # standard deviation 9
    assert (parts[0] != parts[1]).any()
