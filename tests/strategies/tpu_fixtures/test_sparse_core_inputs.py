"""What the host makes of ids for SparseCores, held against plain loops: the v3_cpu_ops cases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import gen_xla_ops

import embexp
from tests.strategies.tpu_fixtures.cases import Case, original

CORES, SAMPLES, IDS = 4, 16, 1024


@pytest.fixture(scope="module", autouse=True)
def sparse_cores() -> Iterator[None]:
    with embexp.tpu_simulator(cores=1, embedding_feature="V2"):
        yield


def sparse(samples: np.ndarray, ids: np.ndarray, count: int) -> tf.SparseTensor:
    order = np.argsort(samples, kind="stable")
    places = np.stack([samples[order], np.arange(len(ids))], 1)
    return tf.SparseTensor(places, ids[order], [count, len(ids)])


def coordinates(given: tf.SparseTensor, count: int, combiner: str = "sum", **settings: int) -> Any:
    defaults = {"row_offset": 0, "col_offset": 0, "col_shift": 0, "num_sc_shards": 16}
    return gen_xla_ops.convert_to_list_of_sparse_core_coo_tensors(
        indices_or_row_splits=tf.cast(given.indices, tf.int32),
        values=tf.cast(given.values, tf.int32),
        weights=1.0,
        sample_count=count,
        num_sc_per_chip=CORES,
        combiner=combiner,
        **{**defaults, "stacked_table_sample_count": count, **settings},
    )


@original(("v3_cpu_ops", "test_convert_to_list_of_sparse_core_coo_tensor"))
def test_coordinates(case: Case) -> None:
    *numbers, combiner = case.variant.split("-")
    count, tokens, offset, shift = map(int, numbers)
    rng, shards = np.random.default_rng(count + tokens + shift), 512
    given = sparse(rng.integers(0, count, tokens), rng.integers(0, 1024, tokens), count)
    found = coordinates(
        given,
        count,
        combiner,
        row_offset=count,
        col_offset=offset,
        col_shift=shift,
        num_sc_shards=shards,
        stacked_table_sample_count=4 * count,
    )

    samples, ids = given.indices.numpy()[:, 0], given.values.numpy()
    runs = [(key, len(list(group))) for key, group in groupby(zip(samples, ids, strict=True))]
    by = {"sum": lambda n: 1.0, "mean": lambda n: n, "sqrtn": np.sqrt}[combiner]
    gains = [length / by((samples == sample).sum()) for (sample, _), length in runs]
    share = count // CORES
    expected = {core: ([], [], []) for core in range(CORES)}  # type: ignore[var-annotated]
    for ((sample, row), _), gain in zip(runs, gains, strict=True):
        # A stacked table holds four such features, and this one is the second of them on each core.
        place = sample // share * 4 * share + share + sample % share
        rotated = row // shards * shards + (row + shift) % shards + offset
        for into, value in zip(expected[sample // share], (place, rotated, gain), strict=True):
            into.append(value)
    for core in range(CORES):
        for part, values in zip(found, expected[core], strict=True):
            np.testing.assert_allclose(part[core], values, rtol=1e-6)


def numbered() -> tf.SparseTensor:
    """Id i in sample i modulo 16."""
    return sparse(np.arange(IDS) % SAMPLES, np.arange(IDS), SAMPLES)


def sort(parts: Any, core: int, most: int = 256) -> Any:
    return gen_xla_ops.sort_list_of_sparse_core_coo_tensors(
        *([part[core]] for part in parts),
        sample_count_list=[SAMPLES // CORES],
        col_offset_list=[0],
        num_replica=4,
        table_vocab_size=16384,
        feature_width=16,
        num_sc_per_chip=CORES,
        max_ids_per_sparse_core=most,
        max_unique_ids_per_sparse_core=most,
        table_name="table",
    )


def in_order(parts: Any, core: int) -> list[tuple[int, int, int, float]]:
    """Partition, id, sample and gain of a core's occurrences, by partition and id."""
    samples, ids, gains = (part[core].numpy().tolist() for part in parts)
    return sorted(
        (i % 16, i, sample % (SAMPLES // CORES), gain) for sample, i, gain in zip(samples, ids, gains, strict=True)
    )


@original(("v3_cpu_ops", "test_sort_list_of_sparse_core_coo_tensors"))
def test_order(case: Case) -> None:
    parts = coordinates(numbered(), SAMPLES)
    for core in range(CORES):
        samples, rows, gains, ends = sort(parts, core)
        partitions, ids, expected, scales = zip(*in_order(parts, core), strict=True)
        np.testing.assert_array_equal(samples, expected)
        np.testing.assert_array_equal(rows, np.array(ids) // 16)
        np.testing.assert_array_equal(gains, scales)
        np.testing.assert_array_equal(np.diff(ends), np.bincount(partitions, minlength=16))


@original(("v3_cpu_ops", "test_get_stats_from_list_of_sparse_core_coo_tensors"))
def test_statistics(case: Case) -> None:
    rng = np.random.default_rng(0)
    parts = coordinates(sparse(rng.integers(0, SAMPLES, IDS), rng.integers(0, 1024, IDS), SAMPLES), SAMPLES)
    for core in range(CORES):
        most, distinct = gen_xla_ops.get_stats_from_list_of_sparse_core_coo_tensors(
            *([part[core]] for part in parts),
            sample_count_list=[SAMPLES // CORES],
            col_offset_list=[0],
            num_replica=4,
            table_vocab_size=16384,
            feature_width=16,
            num_sc_per_chip=CORES,
            table_name="table",
        )
        pairs = {(i, sample) for _, i, sample, _ in in_order(parts, core)}
        assert int(most) == np.bincount([i % 16 for i, _ in pairs]).max()
        assert int(distinct) == np.bincount([i % 16 for i in {i for i, _ in pairs}]).max()


def pack(most: int, dropping: bool = False) -> Any:
    parts = coordinates(numbered(), SAMPLES)
    lists = [list(each) for each in zip(*(sort(parts, core) for core in range(CORES)), strict=True)]
    return parts, gen_xla_ops.convert_to_sparse_core_csr_wrapped_coo_tensor(
        *lists,
        splits=tf.constant(0, tf.int64),
        sample_count_per_sc=SAMPLES // CORES,
        max_minibatches_per_sc=4,
        max_ids_per_chip_per_sample=most,
        table_vocab_size=16384,
        feature_width=16,
        num_replica=4,
        allow_id_dropping=dropping,
        table_name="table",
    )


ENDS = [256 * core + 64 * min(max(part + 1 - 4 * core, 0), 4) for core in range(CORES) for part in range(16)]


@original(("v3_cpu_ops", "test_convert_to_list_of_sparse_core_coo_tensors"))
def test_packed(case: Case) -> None:
    """Each SparseCore has four samples, whose 64 ids each are all in one partition of its own."""
    parts, (pointers, samples, rows, gains, used, places, minibatches) = pack(64)
    expected = [one for core in range(CORES) for one in in_order(parts, core)]
    assert (int(used), int(places), int(minibatches), len(pointers)) == (64, 1024, 1, 256)
    np.testing.assert_array_equal(pointers[:64], ENDS)
    _, ids, own, scales = zip(*expected, strict=True)
    for found, values in ((samples, own), (rows, np.array(ids) // 16), (gains, scales)):
        np.testing.assert_array_equal(found, values)


@original(("v3_cpu_ops", "test_id_dropping_with_convert_to_list_of_sparse_core_coo_tensors"))
def test_dropping(case: Case) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"per_sample = 8 .*set it to 64 or more"):
        pack(8)
    _, (pointers, samples, *_, places, _) = pack(8, dropping=True)
    assert (int(places), len(samples)) == (128, 128)
    np.testing.assert_array_equal(pointers[:64], np.minimum(ENDS, 128))
