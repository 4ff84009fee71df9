"""Tables in memory-mapped files, with rows that the file lacks, eagerly and in a session."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embexp.specs.optimizers import SGD, Adagrad
from embexp.specs.tables import Feature
from embexp.system import arrays, digests
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable, MappedTable
from embexp.tables.variables import Precision
from tests.thoroughness import examples

DIM = 5


class Others:
    """Rows that differ from those of any file, and that record which were read."""

    def __init__(self, rows: int) -> None:
        self.values = -np.arange(1, rows * DIM + 1, dtype=np.float32).reshape(rows, DIM)
        self.rows, self.dim = self.values.shape
        self.ranges: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        self.ranges.append((start, stop))
        return self.values[start:stop]


@pytest.fixture
def mapping(tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((7, DIM)).astype(np.float32))
    return np.asarray(np.load(tmp_path / "m.npy", mmap_mode="c"))


def expected(mapping: np.ndarray, file_rows: np.ndarray, others: Others) -> np.ndarray:
    return np.where(file_rows[:, None] >= 0, mapping[file_rows], others.values)


CASES = {
    "the file": [0, 1, 2, 3, 4, 5, 6],
    "its beginning": [0, 1, 2],
    "another order, some twice": [6, 0, 0, 3, 6],
    "some lacking": [-1, 3, -1, 0, -1, -1, 5, 5],
    "all lacking": [-1, -1],
}


@pytest.mark.parametrize("case", CASES)
def test_rows_are_the_files_or_the_others(mapping: np.ndarray, case: str) -> None:
    file_rows = np.array(CASES[case])
    others = Others(len(file_rows))
    table, whole = MappedTable("item", mapping, file_rows, others), expected(mapping, file_rows, others)
    assert (table.rows, table.dim, table.frozen, table.by_reference, table.storage, table.slots) == (
        *whole.shape, True, True, "memory_map", {},
    )  # fmt: skip
    for start in range(table.rows):
        np.testing.assert_array_equal(table.read(start, table.rows), whole[start:], strict=True)
    np.testing.assert_array_equal(table.gather(tf.range(table.rows)), whole, strict=True)
    np.testing.assert_array_equal(table.gather(tf.constant([1, 0, 1], tf.int64)), whole[[1, 0, 1]], strict=True)
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(rows=2))), whole)
    assert table.digest() == digests.of_rows([whole])
    assert bool(others.ranges) == (-1 in file_rows)  # where nothing is lacking nothing is read


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=30), st.integers(0, 2**16))
def test_any_alignment_is_looked_up_as_it_is_read(mapping: np.ndarray, rows: list[int], seed: int) -> None:
    file_rows, others = np.array(rows), Others(len(rows))
    table = MappedTable("item", mapping, file_rows, others)
    ids = np.random.default_rng(seed).integers(0, table.rows, 20)
    whole = expected(mapping, file_rows, others)
    np.testing.assert_array_equal(tf.function(table.gather)(tf.constant(ids)), whole[ids])
    np.testing.assert_array_equal(table.read(0, table.rows), whole)


@settings(examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=30), st.sampled_from(["float16", "bfloat16", "int8"]))
def test_a_file_of_fewer_bits_is_looked_up_and_read_as_float32(
    mapping: np.ndarray, tmp_path: Path, rows: list[int], kind: str
) -> None:
    stored = tmp_path / f"{kind}.npy"  # of bfloat16, NumPy writes bytes, and reads what they mean by a view
    np.save(stored, (mapping * (50 if kind == "int8" else 1)).astype(kind))
    narrow = np.asarray(np.load(stored, mmap_mode="c")).view(kind)
    scales = arrays.empty((7,), np.float32) if kind == "int8" else None
    whole = narrow.astype(np.float32)
    if scales is not None:
        scales[:] = np.random.default_rng(1).uniform(0.01, 0.1, 7)
        whole *= scales[:, None]
    file_rows, others = np.array(rows), Others(len(rows))
    others.values += np.float32(1e-3)  # no number of 16 bits
    kept = others.values if kind == "int8" else others.values.astype(kind).astype(np.float32)
    whole = np.where(file_rows[:, None] >= 0, whole[file_rows], kept)
    precision = Precision(tf.as_dtype(kind))
    table = MappedTable("item", narrow, file_rows, others, scales=scales, precision=precision)
    np.testing.assert_array_equal(table.read(0, table.rows), whole, strict=True)
    np.testing.assert_array_equal(tf.function(table.gather)(tf.range(table.rows)), whole, strict=True)
    assert (table.dtype().name, table.digest()) == (kind, digests.of_rows([whole]))
    with tf.Graph().as_default():
        table = MappedTable("item", narrow, file_rows, others, scales=scales, precision=precision)
        found = table.gather(tf.range(table.rows))
        with tf.compat.v1.Session() as session:
            for variable, values in table.feeds():
                session.run(variable.initializer, {variable.initial_value: values})
            np.testing.assert_array_equal(session.run(found), whole, strict=True)


def test_lacking_rows_are_read_with_their_neighbours_and_not_across_the_table(mapping: np.ndarray) -> None:
    file_rows = np.zeros(20_000, np.int64)
    file_rows[[3, 9, 15_000]] = -1
    others = Others(20_000)
    table = MappedTable("item", mapping, file_rows, others)
    assert others.ranges == [(3, 10), (15_000, 15_001)]
    np.testing.assert_array_equal(table.read(0, 20_000), expected(mapping, file_rows, others))


def test_tensorflow_uses_the_mapping_itself(mapping: np.ndarray) -> None:
    table = MappedTable("item", mapping, None, Others(7))
    mapping[2] = 42  # in private pages of this process
    np.testing.assert_array_equal(table.gather(tf.constant([2])), np.full((1, DIM), 42, np.float32))


@pytest.mark.parametrize("case", CASES)
def test_a_session_is_fed_it_each_time_it_is_made(mapping: np.ndarray, case: str) -> None:
    file_rows = np.array(CASES[case])
    others = Others(len(file_rows))
    whole = expected(mapping, file_rows, others)
    with tf.Graph().as_default():
        table = MappedTable("item", mapping, file_rows, others)
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        found = tf.function(table.gather)(ids)
        local = tf.compat.v1.local_variables()
        assert tf.compat.v1.global_variables() == []
        feeds = table.feeds()
        assert [variable.name for variable, _ in feeds] == [variable.name for variable in local]
        for _ in range(2):
            with tf.compat.v1.Session() as session:
                session.run(
                    [variable.initializer for variable, _ in feeds],
                    {variable.initial_value: values for variable, values in feeds},
                )
                got = session.run(found, {ids: np.arange(table.rows)[::-1]})
                np.testing.assert_array_equal(got, whole[::-1], strict=True)
        np.testing.assert_array_equal(table.read(0, table.rows), whole)


def test_the_engine_looks_it_up_beside_a_table_that_trains(mapping: np.ndarray, tmp_path: Path) -> None:
    file_rows, others = np.array([4, -1, 2]), Others(3)
    whole = expected(mapping, file_rows, others)
    item = MappedTable("item", mapping, file_rows, others)
    user = EmbeddingTable("user", 4, 2, slots={"accumulators": 0.1})
    user.write(0, np.ones((4, 2), np.float32))
    engine = RowEngine(
        {"item": item, "user": user},
        {"item": Feature(table="item"), "user": Feature(table="user")},
        {"user": Adagrad()},
        step=tf.Variable(0, dtype=tf.int64),
        total_steps=1,
    )

    @tf.function
    def train(ids: Any) -> Any:
        engine.enqueue({"item": ids, "user": ids}, training=True)
        activations = engine.activations()
        engine.apply_gradients({name: tf.ones_like(each) for name, each in activations.items()})
        return activations

    np.testing.assert_array_equal(train(tf.constant([1, 2, 1]))["item"], whole[[1, 2, 1]])
    assert (user.read(1, 3) < 1).all()  # trained
    np.testing.assert_array_equal(item.read(0, 3), whole)
    assert item.touched_rows() == 0
    prefix = tf.train.Checkpoint(embedding=TableCheckpoint([item, user])).write(str(tmp_path / "c"))
    assert {key.split("/")[1] for key, _ in tf.train.list_variables(prefix) if "/" in key} == {
        "user",
        "user.Saccumulators",
    }


def test_arrays_that_can_not_be_used_in_place_are_errors(mapping: np.ndarray, tmp_path: Path) -> None:
    refused = {
        "read-only": np.asarray(np.load(tmp_path / "m.npy", mmap_mode="r")),
        "another type": arrays.empty((7, DIM), np.float64),
        "transposed": np.asfortranarray(arrays.empty((7, DIM), np.float32)),
        "begins elsewhere": mapping[1:],
        "empty": arrays.empty((0, DIM), np.float32),
    }
    for name, refused_array in refused.items():
        with pytest.raises(
            ValueError, match=rf"table '{name}': found an array of float(32|64) \(.*, 5\); to be used in place"
        ):
            MappedTable(name, refused_array, None, Others(7))
    with pytest.raises(ValueError, match=r"float32 .*to be used in place, it must be a C-contiguous bfloat16 matrix"):
        MappedTable("item", mapping, None, Others(7), precision=Precision(tf.bfloat16))
    int8, scales = arrays.empty((7, DIM), np.int8), arrays.empty((6,), np.float32)
    with pytest.raises(ValueError, match=r"scales of float32 \(6,\), expected float32 \(7,\)"):
        MappedTable("item", int8, None, Others(7), scales=scales, precision=Precision(tf.int8))
    for file_rows in ([0, 7], [-2], []):
        with pytest.raises(ValueError, match="table 'item': file row numbers must be 0 to 6, or -1 for none"):
            MappedTable("item", mapping, np.array(file_rows, np.int64), Others(7))
    table = MappedTable("item", mapping, None, Others(7))
    with pytest.raises(ValueError, match=r"table 'item' has rows 0 to 6, asked for \[5, 8\)"):
        table.read(5, 8)
    with pytest.raises(KeyError, match="accumulators"):
        table.gather(tf.constant([0]), "accumulators")
    with pytest.raises(ValueError, match="feature 'f' uses table 'user', which does not exist"):
        RowEngine({"item": table}, {"f": Feature(table="user")}, {"item": SGD()}, step=None, total_steps=1)


MEMORY = """
import sys, numpy as np, tensorflow as tf
from embexp.system.machine import PeakMemory, anonymous_bytes
from embexp.tables.variables import Precision
from embexp.tables.table import MappedTable
kind = sys.argv[3]
mapping = np.asarray(np.load(sys.argv[1], mmap_mode="c")).view(kind)
form = {"precision": Precision(tf.as_dtype(kind))}
if kind == "int8":
    from embexp.system import arrays
    form["scales"] = arrays.empty((len(mapping),), np.float32)
    form["scales"][:] = 1
