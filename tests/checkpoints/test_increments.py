"""Incremental checkpoints: every point of a chain is restored to the bit, and a broken chain is told."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import embexp.checkpoints
from embexp.checkpoints import restoring, store, streaming
from embexp.errors import CheckpointError, DataError
from embexp.specs.optimizers import SGD, Adagrad, Adam, TableOptimizer
from embexp.system.tensor_bundle.increments import is_incremental, needed
from embexp.system.tensor_bundle.index import read_index
from embexp.tables import checkpointing, optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.optimizers import RowGroups
from embexp.tables.table import EmbeddingTable, SplitTable
from embexp.vectors import array_files as vectors
from tests.checkpoint_values import write_checkpoint
from tests.thoroughness import examples

ROWS, DIM, BLOCK = 37, 3, 5
FROZEN = np.arange(ROWS) % 3 == 0
MOVING = np.flatnonzero(~FROZEN)
VALUES = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
FILE_ROWS = np.where(FROZEN & (np.arange(ROWS) % 2 > 0), np.random.default_rng(2).permutation(ROWS), -1)
LAYOUTS = ("variable", "split", "memory_map")
RULES: dict[str, TableOptimizer] = {"sgd": SGD(), "adagrad": Adagrad(), "adam": Adam()}


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpointing, "_BLOCK_BYTES", 4 * DIM * BLOCK)
        yield


class Matrix:
    rows, dim = ROWS, DIM

    def read(self, start: int, stop: int) -> np.ndarray:
        return VALUES[start:stop]


def table_of(layout: str, rule: str, folder: Path, name: str = "item") -> Any:
    """A table with its initial values, of which every third row is frozen."""
    groups = RowGroups(name, (~FROZEN).astype(np.uint8), np.array([[0, 1]], np.float32), [0])
    slots = optimizers.slots_of(RULES[rule])
    if layout == "variable":
        table = EmbeddingTable(name, ROWS, DIM, slots=slots, groups=groups)
        table.write(0, VALUES)
        return table
    file: dict[str, Any] = {}
    if layout == "memory_map":
        matrix = np.full((ROWS, DIM), np.nan, np.float32)
        matrix[FILE_ROWS[FILE_ROWS >= 0]] = VALUES[FILE_ROWS >= 0]
        np.save(folder / "m.npy", matrix)
        file = {"mapping": np.asarray(np.load(folder / "m.npy", mmap_mode="c")), "file_rows": FILE_ROWS}
    split = SplitTable(name, groups, DIM, slots=slots, **file)
    for part, rows in split.fills(Matrix()):
        part.write(0, rows.read(0, rows.rows))
    return split


def step(table: Any, numbers: Any, seed: int) -> None:
    """Moves rows and their slots as a step would, to any bits: also NaN, infinities, subnormal numbers."""
    generator, ids = np.random.default_rng(seed), tf.constant(np.array(sorted(numbers), np.int64))
    for slot in (None, *table.slots):
        bits = generator.integers(0, 2**32, (len(ids), DIM), np.uint32)
        table.scatter(ids, tf.constant(bits.view(np.float32)), slot)
    table.mark_touched(ids)


def state(tables: list[Any]) -> list[bytes]:
    return [table.read(0, ROWS, slot).tobytes() for table in tables for slot in (None, *sorted(table.slots))]


def seen(tables: list[Any], count: int = 0) -> Any:
    return tf.train.Checkpoint(embedding=TableCheckpoint(tables), step=tf.Variable(count, dtype=tf.int64))


def save(directory: Path, tables: list[Any], changed: dict[str, np.ndarray], base: Path | None, count: int = 0) -> None:
    """A whole checkpoint, or one of the rows that changed since the base."""
    if base is None:
        write_checkpoint(seen(tables, count), directory)
        return

    def write(prefix: str) -> None:
        streaming.write(seen(tables, count), prefix, base=store.prefix_in(base), changed=changed)

    store.write_by(write, directory)


MOVES = st.tuples(st.sets(st.sampled_from(MOVING[::3].tolist())), st.sets(st.sampled_from(MOVING[:4].tolist())))
"""Few rows, which therefore move again and again."""


@examples(10)
@given(data=st.data(), every=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_every_point_is_restored_to_the_bit(tmp_path_factory: Any, data: Any, every: int, seed: int) -> None:
    folder = tmp_path_factory.mktemp("series")
    shapes = [(data.draw(st.sampled_from(LAYOUTS)), data.draw(st.sampled_from(list(RULES)))) for _ in range(2)]
    tables = [table_of(layout, rule, folder, f"t{n}") for n, (layout, rule) in enumerate(shapes)]
    saves = streaming.IncrementalSaves({table.name: table for table in tables}, whole_every=every)
    points: list[tuple[Path, list[bytes]]] = []
    for number, moves in enumerate(data.draw(st.lists(st.lists(MOVES, max_size=3), min_size=3, max_size=6))):
        for place, pair in enumerate(moves):
            for table, numbers in zip(tables, pair, strict=True):
                step(table, numbers, seed + 10 * number + place)
        directory = folder / f"step_{number:08d}"
        checkpoint = seen(tables, number)
        store.write_by(lambda prefix, checkpoint=checkpoint: saves.write(checkpoint, prefix), directory)
        if data.draw(st.integers(0, 3), label="0: this save fails") == 0:
            shutil.rmtree(directory)
            continue
        saves.saved(directory)
        points.append((directory, state(tables)))
    for number, (directory, expected) in enumerate(points):
        if number % every == 0:
            assert not is_incremental(directory / "checkpoint")
        restored = [
            table_of(
                layout if layout == "memory_map" else data.draw(st.sampled_from(LAYOUTS[:2])), rule, folder, f"t{n}"
            )
            for n, (layout, rule) in enumerate(shapes)
        ]
        whole = seen(restored)
        restoring.read_run(whole, directory)
        assert state(restored) == expected
        assert int(whole.step) == int(directory.name.removeprefix("step_"))
        first = number // every * every
        assert needed([directory]) <= {point for point, _ in points[first : number + 1]}


def three(folder: Path, layout: str = "variable", rule: str = "adagrad") -> tuple[list[Path], list[list[bytes]]]:
    """A whole checkpoint and two incremental ones, and the states that they are of."""
    table = table_of(layout, rule, folder)
    directories, states = [], []
    changes = streaming.Changes({"item": table})
    for number in range(3):
        step(table, MOVING[number : number + 4], number)
        directory = folder / f"step_{number:08d}"
        save(directory, [table], changes.collect(), directories[-1] if directories else None, number)
        changes.saved()
        directories.append(directory)
        states.append(state([table]))
    return directories, states


def bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_bytes_follow_the_rows_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "_BLOCK_BYTES", 1 << 20)
    rows, dim = 20_000, 16
    table = EmbeddingTable("item", rows, dim, slots={"accumulators": 0.1})
    table.write(0, np.zeros((rows, dim), np.float32))
    save(tmp_path / "whole", [table], {}, None)
    for count in (1_000, 4_000):
        mask = np.arange(rows) % (rows // count) == 0
        save(tmp_path / f"{count}", [table], {"item": mask}, tmp_path / "whole")
        touched = count * dim * 4 * 2
        assert touched < bytes_of(tmp_path / f"{count}") < 1.1 * touched + 20_000
    save(tmp_path / "all", [table], {"item": np.ones(rows, np.bool_)}, tmp_path / "whole")
    assert not is_incremental(tmp_path / "all" / "checkpoint")
    assert bytes_of(tmp_path / "all") == pytest.approx(bytes_of(tmp_path / "whole"), abs=200)


def test_a_table_whose_rows_all_changed_is_whole_and_needs_no_base(tmp_path: Path) -> None:
    tables = [table_of("variable", "adam", tmp_path, name) for name in ("a", "b")]
    save(tmp_path / "s0", tables, {}, None)
    step(tables[0], range(ROWS), 0)
    step(tables[1], [1], 1)
    save(tmp_path / "s1", tables, {"b": np.arange(ROWS) == 1}, tmp_path / "s0")
    expected = state(tables)
    (piece,) = read_index(tmp_path / "s0" / "checkpoint.index")["embedding/a/.ATTRIBUTES/VARIABLE_VALUE"].pieces
    spoil(piece.path, piece.offset)
    restored = [table_of("variable", "adam", tmp_path, name) for name in ("a", "b")]
    with pytest.raises(DataError, match=r"embedding/a/.*: the file is damaged"):
        restoring.read_run(seen(restored), tmp_path / "s0")
    restoring.read_run(seen(restored), tmp_path / "s1")  # of table a the earlier checkpoint is not read
    assert state(restored) == expected


def spoil(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def test_a_folder_of_checkpoints_can_be_moved_and_linked_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    directories, states = three(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "b" / directories[2].name)
    for directory in (tmp_path / "b" / directories[2].name, tmp_path / "elsewhere"):
        table = table_of("variable", "adagrad", tmp_path)
        restoring.read_run(seen([table]), directory)
        assert state([table]) == states[2]


def test_which_must_stay(tmp_path: Path) -> None:
    directories, _ = three(tmp_path)
    assert needed(directories[2:]) == set(directories)
    assert needed(directories[1:2]) == set(directories[:2])
    assert needed(directories[:1]) == {directories[0]}
    assert needed([]) == set()


def restore(directory: Path, folder: Path) -> None:
    restoring.read_run(seen([table_of("variable", "adagrad", folder)]), directory)


def test_a_base_that_is_missing_or_another_is_told(tmp_path: Path) -> None:
    directories, _ = three(tmp_path)
    first, second, third = directories
    kept = tmp_path / "kept"
    shutil.copytree(first, kept)
    table = table_of("variable", "adagrad", tmp_path)
    write_checkpoint(seen([table]), first)
    with pytest.raises(CheckpointError, match=r"step_00000001 is an incremental.*step_00000000, which was overwritten"):
        restore(second, tmp_path)
    shutil.rmtree(first)
    with pytest.raises(CheckpointError, match=r"step_00000001 is an incremental.*step_00000000, which is missing"):
        restore(third, tmp_path)
    kept.rename(first)
    restore(third, tmp_path)
    description = second / "checkpoint.increment.json"
    content = json.loads(description.read_text())
    description.write_text(json.dumps(content))  # the same, in other bytes
    restore(second, tmp_path)
    with pytest.raises(CheckpointError, match=r"step_00000002 .*step_00000001, which was overwritten later or is"):
        restore(third, tmp_path)
    description.write_text("{}")
    with pytest.raises(CheckpointError, match=r"increment\.json: found no description of an incremental checkpoint"):
        restore(second, tmp_path)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_anywhere_in_the_chain_is_found(tmp_path: Path, number: int) -> None:
    directories, _ = three(tmp_path)
    data = directories[number] / "checkpoint.data-00001-of-00002"
    whole = data.read_bytes()
    pieces = [entry.pieces[0] for entry in read_index(data.with_name("checkpoint.index")).values()]
    used = [(piece.offset, piece.offset + piece.size) for piece in pieces if piece.path == data]
    for place in range(0, len(whole), 37):
        spoil(data, place)
        harmless = not any(low <= place < high for low, high in used)
        with (
            contextlib.nullcontext() if harmless else pytest.raises(DataError, match=f"{data.parent.name}/{data.name}")
        ):
            restore(directories[2], tmp_path)
        data.write_bytes(whole)
    data.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="the file is cut short"):
        restore(directories[2], tmp_path)
    data.unlink()
    with pytest.raises(DataError, match="found no such file"):
        restore(directories[2], tmp_path)


def test_a_table_that_does_not_fit_is_told(tmp_path: Path) -> None:
    directories, _ = three(tmp_path)
    larger = EmbeddingTable("item", ROWS + 1, DIM, slots={"accumulators": 0.1})
    with pytest.raises(CheckpointError, match=r"\(item\) float32 \[38, 3\], in the checkpoint float32 \[37, 3\]"):
        restoring.read_run(seen([larger]), directories[2])
    shapes = {info.short: info.shape for info in embexp.checkpoints.keys(directories[2]).values()}
    assert shapes["embedding/item.Saccumulators"] == (ROWS, DIM)


def test_it_is_not_copied_away_from_its_base(tmp_path: Path) -> None:
    directories, states = three(tmp_path)
    with pytest.raises(CheckpointError, match="step_00000002 is an incremental checkpoint, but a full one is needed"):
        store.link(directories[2], tmp_path / "elsewhere/copy")
    assert not (tmp_path / "elsewhere").exists()
    table = table_of("variable", "adagrad", tmp_path)
    restoring.read_run(seen([table]), store.link(directories[2], tmp_path / "beside"))
    assert state([table]) == states[2]


def test_a_whole_one_is_made_of_it(tmp_path: Path) -> None:
    directories, states = three(tmp_path)
    index = directories[2] / "checkpoint.index"
    with pytest.raises(CheckpointError, match=r"step_00000002 is an incremental.* embexp checkpoint convert .* OUT"):
        store.find_index(index, whole=True)
    embexp.checkpoints.convert(index, tmp_path / "whole/checkpoint", kind="object")
    embexp.checkpoints.convert(index, tmp_path / "names/ckpt", kind="name")
    for directory in directories:
        shutil.rmtree(directory)
    table = table_of("variable", "adagrad", tmp_path)
    restoring.read_run(seen([table]), tmp_path / "whole")
    assert state([table]) == states[2]
    reader = tf.train.load_checkpoint(str(tmp_path / "whole/checkpoint"))
    assert reader.get_tensor("embedding/item/.ATTRIBUTES/VARIABLE_VALUE").tobytes() == states[2][0]
    by_name = str(tmp_path / "names/ckpt")
    found = {tf.train.load_variable(by_name, name).tobytes() for name, _ in tf.train.list_variables(by_name)}
    assert found >= set(states[2])


def test_other_programs_variables_are_restored_from_it(tmp_path: Path) -> None:
    directories, states = three(tmp_path)
    table = tf.Variable(np.zeros((ROWS, DIM), np.float32))
    plain = tf.train.Checkpoint(embedding=tf.train.Checkpoint(item=table))
    embexp.checkpoints.restore(directories[2], plain, only=["embedding/item"])
    assert table.numpy().tobytes() == states[2][0]
    with pytest.raises(CheckpointError, match="step_00000002 is an incremental checkpoint"):
        embexp.checkpoints.restore(directories[2], tf.train.Checkpoint())  # its variables may come later


def test_vectors_are_read_from_it(tmp_path: Path) -> None:
    directories, states = three(tmp_path)
    for directory, expected in zip(directories, states, strict=True):
        stored = vectors.read_tensor(directory / "checkpoint.index", "embedding/item")
        assert stored.check is not None
        stored.check()
        assert stored.read(0, ROWS).tobytes() == expected[0]


@pytest.mark.parametrize("rows", [ROWS, ROWS + 2, ROWS + 3 * BLOCK])
def test_further_rows_are_among_those_that_changed(tmp_path: Path, rows: int) -> None:
    """Three links, of ROWS, `rows` and `rows + 1` rows; a matrix without changes is read from its place."""
    random, directories, expected = np.random.default_rng(0), [], []
    values = VALUES
    for number, size in enumerate((ROWS, rows, rows + 1)):
        values = np.concatenate([values, random.normal(size=(size - len(values), DIM)).astype(np.float32)])
        table = EmbeddingTable("item", size, DIM)
        table.write(0, values)
        changed = np.arange(size) >= (len(expected[-1]) if expected else 0)
        directories.append(tmp_path / f"step_{number:08d}")
        save(directories[-1], [table], {"item": changed}, directories[-2] if number else None)
        expected.append(values)
    for directory, whole in zip(directories, expected, strict=True):
        restored = EmbeddingTable("item", len(whole), DIM)
        restoring.read_run(seen([restored]), directory)
        assert restored.read(0, len(whole)).tobytes() == whole.tobytes()
        stored = vectors.read_tensor(directory / "checkpoint.index", "embedding/item")
        for start in (0, ROWS - 2, len(whole) - 1):
            assert stored.read(start, len(whole)).tobytes() == whole[start:].tobytes()
        assert (stored.place is not None) == (directory == directories[0] or (rows == ROWS and len(whole) == ROWS))
    if rows > ROWS:  # the last but one has some of the rows that the last one needs
        description = directories[2] / "checkpoint.increment.json"
        content = json.loads(description.read_text())
        for key, matrix in content["matrices"].items():
            content["matrices"][key] = {**matrix, "shape": [rows + 5, DIM]}
        description.write_text(json.dumps(content))
        with pytest.raises(DataError, match=rf"found {rows + 1 - ROWS:,} of rows {ROWS} to {rows + 5}"):
            vectors.read_tensor(directories[2] / "checkpoint.index", "embedding/item").read(0, rows + 5)


def test_tensorflow_does_not_take_it_for_a_whole_one(tmp_path: Path) -> None:
    directories, _ = three(tmp_path)
    plain = tf.train.Checkpoint(embedding=tf.train.Checkpoint(item=tf.Variable(VALUES)))
    with pytest.raises(ValueError, match="incompatible tensor with shape"):
        plain.read(store.prefix_in(directories[2]))


def test_a_session_refuses_it(tmp_path: Path) -> None:
    directories, _ = three(tmp_path, "split")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        saver = streaming.saver_of(tf.train.Checkpoint(embedding=TableCheckpoint([EmbeddingTable("item", ROWS, DIM)])))
        with pytest.raises(CheckpointError, match=r"step_00000002 is an incremental checkpoint, .* runtime=function"):
            saver.restore(session, store.prefix_in(directories[2]))


def test_a_training_goes_on_from_any_point(tmp_path: Path) -> None:
    directories, _ = three(tmp_path)
    table = table_of("variable", "adagrad", tmp_path)
    restoring.read_run(seen([table]), directories[1])
    saves = streaming.IncrementalSaves({"item": table}, whole_every=3, restored=directories[1])
    states, incremental = {}, []
    for number in range(5):
        step(table, MOVING[number : number + 2], 10 + number)
        directory = store.write_by(lambda prefix: saves.write(seen([table]), prefix), tmp_path / f"next_{number}")
        saves.saved(directory)
        states[directory] = state([table])
        incremental.append(is_incremental(directory / "checkpoint"))
        if number == 3:
            shutil.rmtree(directory)
    assert incremental == [True, False, True, True, False]  # the last one as the one before is gone
    assert needed([tmp_path / "next_0"]) == {tmp_path / "next_0", *directories[:2]}
    for directory, expected in states.items():
        if directory.is_dir():
            restored = table_of("split", "adagrad", tmp_path)
            restoring.read_run(seen([restored]), directory)
            assert state([restored]) == expected


def test_changes_are_counted_until_they_are_saved() -> None:
    tables = {name: EmbeddingTable(name, 5, 1, frozen=name == "c") for name in "abc"}
    tables["a"].mark_touched([0])
    changes = streaming.Changes(tables, every_row=["b"])
    none = {"a": [], "c": []}

    def collected() -> dict[str, list[int]]:
        return {name: np.flatnonzero(mask).tolist() for name, mask in changes.collect().items()}

    assert collected() == none
    tables["a"].mark_touched([1])
    assert collected() == {**none, "a": [1]}
    tables["a"].mark_touched([2])
    assert collected() == {**none, "a": [1, 2]}
    changes.saved()
    tables["a"].mark_touched([2])
    assert collected() == {**none, "a": [2]}
    assert tables["a"].touched_rows() == 3
