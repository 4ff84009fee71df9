"""Messages in shared memory: against NumPy and with the bits of collectives; and what ends a wait."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.strategies.cluster import rendezvous, shared_memory
from embexp.strategies.cluster.partition import Partition
from embexp.strategies.cluster.shared_memory import SharedMemory
from embexp.system import native
from embexp.tables import row_updates
from tests.strategies.cluster.cluster_runs import LIMIT, forked, run, short, summary, values

WORKERS = 3
PARTITION = Partition.of(100, WORKERS, 4)
pytestmark = pytest.mark.skipif(native.library("exchange") is None, reason="there are no fused operations")


def descriptors() -> list[int]:
    """New memory, as each worker knows it; they stay open, as operations know the memory by their numbers."""
    file = shared_memory.shared(WORKERS)
    assert file is not None
    return [file, *(os.dup(file) for _ in range(WORKERS - 1))]


@pytest.fixture
def memory() -> list[int]:
    return descriptors()


@pytest.fixture(scope="module")
def memory_of_all_examples() -> list[int]:
    return descriptors()


def together(
    memory: list[int],
    does: Callable[[SharedMemory, int], Any],
    make: Callable[[int, int], SharedMemory] | None = None,
) -> list[Any]:
    """What each worker, a thread of this process, gets."""

    def one(worker: int) -> Any:
        return does((make or exchange)(memory[worker], worker), worker)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, range(WORKERS)))


def exchange(memory: int, worker: int, partition: Partition = PARTITION, copied: int = 20) -> SharedMemory:
    return SharedMemory(worker, WORKERS, {"item": partition}, {"word": copied}, memory)


@settings(max_examples=30)
@given(st.data())
def test_rows_come_from_their_owners_and_gradients_go_to_them(
    memory_of_all_examples: list[int], data: st.DataObject
) -> None:
    """Of a sharded table and a mirrored one, with the sums that NumPy adds in float64."""
    count = data.draw(st.integers(WORKERS, 2_000) | st.integers(2**31, 2**40))  # from 2^31 rows on, ids are int64
    partition = Partition.of(count, WORKERS, data.draw(st.sampled_from([1, 2, 4])))
    rows = {"item": partition.rows, "word": data.draw(st.integers(1, 20))}
    drawn = {
        name: [data.draw(st.lists(st.integers(0, count - 1), max_size=12)) for _ in range(WORKERS)]
        for name, count in rows.items()
    }

    def one(own: SharedMemory, worker: int) -> Any:
        distinct = {
            name: row_updates.distinct_ids(
                {(name,): tf.constant(ids[worker], tf.int64)}, narrow=own.id_dtype == tf.int32
            )
            for name, ids in drawn.items()
        }
        asked = own.ask({name: each.ids for name, each in distinct.items()}, training=True)
        kept = tf.cast(partition.traced_numbers(worker, asked["item"].own) % 1_000, tf.float32)
        found = own.rows(asked, {"item": tf.stack([kept, -kept], 1)})["item"]
        given = {name: occurrences(name, ids[worker]) for name, ids in drawn.items()}
        summed = own.gradients(asked, {name: (distinct[name], [given[name]]) for name in rows})
        return (
            distinct["item"].ids.numpy(),
            found.numpy(),
            {name: (asked[name].own.numpy(), summed[name].numpy()) for name in rows},
        )

    for worker, (ids, found, gradients) in enumerate(
        together(memory_of_all_examples, one, lambda own, worker: exchange(own, worker, partition, rows["word"]))
    ):
        np.testing.assert_array_equal(found, np.stack([ids % 1_000, -(ids % 1_000)], 1))
        for name, (own, summed) in gradients.items():
            ids_of_all = np.concatenate([np.array(each, np.int64) for each in drawn[name]])
            mine = partition.split(ids_of_all)[0] == worker if name == "item" else np.full(len(ids_of_all), True)
            whole = partition.traced_numbers(worker, own).numpy() if name == "item" else own
            np.testing.assert_array_equal(np.unique(whole), np.unique(ids_of_all[mine]))
            given = np.concatenate([occurrences(name, each).numpy() for each in drawn[name]])
            for row in np.unique(whole):
                expected = given[ids_of_all == row].sum(axis=0, dtype=np.float64)
                np.testing.assert_allclose(summed[whole == row].sum(axis=0), expected, rtol=1e-6)


def occurrences(name: str, ids: list[int]) -> Any:
    """Gradients of a worker's occurrences, float32 [n, 2]."""
    values = np.array([[id % 1_000 + 1, 1 + len(name) * place] for place, id in enumerate(ids)], np.float32)
    return tf.constant(values.reshape(-1, 2))


def test_what_is_measured_changes_no_constant(memory: list[int]) -> None:
    """A variable that begins as 0.0 shares the memory of TensorFlow's own 0.0 until it is assigned."""
    together(memory, lambda own, worker: own.sums([tf.zeros([2])]))
    assert tf.constant(0.0, tf.float64).numpy() == 0.0


def test_all_get_the_same_sums(memory: list[int]) -> None:
    drawn = np.random.default_rng(1).normal(size=(WORKERS, 1000)).astype(np.float32)

    def one(own: SharedMemory, worker: int) -> Any:
        first, second = own.sums([tf.constant(drawn[worker, :7]), tf.constant(drawn[worker, 7:])])
        return np.concatenate([first, second])

    found = together(memory, one)
    np.testing.assert_allclose(found[0], drawn.astype(np.float64).sum(axis=0), rtol=1e-4, atol=1e-6)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_a_wait_ends_when_a_worker_is_lost(memory: list[int]) -> None:
    def one(own: SharedMemory, worker: int) -> Any:
        if worker == 2:
            shared_memory.end(memory[0])
            return None
        with pytest.raises(tf.errors.UnavailableError, match="another worker was lost"):
            own.sums([tf.zeros([1])])
        return None

    together(memory, one)


def test_workers_that_exchange_different_things_are_found(memory: list[int]) -> None:
    def one(own: SharedMemory, worker: int) -> Any:
        with pytest.raises(tf.errors.InternalError, match="exchanges something else"):
            own.sums([tf.zeros([1 + worker])])

    together(memory, one)


@pytest.mark.slow
def test_runs_have_the_bits_of_collectives(tmp_path: Path) -> None:
    """Three workers, whose sums depend on their order; their parts are enlarged."""
    settings = ("strategy=multi_worker", f"strategy.workers={WORKERS}")
    shared, sent = run(tmp_path / "shared", *settings), tmp_path / "sent"
    cluster = {"worker": [rendezvous.free_address() for _ in range(WORKERS)]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": number}} for number in range(WORKERS)]
    started = [
        subprocess.Popen(
            forked(short(sent, *settings)),
            env=os.environ | {"TF_CONFIG": json.dumps(task)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for task in tasks
    ]
    said = [process.communicate(timeout=LIMIT)[0] for process in started]
    assert [process.returncode for process in started] == [0] * WORKERS, said
    found = [summary(each)["cluster"] for each in (shared, sent)]
    assert [each["transport"] for each in found] == ["shared memory", "collectives"]
    assert found[1]["enlarged"] > 0
    assert 0 <= found[1]["padding"] < 1
    rooms = found[1]["rooms"].values()
    assert max(rooms) <= 43 + 43 // 8 + 8, "a step has 43 examples of a worker, and a batch of an evaluation has more"
    expected = values(sent)
    for key, value in values(shared).items():
        assert value.tobytes() == expected[key].tobytes(), key