class Zeros:
    dim = 64
    def read(self, start, stop):
        return np.zeros((stop - start, 64), np.float32)
steps = len(mapping) // 20_000
def look_up():
    # All of the file: a table that TensorFlow copied would be in memory now.
    if sys.argv[2] == "eager":
        table = MappedTable("item", mapping, file_rows, Zeros(), **form)
        return [table.gather(tf.range(i, len(file_rows), steps)).numpy().sum() for i in range(steps)]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = MappedTable("item", mapping, file_rows, Zeros(), **form)
        feeds = {v.initial_value: values for v, values in table.feeds()}
        session.run([v.initializer for v, _ in table.feeds()], feeds)
        first = tf.compat.v1.placeholder(tf.int32, [])
        rows = tf.reduce_sum(table.gather(tf.range(first, len(file_rows), steps)))
        return [session.run(rows, {first: i}) for i in range(steps)]
file_rows = np.arange(1_000)
look_up()
file_rows = np.arange(len(mapping))
file_rows[5] = -1
with PeakMemory() as peak:
    look_up()
print(peak.added / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
@pytest.mark.parametrize(
    ("mode", "kind"), [("eager", "float32"), ("session", "float32"), ("eager", "bfloat16"), ("eager", "int8")]
)
def test_no_copy_of_the_file_is_made(tmp_path: Path, root: Path, forked: Path, mode: str, kind: str) -> None:
    rows = 4_000_000 // np.dtype(kind).itemsize
    made = np.lib.format.open_memmap(tmp_path / "m.npy", "w+", kind, (rows, 64))  # 244 MiB
    made[:] = 1
    made.flush()
    command = [forked / "python", "-c", MEMORY, str(tmp_path / "m.npy"), mode, kind]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert float(result.stdout) < 80  # ids, an index of at most 16 MB, results of lookups
