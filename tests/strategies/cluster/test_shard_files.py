"""Checkpoints that all workers of a cluster write and read, each its rows; the workers are threads here."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.checkpoints import restoring, store, streaming
from embexp.errors import DataError
from embexp.initialization.filling import TablePlan
from embexp.specs.inits import Scaffold
from embexp.specs.optimizers import Adam
from embexp.strategies.cluster import shard_files
from embexp.strategies.cluster.control import Follower, Leader
from embexp.strategies.cluster.partition import OwnRows
from embexp.strategies.cluster.rendezvous import Connection, HungUpError, Member
from embexp.strategies.cluster.rows import make_tables, sharded
from embexp.strategies.cluster.shard_files import ShardFiles
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.variables import Precision
from tests.checkpoint_values import write_checkpoint

ROWS = {"user": 500, "item": 2}
"""Of tables with blocks that double, and with fewer rows than three workers."""
DIM = 5
SLOTS = (None, "momenta", "velocities")
PRECISIONS = {"user": Precision(tf.bfloat16, tf.bfloat16), "item": Precision(tf.float16)}
END = "/.ATTRIBUTES/VARIABLE_VALUE"


class Thread(Follower):
    """A worker that is a thread: it ends when it is told to, and not because nobody is heard of."""

    def __init__(self, connection: Connection) -> None:
        self.answer = connection.send  # type: ignore[method-assign]


@contextlib.contextmanager
def cluster(workers: int, *, blind: int | None = None, mirrored: str = "") -> Iterator[Any]:
    """The tables of worker 0 of so many.

    Args:
        blind: a worker that sees no files of worker 0.
        mirrored: a table that each worker has whole.
    """
    members: dict[int, Member] = {}
    threads: list[threading.Thread] = []
    ends: list[Connection] = []

    def follow(worker: int, commands: Connection) -> None:
        tables = make_tables(plans(mirrored), worker=worker, workers=workers, block=1, leader=None)
        with contextlib.suppress(HungUpError):
            while (received := commands.receive())[0]["command"] != "end":
                if worker == blind and received[0]["command"] == "sees":
                    commands.send({"sees": False})
                else:
                    shard_files.serve_rows(tables, worker, Thread(commands), *received)

    for worker in range(1, workers):
        sides = {each: [Connection(side) for side in socket.socketpair()] for each in ("commands", "beats")}
        members[worker] = Member(f"there:{worker}", {}, connections={each: here for each, (here, _) in sides.items()})
        ends += [there for _, there in sides.values()]
        threads.append(threading.Thread(target=follow, args=(worker, sides["commands"][1]), daemon=True))
        threads[-1].start()
    leader = Leader(members, silence_seconds=100, abort=lambda reason: None)
    tables = make_tables(plans(mirrored), worker=0, workers=workers, block=1, leader=leader)
    if workers > 1:
        files = ShardFiles(sharded(tables), leader, workers)
        for table in sharded(tables).values():
            table.together = files
    try:
        yield tables
    finally:
        leader.end()
        for thread in threads:
            thread.join(10)
        for connection in ends:
            connection.close()
        leader.close()
    assert not any(thread.is_alive() for thread in threads)


def plans(mirrored: str = "") -> dict[str, TablePlan]:
    zeros = np.zeros((1, DIM), np.float32)

    class Zeros:
        dim = DIM

        def __init__(self, rows: int) -> None:
            self.rows = rows

        def read(self, start: int, stop: int) -> np.ndarray:
            return np.repeat(zeros, stop - start, axis=0)

        def memory_map(self) -> None:
            return None

    return {
        name: TablePlan(
            name, Zeros(rows), Scaffold(), optimizer=Adam(), mirrored=name == mirrored, precision=PRECISIONS[name]
        )
        for name, rows in ROWS.items()
    }


def checkpoint(tables: Any) -> Any:
    return tf.train.Checkpoint(embedding=TableCheckpoint(tables.values()), step=tf.Variable(7, dtype=tf.int64))


def fill(tables: Any) -> None:
    generator = np.random.default_rng(1)
    for name, rows in ROWS.items():
        for slot in SLOTS:
            tables[name].write(0, generator.standard_normal((rows, DIM), dtype=np.float32), slot)


def state(tables: Any) -> dict[str, str]:
    """Digests of tables and slots, by the name that TensorFlow's TPUEmbedding gives them."""
    return {
        f"embedding/{name}{'' if slot is None else f'.S{slot}'}{END}": digest(tables[name].read(0, rows, slot))
        for name, rows in ROWS.items()
        for slot in SLOTS
    }


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.astype(np.float32).tobytes()).hexdigest()


def in_tensorflow(directory: Path) -> dict[str, str]:
    reader = tf.train.load_checkpoint(str(directory / "checkpoint"))
    keys = [key for key in reader.get_variable_to_shape_map() if key.startswith("embedding/")]
    return {key: digest(reader.get_tensor(key)) for key in keys}


