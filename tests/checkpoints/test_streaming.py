"""Tables are saved and restored in blocks; what they leave is TensorFlow's form, whole or not at all."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.checkpoints import restoring, store, streaming
from embexp.errors import CheckpointError, DataError
from embexp.specs.optimizers import Adam
from embexp.specs.tables import Feature
from embexp.system.tensor_bundle.tensor import Tensor
from embexp.tables import checkpointing, optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.optimizers import RowGroups
from embexp.tables.table import EmbeddingTable, SplitTable
from embexp.tables.tpu_backend import TPUBackend
from embexp.tables.tpu_tables import TPUTable
from tests.checkpoint_values import write_checkpoint

ROWS, DIM, BLOCK = 103, 3, 10
SLOTS = (None, "momenta", "velocities")
FROZEN = np.random.default_rng(0).random(ROWS) < 0.6
VALUES = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
FILE_ROWS = np.where(FROZEN & (np.arange(ROWS) % 5 > 0), np.random.default_rng(2).permutation(ROWS), -1)
ON_PROCESSOR = ("variable", "split", "memory_map")
END = "/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "_BLOCK_BYTES", 4 * DIM * BLOCK)


class ArrayRows:
    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


def on_processor(layout: str, folder: Path, values: np.ndarray = VALUES) -> Any:
    """A table with values and slots, or one without."""
    groups = RowGroups("item", (~FROZEN).astype(np.uint8), np.array([[0, 1]], np.float32), [0])
    slots = optimizers.slots_of(Adam())
    table: Any
    if layout == "variable":
        table = EmbeddingTable("item", ROWS, DIM, slots=slots, groups=groups)
        table.write(0, values)
    else:
        file: dict[str, Any] = {}
        if layout == "memory_map":
            matrix = np.full((ROWS, DIM), np.nan, np.float32)
            matrix[FILE_ROWS[FILE_ROWS >= 0]] = VALUES[FILE_ROWS >= 0]
            np.save(folder / "m.npy", matrix)
            file = {"mapping": np.asarray(np.load(folder / "m.npy", mmap_mode="c")), "file_rows": FILE_ROWS}
        table = SplitTable("item", groups, DIM, slots=slots, **file)
        for part, rows in table.fills(ArrayRows(values)):
            part.write(0, rows.read(0, rows.rows))
    return table


def trained(table: Any) -> Any:
    ids = tf.constant(np.flatnonzero(~FROZEN))
    table.scatter(ids, 2 * table.gather(ids))
    for number, slot in enumerate(table.slots, 1):
        table.scatter(ids, tf.cast(ids[:, None], tf.float32) + tf.fill([1, DIM], float(number)), slot)
    return table


def on_tpu(strategy: Any, values: np.ndarray, *, split: bool) -> tuple[TPUBackend, TPUTable]:
    with strategy.scope():
        step = tf.Variable(0, dtype=tf.int64)
    table = TPUTable("item", ArrayRows(values), ROWS, DIM, optimizer=Adam(), frozen_rows=FROZEN if split else None)
    spec = tf.TensorSpec([4], tf.int64)
    backend = TPUBackend(strategy, {"item": table}, {"f": Feature(table="item")}, {"f": spec}, step=step, total_steps=1)
    return backend, table


def seen(table: Any) -> Any:
    """What else a run saves lies beside the table."""
    return tf.train.Checkpoint(embedding=TableCheckpoint([table]), step=tf.Variable(7, dtype=tf.int64))


def state(table: Any) -> list[bytes]:
    return [table.read(0, ROWS, slot).tobytes() for slot in SLOTS]


def read_by_tensorflow(directory: Path) -> list[bytes]:
    reader = tf.train.load_checkpoint(store.prefix_in(directory))
    assert reader.get_tensor(f"step{END}") == 7
    names = ("item", "item.Smomenta", "item.Svelocities")
    return [reader.get_tensor(f"embedding/{name}{END}").tobytes() for name in names]


@pytest.mark.parametrize("layout", ON_PROCESSOR)
def test_tensorflow_reads_it(tmp_path: Path, layout: str) -> None:
    table = trained(on_processor(layout, tmp_path))
    write_checkpoint(seen(table), tmp_path / "c")
    assert read_by_tensorflow(tmp_path / "c") == state(table)
    files = {path.name for path in (tmp_path / "c").iterdir()}
    assert files == {"checkpoint.index", "checkpoint.data-00000-of-00002", "checkpoint.data-00001-of-00002"}
    api = tf.tpu.experimental.embedding
    config = api.TableConfig(ROWS, DIM, name="item", optimizer=api.Adam())
    serving = api.TPUEmbeddingForServing({"f": api.FeatureConfig(config)}, optimizer=api.Adam())
    serving.build()
    status = tf.train.Checkpoint(embedding=serving).read(store.prefix_in(tmp_path / "c"))
    status.assert_existing_objects_matched().expect_partial()
    assert serving.embedding_tables[config].numpy().tobytes() == state(table)[0]


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_between_a_tpu_and_each_layout_of_a_processor(tmp_path: Path, hosts: int, split: bool) -> None:
    source = trained(on_processor("variable", tmp_path))
    write_checkpoint(seen(source), tmp_path / "start")
    with embexp.tpu_simulator(cores=1, hosts=hosts) as strategy:
        backend, table = on_tpu(strategy, 0 * VALUES, split=split)
        restoring.read_run(seen(table), tmp_path / "start")
        backend.load()
        assert state(table) == state(source)
        write_checkpoint(seen(table), tmp_path / "tpu")
    assert read_by_tensorflow(tmp_path / "tpu") == state(source)
    for layout in ON_PROCESSOR:
        restored = on_processor(layout, tmp_path, 0 * VALUES)
        restoring.read_run(seen(restored), tmp_path / "tpu")
        assert state(restored) == state(source), layout
        write_checkpoint(seen(restored), tmp_path / layout)
        with embexp.tpu_simulator(cores=1, hosts=hosts) as strategy:
            backend, table = on_tpu(strategy, 0 * VALUES, split=split)
            restoring.read_run(seen(table), tmp_path / layout)
            backend.load()
            assert state(table) == state(source), layout


@pytest.mark.parametrize("layout", ON_PROCESSOR)
def test_tensorflow_alone_writes_and_reads_them_too(tmp_path: Path, layout: str) -> None:
    table = trained(on_processor(layout, tmp_path))
    (tmp_path / "c").mkdir()
    seen(table).write(str(tmp_path / "c" / "checkpoint"))
    assert read_by_tensorflow(tmp_path / "c") == state(table)
    restored = on_processor(layout, tmp_path, 0 * VALUES)
    seen(restored).read(str(tmp_path / "c" / "checkpoint")).assert_consumed()
    assert state(restored) == state(table)


class Alive:
    """How many blocks there are at once, and how large the largest is."""

    def __init__(self) -> None:
        self.now = self.most = self.count = self.rows = 0

    def each(self, blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        for block in blocks:
            self.now, self.count = self.now + 1, self.count + 1
            self.most, self.rows = max(self.most, self.now), max(self.rows, len(block))
            weakref.finalize(block, self._gone)
            yield block
            del block

    def _gone(self) -> None:
        self.now -= 1


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Alive:
    alive, blocks = Alive(), getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: alive.each(blocks(*given)))
    return alive


@pytest.mark.parametrize(("layout", "other"), [("split", "memory_map"), ("variable", "variable")])
def test_few_blocks_are_in_memory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, other: str
) -> None:
    written = counted(monkeypatch, checkpointing.StreamedTable, "blocks")
    read = counted(monkeypatch, Tensor, "blocks")
    sizes: list[int] = []
    serialize = checkpointing.StreamedTable._serialize_to_tensors

    def watched(table: Any) -> Any:
        found = serialize(table)
        sizes.extend(int(tf.size(each)) for each in found.values())
        return found

    monkeypatch.setattr(checkpointing.StreamedTable, "_serialize_to_tensors", watched)
    table = trained(on_processor(layout, tmp_path))
    write_checkpoint(seen(table), tmp_path / "c")
    restored = on_processor(other, tmp_path)
    restoring.read_run(seen(restored), tmp_path / "c")
    assert state(restored) == state(table)
    for alive in (written, read):
        assert alive.count == 3 * -(-ROWS // BLOCK)
        assert alive.rows == BLOCK
        assert 1 <= alive.most <= 2
    assert sizes == [0, 0, 0], "TensorFlow was given rows"


@pytest.mark.parametrize("layout", ON_PROCESSOR)
def test_an_interrupted_write_leaves_the_earlier_one(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = on_processor(layout, tmp_path)
    write_checkpoint(seen(table), tmp_path / "c")
    earlier = state(trained(table))
    before = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    blocks = checkpointing.StreamedTable.blocks

    def cut_off(which: Any) -> Iterator[np.ndarray]:
        for number, block in enumerate(blocks(which)):
            if number == 2:
                raise KeyboardInterrupt
            yield block

    monkeypatch.setattr(checkpointing.StreamedTable, "blocks", cut_off)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(seen(table), tmp_path / "c")
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before
    assert not [*tmp_path.glob(".c.*")]
    assert state(table) == earlier
    monkeypatch.undo()
    write_checkpoint(seen(table), tmp_path / "c")
    assert read_by_tensorflow(tmp_path / "c") == earlier


def spoilt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (spoilt, r"found the checksum 0x\w+ of embedding/item.*, expected 0x\w+: the file is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "found .* the file is cut short, so embedding/item"),
        (Path.unlink, "found no such file, expected embedding/item"),
    ],
    ids=["spoilt", "short", "gone"],
)
@pytest.mark.parametrize("layout", ON_PROCESSOR)
def test_damage_is_found_and_the_file_named(
    tmp_path: Path, layout: str, harm: Callable[[Path], None], words: str
) -> None:
    write_checkpoint(seen(trained(on_processor("split", tmp_path))), tmp_path / "c")
    harm(tmp_path / "c" / "checkpoint.data-00001-of-00002")
    with pytest.raises(DataError, match=rf"checkpoint\.data-00001-of-00002: {words}"):
        restoring.read_run(seen(on_processor(layout, tmp_path)), tmp_path / "c")


@pytest.mark.parametrize(
    "harm", [spoilt, lambda path: path.write_bytes(b""), Path.unlink], ids=["spoilt", "short", "gone"]
)
def test_damage_to_what_tensorflow_reads_is_told(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    write_checkpoint(seen(on_processor("split", tmp_path)), tmp_path / "c")
    harm(tmp_path / "c" / "checkpoint.data-00000-of-00002")
    with pytest.raises(CheckpointError, match=r"c/checkpoint\.index is damaged: the object graph"):
        restoring.read_run(seen(on_processor("split", tmp_path)), tmp_path / "c")


def test_a_saver_alone_is_refused_where_it_would_leave_rows_out(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        groups = RowGroups("item", (~FROZEN).astype(np.uint8), np.array([[0, 1]], np.float32), [0])
        table = SplitTable("item", groups, DIM)
        whole = tf.train.Checkpoint(embedding=TableCheckpoint([table]))
        saver = streaming.saver_of(whole)
        with pytest.raises(ValueError, match="would leave rows out: embedding/item"):
            saver.complete_saver()
        with pytest.raises(ValueError, match=r"item: in a graph, use `checkpoints.streaming` to save it"):
            whole.write(str(tmp_path / "c"))
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        for variable, values in table.feeds():
            session.run(variable.initializer, {variable.initial_value: values})
        saver.save(session, str(tmp_path / "c"))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"use checkpoints.streaming to restore it"):
            saver.saver.restore(session, str(tmp_path / "c"))
