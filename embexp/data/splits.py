"""Splits: which examples train, validate and test, and the order in which the training ones are read.

The order in which training examples are read: a pure function of (seed, epoch, position). Examples are shuffled as
windows. In each epoch, blocks of consecutive examples are put in a random order; as many blocks as make a window are
shuffled among each other, then the next window begins. Where all examples fit into one window, that is one random
permutation. Nothing but the window's own numbers is needed to start anywhere in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embexp.errors import DataError
from embexp.specs.data import DividedData, Split, SplitKind
from embexp.system import digests, parallel
from embexp.system.arrays import ArrayWriter, mapped_array

SPLITS = ("train", "validation", "test")
_TRAIN, _VALIDATION, _TEST = range(3)
_CHUNK = 1 << 20

Assignment = Callable[[int, int], np.ndarray]
"""Rows start..stop -> uint8 [stop - start], index into `SPLITS`."""
_LARGEST_BLOCK = 4096
_BLOCKS_PER_WINDOW = 16  # at least so many, lest a small window be a few neighbours


def divide(
    data: DividedData,
    count: int,
    folder: Path,
    *,
    timestamps: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    given: Sequence[int] = (),
) -> None:
    """Writes the splits of `count` examples, see `assignment` and `write`.

    Args:
        given: of files that are divided already, how many examples are those of each of `SPLITS`; empty: none are.

    Raises:
        DataError: nothing is left to train on.
    """
    divided = given[_TRAIN] if given else count
    times, users = (None if values is None else values[:divided] for values in (timestamps, groups))
    assigned = assignment(data.drawn, divided, folds=data.folds, fold=data.fold, timestamps=times, groups=users)
    write(_with_given(assigned, given) if given else assigned, count, folder)


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

    Random and folds need no memory; by time and leave-one-out sort `timestamps`, and random within users `groups`.

    Args:
        timestamps: float64 [count] for time and leave_one_out; None: an example's position is its time.
        groups: integers [count] for leave_one_out and random within users: equal for examples of one user.
    """
    if timestamps is None:
        timestamps = np.arange(count) if split.kind in (SplitKind.TIME, SplitKind.LEAVE_ONE_OUT) else np.empty(0)
    match split.kind:
        case SplitKind.RANDOM if split.within is None:
            return _random(count, split)
        case SplitKind.RANDOM:
            if groups is None:
                raise ValueError("random within users needs groups")
            whole = _within_groups(groups, split)
        case SplitKind.FOLDS:
            if folds is None or fold is None:
                raise ValueError("a k-fold split needs folds and fold")
            return _folds(count, folds, fold, split)
        case SplitKind.TIME:
            whole = _by_time(timestamps, split)
        case SplitKind.LEAVE_ONE_OUT:
            if groups is None:
                raise ValueError("leave_one_out needs groups")
            whole = _leave_one_out(timestamps, groups, validates=split.validates)
    return lambda start, stop: whole[start:stop]


def in_order(counts: Sequence[int]) -> Assignment:
    """The division of examples that come split by split, so many of each of `SPLITS`."""
    ends = np.cumsum(counts)
    return lambda start, stop: np.searchsorted(ends, np.arange(start, stop), "right").astype(np.uint8)


def _with_given(drawn: Assignment, counts: Sequence[int]) -> Assignment:
    """As `in_order`, but for the examples of train, which are divided further."""
    whole, trains = in_order(counts), counts[_TRAIN]

    def numbers(start: int, stop: int) -> np.ndarray:
        result = whole(start, stop)
        if start < trains:
            result[: trains - start] = drawn(start, min(stop, trains))
        return result

    return numbers


