"""Both transports: the same bits, also of sums by three workers; and what ends a wait in shared memory."""

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

from embexp.strategies.cluster import rendezvous, transport
from embexp.strategies.cluster.transport import SharedMemory
from embexp.system import native
from tests.strategies.cluster.cluster_runs import LIMIT, forked, run, short, summary, values

WORKERS = 3
pytestmark = pytest.mark.skipif(native.library("exchange") is None, reason="there are no fused operations")


@pytest.fixture
def memory() -> int:
    """A descriptor of new memory; it stays open, as operations know the memory by its number."""
    file = transport.shared(WORKERS)
    assert file is not None
    return file


def together(memory: int, does: Callable[[SharedMemory, int], Any]) -> list[Any]:
    """What each worker, a thread of this process, gets; each knows the memory by a descriptor of its own."""

    def one(worker: int) -> Any:
        seconds = tf.Variable(0.0, dtype=tf.float64)
        return does(SharedMemory(os.dup(memory), worker, WORKERS, seconds), worker)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, range(WORKERS)))


def test_each_part_comes_to_its_worker(memory: int) -> None:
    def twice(own: SharedMemory, worker: int) -> Any:
        parts = tf.constant([[100 * worker + to, 7] for to in range(WORKERS)])
        return [own.parts(parts + turn, 0, 0).numpy().tolist() for turn in range(3)]

    for worker, turns in enumerate(together(memory, twice)):
        expected = [[[100 * sender + worker + turn, 7 + turn] for sender in range(WORKERS)] for turn in range(3)]
        assert turns == expected


def test_what_is_measured_changes_no_constant(memory: int) -> None:
    """A variable that begins as 0.0 shares the memory of TensorFlow's own 0.0 until it is assigned."""
    together(memory, lambda own, worker: own.parts(tf.zeros([WORKERS, 2], tf.int32), 0, 0))
    assert tf.constant(0.0, tf.float64).numpy() == 0.0


def test_rows_are_put_at_places_and_read_from_others(memory: int) -> None:
    """Each sends one row to worker 2, at place 1 of parts of 4."""

    def one(own: SharedMemory, worker: int) -> Any:
        asked = [1, 5, 9] if worker == 2 else []
        row, places, wanted = tf.fill([1, 3], float(worker)), tf.constant([9]), tf.constant(asked, tf.int32)
        rows = own.rows([row], [places], [wanted], [tf.constant(4)], kind=1, enlarged=0)
        return rows[0].numpy()

    found = together(memory, one)
    assert [len(each) for each in found] == [0, 0, 3]
    np.testing.assert_array_equal(found[2], np.repeat([[0.0], [1.0], [2.0]], 3, axis=1))


def test_all_get_the_same_sums(memory: int) -> None:
    drawn = np.random.default_rng(1).normal(size=(WORKERS, 1000)).astype(np.float32)

    def one(own: SharedMemory, worker: int) -> Any:
        first, second = own.sums([tf.constant(drawn[worker, :7]), tf.constant(drawn[worker, 7:])], 3, by_size=False)
        return np.concatenate([first, second])

    found = together(memory, one)
    np.testing.assert_allclose(found[0], drawn.astype(np.float64).sum(axis=0), rtol=1e-4, atol=1e-6)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_a_wait_ends_when_a_worker_is_lost(memory: int) -> None:
    def one(own: SharedMemory, worker: int) -> Any:
        if worker == 2:
            transport.end(memory)
            return None
        with pytest.raises(tf.errors.UnavailableError, match="another worker was lost"):
            own.parts(tf.zeros([WORKERS, 1], tf.int32), 0, 0)
        return None

    together(memory, one)


def test_workers_that_exchange_different_things_are_found(memory: int) -> None:
    def one(own: SharedMemory, worker: int) -> Any:
        with pytest.raises(tf.errors.InternalError, match="exchanges something else"):
            own.parts(tf.zeros([WORKERS, 1 + worker], tf.int32), 0, 0)

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
    assert found[0]["enlarged"] == found[1]["enlarged"] > 0
    assert found[0]["rooms"] == found[1]["rooms"]
    expected = values(sent)
    for key, value in values(shared).items():
        assert value.tobytes() == expected[key].tobytes(), key
