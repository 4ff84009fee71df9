"""Blocks of rows dealt to workers: each row has one owner, and its own number there."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.strategies.cluster.partition import OwnRows, Partition
from embexp.system.arrays import ArrayRows

PARTITIONS = st.builds(
    Partition,
    st.integers(1, 200),
    st.integers(1, 5),
    block=st.sampled_from([1, 2, 4, 16, 64]),
    turns=st.sampled_from([1, 3, 32]),
)


@given(PARTITIONS)
def test_each_row_has_one_owner(partition: Partition) -> None:
    owners, local = partition.split(np.arange(partition.rows))
    found = {
        worker: partition.numbers(worker, 0, partition.count(worker)).tolist() for worker in range(partition.workers)
    }
    assert sorted(row for rows in found.values() for row in rows) == list(range(partition.rows))
    for row, (owner, place) in enumerate(zip(owners.tolist(), local.tolist(), strict=True)):
        assert found[owner][place] == row
        if row < partition.turns * partition.block * partition.workers:
            assert row // partition.block % partition.workers == owner


@given(PARTITIONS)
def test_slices_are_the_rows_in_order(partition: Partition) -> None:
    for worker in range(partition.workers):
        slices = list(partition.slices(worker))
        found = [row for start, stop in slices for row in range(start, stop)]
        assert found == partition.numbers(worker, 0, partition.count(worker)).tolist()
        sizes = [stop - start for start, stop in slices]
        assert all(2 * size >= after for size, after in itertools.pairwise(sizes))


@given(PARTITIONS, st.data())
def test_a_range_of_rows_is_one_range_of_each_worker(partition: Partition, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, partition.rows))
    stop = data.draw(st.integers(start, partition.rows))
    found = []
    for worker in range(partition.workers):
        low, high = partition.below(worker, start), partition.below(worker, stop)
        found += partition.numbers(worker, low, high).tolist()
    assert sorted(found) == list(range(start, stop))


@given(PARTITIONS)
def test_tensors_are_split_alike(partition: Partition) -> None:
    rows = np.arange(partition.rows)
    for dtype in (tf.int32, tf.int64):
        owners, local = partition.traced(tf.constant(rows, dtype))
        np.testing.assert_array_equal(owners, partition.split(rows)[0])
        np.testing.assert_array_equal(local, partition.split(rows)[1])
        assert local.dtype == dtype
        for worker in range(partition.workers):
            own = local[owners == worker]
            np.testing.assert_array_equal(partition.traced_numbers(worker, own), rows[owners == worker])


@given(PARTITIONS)
def test_a_worker_reads_its_rows_of_a_source(partition: Partition) -> None:
    values = np.arange(partition.rows * 3, dtype=np.float32).reshape(-1, 3)
    for worker in range(partition.workers):
        own = OwnRows(ArrayRows(values), partition, worker)
        numbers = partition.numbers(worker, 0, partition.count(worker))
        expected = values[numbers] if len(numbers) else values[:1]  # a variable has a row
        np.testing.assert_array_equal(own.read(0, own.rows), expected)
        np.testing.assert_array_equal(partition.of_array(worker, values[:, 0]), expected[:, 0])
        parts = [own.read(run.start, run.stop) for run in own.runs()]
        np.testing.assert_array_equal(np.concatenate(parts), expected)
        assert all(np.shares_memory(part, values) for part in parts), "a run is read without a copy"
        narrow = OwnRows(ArrayRows(values.astype(np.float16)), partition, worker)
        assert {narrow.read(run.start, run.stop).dtype for run in narrow.runs()} == {np.dtype(np.float32)}


def test_blocks_are_smaller_where_not_every_worker_would_get_one() -> None:
    assert Partition.of(1_000, 3, 16).block == 16
    assert Partition.of(40, 3, 16).block == 8
    assert [Partition.of(2, 3, 16).count(worker) for worker in range(3)] == [1, 1, 0]


def test_blocks_are_few_and_shares_alike() -> None:
    for rows in (10**5, 10**7, 10**9):
        partition = Partition.of(rows, 3, 16)
        assert sum(1 for worker in range(3) for _ in partition.slices(worker)) < 2_200
        counts = [partition.count(worker) for worker in range(3)]
        assert max(counts) - min(counts) <= rows / 3 / 32


def test_rows_looked_up_often_are_spread() -> None:
    """Distinct ids of batches of 4,096 from a vocabulary of a million sorted by counts: no owner has 10% too many."""
    generator = np.random.default_rng(7)
    for exponent in (1.05, 1.2, 1.5):
        ids = np.unique(np.minimum(generator.zipf(exponent, 4_096), 1_000_000) - 1)
        for workers in (2, 3, 8):
            counts = np.bincount(Partition.of(1_000_000, workers, 16).split(ids)[0], minlength=workers)
            assert counts.max() <= 1.1 * counts.mean() + 16, (exponent, workers)