def write(assigned: Assignment, count: int, folder: Path) -> None:
    """Writes `train.npy`, `validation.npy` and `test.npy`: int64 row numbers, rising.

    Raises:
        DataError: nothing is left to train on.
    """
    with ExitStack() as stack:
        writers = [stack.enter_context(ArrayWriter(folder / f"{name}.npy", np.int64)) for name in SPLITS]
        for start, numbers in parallel.in_order(lambda rows: (rows[0], assigned(*rows)), chunks(count)):
            for number, writer in enumerate(writers):
                writer.append(np.flatnonzero(numbers == number) + start)
        if not writers[_TRAIN].rows:
            sizes = ", ".join(f"{name}: {writer.rows}" for name, writer in zip(SPLITS, writers, strict=True))
            raise DataError(
                f"the split of {count} examples leaves none to train on ({sizes}); "
                "choose smaller values of data.split.validation and data.split.test, or use more data"
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

    Raises:
        DataError: there are not as many.
    """
    train = mapped_array(path)
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


def _within_groups(groups: np.ndarray, split: Split) -> np.ndarray:
    """The fractions of each group, rounded, by a permutation of all; one of it trains before any tests or validates."""
    count = len(groups)
    place = permuted(np.arange(count), count, key_of(split.seed, "split"))
    order = np.lexsort((place, groups))
    first = np.flatnonzero(np.diff(groups[order], prepend=groups[order[:1]] - 1))
    sizes = np.diff(first, append=count)
    test = np.minimum((split.test * sizes + 0.5).astype(np.int64), sizes - 1)
    validation = np.minimum((split.validation * sizes + 0.5).astype(np.int64), sizes - 1 - test)
    rank = np.arange(count) - np.repeat(first, sizes)
    test, validation = np.repeat(test, sizes), np.repeat(validation, sizes)
    result = np.zeros(count, np.uint8)
    result[order] = _numbers(rank < test, (rank >= test) & (rank < test + validation))
    return result


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


def _leave_one_out(timestamps: np.ndarray, groups: np.ndarray, *, validates: bool) -> np.ndarray:
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
    if validates:
        result[order[before[~first[before]]]] = _VALIDATION
    return result


def _numbers(test: np.ndarray, validation: np.ndarray) -> np.ndarray:
    result = np.zeros(len(test), np.uint8)
    result[validation] = _VALIDATION
    result[test] = _TEST
    return result


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection of uint64 that scatters its bits."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def key_of(seed: int, *names: str | int) -> int:
    """A 62-bit key from a seed and a stable name."""
    high, low = digests.seed_of(seed, *names)
    return high << 31 | low


def permuted(positions: np.ndarray, count: int, key: int) -> np.ndarray:
    """Where a pseudo-random permutation of range(count) sends each position, int64, in memory of `positions` only.

    A Feistel network of eight rounds over the next power of 4, walked until the value is below `count`
    (Black and Rogaway 2002).
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = mix(np.uint64(key) + np.arange(8, dtype=np.uint64))

    def network(values: np.ndarray) -> np.ndarray:
        left, right = values >> half, values & mask
        for round_key in keys:
            left, right = right, left ^ (mix(right ^ round_key) & mask)
        return left << half | right

    result = network(positions.astype(np.uint64))
    while (outside := np.flatnonzero(result >= count)).size:
        result[outside] = network(result[outside])
    return result.astype(np.int64)


@dataclass(frozen=True)
class Order:
    """An endless stream over `count` examples, epoch after epoch.

    Attributes:
        count: examples in an epoch, at least 1.
        shuffle: False: the natural order, every epoch.
        window: examples that are shuffled among each other, at least 1.
    """

    count: int
    seed: int
    shuffle: bool
    window: int

    def pieces(self, start: int) -> Iterator[np.ndarray]:
        """int64 arrays of positions in range(count); chained, they are the stream from its element `start` on.

        Element g of the stream belongs to epoch g // count. Memory and time to the first piece are O(window), but for
        the order of an epoch's blocks, 16 * count / window numbers (count / 4096 for windows of 65,536 and more).
        """
        epoch, position = divmod(start, self.count)
        while True:
            yield from self._epoch_from(epoch, position)
            epoch, position = epoch + 1, 0

    def _epoch_from(self, epoch: int, position: int) -> Iterator[np.ndarray]:
        if not self.shuffle:
            for first in range(position, self.count, self.window):
                yield np.arange(first, min(first + self.window, self.count))
            return
        if self.count <= self.window:
            yield self._random(epoch, "all").permutation(self.count)[position:]
            return
        block = max(1, min(_LARGEST_BLOCK, self.window // _BLOCKS_PER_WINDOW))
        blocks = self._random(epoch, "blocks").permutation(-(-self.count // block))
        per_window = self.window // block
        size = per_window * block
        # The last block lacks a few examples; windows behind the one that holds it begin so much earlier.
        lacking, short = len(blocks) * block - self.count, int(np.argmax(blocks)) // per_window
        number = position // size
        if number >= short and position >= (number + 1) * size - lacking:
            number += 1
        skipped = position - (number * size - (lacking if number > short else 0))
        while number * per_window < len(blocks):
            starts = blocks[number * per_window : (number + 1) * per_window] * block
            yield self._window(epoch, number, starts, block)[skipped:]
            number, skipped = number + 1, 0

    def _window(self, epoch: int, number: int, starts: np.ndarray, block: int) -> np.ndarray:
        rows = (starts[:, None] + np.arange(block)).reshape(-1)
        rows = rows[rows < self.count]  # the last block may be shorter
        self._random(epoch, "window", number).shuffle(rows)
        return rows

    def _random(self, epoch: int, *names: str | int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=digests.seed_of(self.seed, "order", epoch, *names)))


def batch_groups(order: Order, start: int, *, batch_size: int, batches: int, group: int) -> Iterator[np.ndarray]:
    """The stream from its element `start` on, cut into `batches` batches.

    Yields:
        int64 [k, batch_size] with k <= group; every batch is full, and may straddle two epochs.
    """
    pieces = order.pieces(start)
    piece = np.empty(0, np.int64)
    while batches:
        rows = min(group, batches)
        cells = np.empty(rows * batch_size, np.int64)
        filled = 0
        while filled < len(cells):
            if not len(piece):
                piece = next(pieces)
            take = min(len(piece), len(cells) - filled)
            cells[filled : filled + take] = piece[:take]
            filled += take
            piece = piece[take:]
        yield cells.reshape(rows, batch_size)
        batches -= rows
