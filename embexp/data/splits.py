"""Splits: which examples train, which validate and which test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from embexp.data.arrays import ArrayWriter, mapped
from embexp.data.hashing import key_of, permuted
from embexp.errors import DataError
from embexp.specs.sources import DividedData
from embexp.specs.splits import Split, SplitKind

SPLITS = ("train", "validation", "test")
_TRAIN, _VALIDATION, _TEST = range(3)
_CHUNK = 1 << 20

Assignment = Callable[[int, int], np.ndarray]
"""Rows start..stop -> uint8 [stop - start], index into `SPLITS`."""


def divide(
    data: DividedData,
    count: int,
    folder: Path,
    *,
    timestamps: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> None:
    """Writes the splits of `count` examples, see `assignment` and `write`.

    Raises:
        DataError: nothing is left to train on.
    """
    assigned = assignment(data.split, count, folds=data.folds, fold=data.fold, timestamps=timestamps, groups=groups)
    write(assigned, count, folder)


def assignment(
    split: Split,
    count: int,
    *,
    folds: int | None,
    fold: int | None,
    timestamps: np.ndarray | None,
    groups: np.ndarray | None,
) -> Assignment:
    """The division of `count` examples.

    Random and folds need no memory; by time and leave-one-out sort `timestamps`.

    Args:
        split: how to divide.
        count: number of examples.
        folds: number of folds of a k-fold split.
        fold: which of them tests.
        timestamps: float64 [count] for time and leave_one_out; None: an example's position is its time.
        groups: integers [count] for leave_one_out: equal for examples of one user.
    """
    if timestamps is None:
        timestamps = np.arange(count) if split.kind in (SplitKind.TIME, SplitKind.LEAVE_ONE_OUT) else np.empty(0)
    match split.kind:
        case SplitKind.RANDOM:
            return _random(count, split)
        case SplitKind.FOLDS:
            if folds is None or fold is None:
                raise ValueError("a k-fold split needs folds and fold")
            return _folds(count, folds, fold, split)
        case SplitKind.TIME:
            return _whole(_by_time(timestamps, split))
        case SplitKind.LEAVE_ONE_OUT:
            if groups is None:
                raise ValueError("leave_one_out needs groups")
            return _whole(_leave_one_out(timestamps, groups))


def in_order(counts: Sequence[int]) -> Assignment:
    """The division of examples that come split by split, so many of each of `SPLITS`."""
    ends = np.cumsum(counts)
    return lambda start, stop: np.searchsorted(ends, np.arange(start, stop), "right").astype(np.uint8)


def write(assigned: Assignment, count: int, folder: Path) -> None:
    """Writes `train.npy`, `validation.npy` and `test.npy`: int64 row numbers, rising.

    Raises:
        DataError: nothing is left to train on.
    """
    with ExitStack() as stack:
        writers = [stack.enter_context(ArrayWriter(folder / f"{name}.npy", np.int64)) for name in SPLITS]
        for start, stop in chunks(count):
            numbers = assigned(start, stop)
            for number, writer in enumerate(writers):
                writer.append(np.flatnonzero(numbers == number) + start)
        if not writers[_TRAIN].rows:
            sizes = ", ".join(f"{name}: {writer.rows}" for name, writer in zip(SPLITS, writers, strict=True))
            raise DataError(
                f"the split of {count} examples leaves none to train on ({sizes}); "
                "choose smaller data.split.validation and data.split.test, or more data"
            )


def rewrite(rows: Mapping[str, np.ndarray], folder: Path) -> None:
    """Writes splits, by name, in the place of those there are.

    Args:
        rows: int64, rising; not mapped from the files that are written.
        folder: where `write` wrote.
    """
    for name, chosen in rows.items():
        with ArrayWriter(folder / f"{name}.npy", np.int64) as writer:
            writer.append(chosen)


def keep_some(path: Path, count: int, *, seed: int) -> None:
    """Keeps `count` rows of the training split, drawn by a seed; those of a smaller count are among those of a larger.

    Args:
        path: file of the split; rewritten.
        count: how many.
        seed: of the drawing.

    Raises:
        DataError: there are not as many.
    """
    train = mapped(path)
    if count > len(train):
        raise DataError(
            f"data.train_examples is {count}, but the training split has {len(train)} examples; choose fewer, or null"
        )
    key = key_of(seed, "train_examples")
    made = path.with_suffix(".fewer")
    with ArrayWriter(made, np.int64) as writer:
        for start, stop in chunks(len(train)):
            writer.append(train[start:stop][permuted(np.arange(start, stop), len(train), key) < count])
    made.replace(path)


def chunks(count: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows that cover range(count); null: as large as memory well allows."""
    size = size or _CHUNK
    for start in range(0, count, size):
        yield start, min(start + size, count)


def _size(fraction: float, count: int) -> int:
    return int(fraction * count + 0.5)


def _random(count: int, split: Split) -> Assignment:
    test = _size(split.test, count)
    validation = _size(split.validation, count)
    key = key_of(split.seed, "split")

    def numbers(start: int, stop: int) -> np.ndarray:
        place = permuted(np.arange(start, stop), count, key)
        return _numbers(place < test, (place >= test) & (place < test + validation))

    return numbers


def _folds(count: int, folds: int, fold: int, split: Split) -> Assignment:
    low, high = fold * count // folds, (fold + 1) * count // folds
    rest = count - (high - low)
    validation = _size(split.validation, rest)
    key, rest_key = key_of(split.seed, "split"), key_of(split.seed, "validation", fold)

    def numbers(start: int, stop: int) -> np.ndarray:
        place = permuted(np.arange(start, stop), count, key)
        test = (place >= low) & (place < high)
        chosen = np.zeros(stop - start, bool)
        if validation:
            others = np.where(place < low, place, place - (high - low))[~test]
            chosen[~test] = permuted(others, rest, rest_key) < validation
        return _numbers(test, chosen)

    return numbers


def _by_time(timestamps: np.ndarray, split: Split) -> np.ndarray:
    count = len(timestamps)
    order = np.argsort(timestamps, kind="stable")
    test, validation = _size(split.test, count), _size(split.validation, count)
    result = np.zeros(count, np.uint8)
    result[order[count - test :]] = _TEST
    result[order[count - test - validation : count - test]] = _VALIDATION
    return result


def _leave_one_out(timestamps: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Each group keeps at least one example to train on: of two, the later tests; a single one trains."""
    count = len(groups)
    order = np.lexsort((np.arange(count), timestamps, groups))
    ordered = groups[order]
    last = np.ones(count, bool)
    last[:-1] = ordered[:-1] != ordered[1:]
    first = np.roll(last, 1)
    result = np.zeros(count, np.uint8)
    result[order[last & ~first]] = _TEST
    before = np.flatnonzero(last & ~first) - 1
    result[order[before[~first[before]]]] = _VALIDATION
    return result


def _whole(numbers: np.ndarray) -> Assignment:
    return lambda start, stop: numbers[start:stop]


def _numbers(test: np.ndarray, validation: np.ndarray) -> np.ndarray:
    result = np.zeros(len(test), np.uint8)
    result[validation] = _VALIDATION
    result[test] = _TEST
    return result
