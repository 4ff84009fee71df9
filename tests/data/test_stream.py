"""The order of training examples, held against a brute-force reading of its promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.splits import Order, batch_groups

counts = st.integers(1, 300)
windows = st.integers(1, 400)
seeds = st.integers(0, 2**31)


def stream(order: Order, length: int, start: int = 0) -> np.ndarray:
    """So many elements from `start` on."""
    pieces, found = [], 0
    for piece in order.pieces(start):
        pieces.append(piece)
        found += len(piece)
        if found >= length:
            break
    return np.concatenate([np.empty(0, np.int64), *pieces])[:length]


def batches_of(order: Order, start: int, batch_size: int, batches: int, group: int = 3) -> np.ndarray:
    groups = list(batch_groups(order, start, batch_size=batch_size, batches=batches, group=group))
    assert all(len(each) <= group for each in groups)
    return np.concatenate(groups).reshape(-1)


@given(count=counts, window=windows, seed=seeds, shuffle=st.booleans())
def test_each_epoch_visits_each_example_once(count: int, window: int, seed: int, shuffle: bool) -> None:
    found = stream(Order(count, seed, shuffle, window), 3 * count).reshape(3, count)
    assert found.dtype == np.int64
    for epoch in found:
        assert sorted(epoch) == list(range(count))


@given(count=counts, window=windows, seed=seeds, shuffle=st.booleans(), data=st.data())
def test_starting_anywhere_gives_the_tail(
    count: int, window: int, seed: int, shuffle: bool, data: st.DataObject
) -> None:
    order = Order(count, seed, shuffle, window)
    start = data.draw(st.integers(0, 3 * count), "start")
    np.testing.assert_array_equal(stream(order, 4 * count - start, start), stream(order, 4 * count)[start:])


@pytest.mark.parametrize(("count", "window"), [(103, 40), (100, 10), (17, 16), (64, 1), (5000, 999), (10_000, 4096)])
def test_every_start_gives_the_tail_where_a_block_lacks_examples(count: int, window: int) -> None:
    for seed in range(3 if count > 1000 else 20):
        order = Order(count, seed, True, window)
        whole = stream(order, count)
        for start in range(0, count, max(1, count // 200)):
            np.testing.assert_array_equal(stream(order, count - start, start), whole[start:])


@given(count=counts, window=windows, seed=seeds, sizes=st.tuples(st.integers(1, 50), st.integers(1, 50)))
def test_batches_cut_the_one_stream(count: int, window: int, seed: int, sizes: tuple[int, int]) -> None:
    order = Order(count, seed, True, window)
    first, second = (batches_of(order, 0, size, 7) for size in sizes)
    common = min(len(first), len(second))
    np.testing.assert_array_equal(first[:common], second[:common])
    np.testing.assert_array_equal(first, stream(order, len(first)))


@given(count=counts, window=windows, batch_size=st.integers(1, 50), start_step=st.integers(0, 9))
def test_batches_from_a_later_step_are_the_tail(count: int, window: int, batch_size: int, start_step: int) -> None:
    order = Order(count, 1, True, window)
    whole = batches_of(order, 0, batch_size, 9 + 1)
    tail = [
        each.reshape(-1)
        for each in batch_groups(
            order, start_step * batch_size, batch_size=batch_size, batches=10 - start_step, group=4
        )
    ]
    np.testing.assert_array_equal(np.concatenate(tail), whole[start_step * batch_size :])


def test_without_shuffling_every_epoch_has_the_natural_order() -> None:
    assert stream(Order(7, 3, False, 2), 15).tolist() == [0, 1, 2, 3, 4, 5, 6] * 2 + [0]


@pytest.mark.parametrize("window", [100_000, 512])
def test_seeds_and_epochs_have_orders_of_their_own(window: int) -> None:
    epochs = [stream(Order(4096, seed, True, window), 2 * 4096).reshape(2, -1) for seed in (0, 1)]
    for one, other in itertools.combinations([*epochs[0], *epochs[1], np.arange(4096)], 2):
        # Two independent permutations agree at about one place.
        assert (one == other).sum() < 12


def test_the_order_is_the_same_in_every_version() -> None:
    """A stored run resumes on it: whoever changes this changes what recorded seeds mean."""
    assert stream(Order(10, 0, True, 100), 10).tolist() == [6, 5, 4, 0, 1, 8, 2, 9, 7, 3]
    assert stream(Order(10, 0, True, 4), 10).tolist() == [8, 7, 6, 5, 9, 2, 0, 4, 3, 1]


def test_one_window_is_a_uniform_permutation() -> None:
    """Each example comes at each of 6 places 1/6 of the time: chi-square with 25 degrees of freedom, p = 1e-6 at 79."""
    counted = np.zeros((6, 6))
    rounds = 3000
    for seed in range(rounds):
        counted[np.arange(6), stream(Order(6, seed, True, 6), 6)] += 1
    assert ((counted - rounds / 6) ** 2 / (rounds / 6)).sum() < 79


def test_neighbours_in_a_window_are_far_apart_in_the_file() -> None:
    """In 65,536 examples, windows of 1024 are blocks of 64 from all over the file."""
    first = stream(Order(65_536, 5, True, 1024), 1024)
    assert len(np.unique(first // 64)) == 16
    assert np.ptp(first) > 30_000
    assert np.corrcoef(np.arange(1024), first)[0, 1] < 0.2


@pytest.mark.parametrize("start", [0, 1, 123_456_789, 999_999_999, 5_999_999_000])
def test_starting_anywhere_costs_one_window(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a billion examples: one window is made before the first piece, and nothing larger than the blocks' order."""
    made: list[int] = []
    real = Order._window

    def counting(self: Order, epoch: int, number: int, starts: np.ndarray, block: int) -> np.ndarray:
        result = real(self, epoch, number, starts, block)
        made.append(len(result))
        return result

    monkeypatch.setattr(Order, "_window", counting)
    order = Order(1_000_000_000, 0, True, 65_536)
    piece = next(order.pieces(start))
    assert 0 < len(piece) <= 65_536
    # At the end of a window, or of the epoch, the next one may have to be looked at.
    assert len(made) == 1
    assert sum(made) <= 65_536