def data_files(directory: Path) -> list[str]:
    return sorted(path.name.removeprefix("checkpoint.") for path in directory.glob("checkpoint.data-*"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of three workers."""
    directory = tmp_path_factory.mktemp("shards") / "three"
    with cluster(3) as tables:
        fill(tables)
        write_checkpoint(checkpoint(tables), directory)
        assert in_tensorflow(directory) == state(tables)
    return directory


def test_from_any_number_of_workers_to_any_other(written: Path, tmp_path: Path) -> None:
    # One of all else, one of each worker, and one of rows of float16.
    assert data_files(written) == [f"data-0000{shard}-of-00005" for shard in range(5)]
    expected, last = in_tensorflow(written), written
    for workers in (1, 2, 3, 4):
        directory = tmp_path / str(workers)
        with cluster(workers) as tables:
            restoring.read_run(checkpoint(tables), last)
            assert state(tables) == expected, workers
            write_checkpoint(checkpoint(tables), directory)
        assert in_tensorflow(directory) == expected
        assert len(data_files(directory)) == (2 if workers == 1 else workers + 2)
        last = directory


def test_a_worker_that_sees_no_files_has_its_rows_from_worker_0(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(3, blind=2) as tables:
        restoring.read_run(checkpoint(tables), written)
        write_checkpoint(checkpoint(tables), tmp_path / "c")
    assert in_tensorflow(tmp_path / "c") == in_tensorflow(written)
    assert len(data_files(tmp_path / "c")) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("worker 2 does not see ")


def test_a_mirrored_table_is_written_once_and_restored_into_every_copy(written: Path, tmp_path: Path) -> None:
    expected = in_tensorflow(written)
    with cluster(3, mirrored="user") as tables:
        restoring.read_run(checkpoint(tables), written)
        assert state(tables) == expected
        assert tables["user"].differing() == []
        write_checkpoint(checkpoint(tables), tmp_path / "mixed")
        tables["user"].write_own(3, np.ones((1, DIM), np.float32))
        assert tables["user"].differing() == [1, 2]
        with pytest.raises(ValueError, match="takes float32 rows of 5"):
            tables["user"].write(0, np.zeros((1, DIM + 1), np.float32))
    assert in_tensorflow(tmp_path / "mixed") == expected
    with cluster(2) as tables:
        restoring.read_run(checkpoint(tables), tmp_path / "mixed")
        assert state(tables) == expected


def test_increments_of_rows_that_changed(written: Path, tmp_path: Path) -> None:
    """Worker 0 writes the rows that changed; all read them into their own."""
    base = tmp_path / "base"
    store.link(written, base)
    changed = {name: np.arange(rows) % 3 == 1 for name, rows in ROWS.items()}
    with cluster(2) as tables:
        restoring.read_run(checkpoint(tables), base)
        for name, mask in changed.items():
            numbers = np.flatnonzero(mask)
            for start in numbers.tolist():
                tables[name].write(start, np.full((1, DIM), start, np.float32))
        (tmp_path / "next").mkdir()
        streaming.write(
            checkpoint(tables), str(tmp_path / "next/checkpoint"), base=str(base / "checkpoint"), changed=changed
        )
        expected = state(tables)
    with cluster(3) as tables:
        restoring.read_run(checkpoint(tables), tmp_path / "next")
        assert state(tables) == expected


def test_the_fault_of_another_worker_is_told_and_leaves_all_able_to_go_on(written: Path, tmp_path: Path) -> None:
    expected, damaged, torn = in_tensorflow(written), tmp_path / "damaged", tmp_path / "torn"
    store.link(written, damaged)
    file = damaged / "checkpoint.data-00003-of-00005"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.unlink()
    file.write_bytes(content)
    torn.mkdir()
    (torn / "checkpoint.data-00002-of-00003").touch()
    with cluster(2) as tables:
        fill(tables)  # what was in the memory before may be no numbers, which NumPy warns of
        with pytest.raises(DataError, match=re.escape(str(file))):
            restoring.read_run(checkpoint(tables), damaged)
        with pytest.raises(OSError, match=r"\(worker 1\)"):
            streaming.write(checkpoint(tables), str(torn / "checkpoint"))
        restoring.read_run(checkpoint(tables), written)
        assert state(tables) == expected


def test_rows_read_are_own_ones(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of 512 rows or fewer, whatever the table's size."""
    read: list[int] = []
    original = OwnRows.read

    def counted(self: OwnRows, start: int, stop: int) -> np.ndarray:
        read.append(stop - start)
        return original(self, start, stop)

    monkeypatch.setattr("embexp.strategies.cluster.shard_files.rows_per_block", lambda dim: 32)
    monkeypatch.setattr(OwnRows, "read", counted)
    with cluster(2) as tables:
        read.clear()
        restoring.read_run(checkpoint(tables), written)
        assert state(tables) == in_tensorflow(written)
    assert max(read) == 32
    of_float16 = ROWS["item"]  # which worker 0 reads for all
    assert sum(read) == sum(len(SLOTS) * rows for rows in ROWS.values()) - of_float16
