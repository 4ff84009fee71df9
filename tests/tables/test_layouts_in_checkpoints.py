"""Checkpoints do not depend on layouts: saved in one, restored in another, eagerly and in sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.checkpoints import restoring, store, streaming
from embexp.errors import CheckpointError
from embexp.specs.optimizers import Adam
from embexp.tables import optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.optimizers import RowGroups
from embexp.tables.table import EmbeddingTable, SplitTable
from tests.checkpoint_values import write_checkpoint

ROWS, DIM = 9, 3
GROUPS = np.array([0, 1, 0, 0, 1, 1, 0, 2, 0], np.uint8)  # group 2 moves later
MULTIPLIERS = np.array([[0, 1, 0], [0, 1, 1]], np.float32)
FILE_ROWS = np.array([4, 0, -1, 3, -1, 2, 1, 5, -1])
LAYOUTS = ("variable", "split", "memory_map")
VALUES = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
FROZEN = GROUPS == 0


class Matrix:
    rows, dim = ROWS, DIM

    def read(self, start: int, stop: int) -> np.ndarray:
        return VALUES[start:stop]


def table_of(layout: str, folder: Path) -> Any:
    groups = RowGroups("item", GROUPS, MULTIPLIERS, [0, 5])
    slots = optimizers.slots_of(Adam())
    if layout == "variable":
        return EmbeddingTable("item", ROWS, DIM, slots=slots, groups=groups)
    if layout == "split":
        return SplitTable("item", groups, DIM, slots=slots)
    if not (folder / "m.npy").exists():
        matrix = np.full((6, DIM), np.nan, np.float32)
        matrix[FILE_ROWS[FILE_ROWS >= 0]] = VALUES[FILE_ROWS >= 0]
        np.save(folder / "m.npy", matrix)
    mapping = np.asarray(np.load(folder / "m.npy", mmap_mode="c"))
    return SplitTable("item", groups, DIM, mapping=mapping, file_rows=FILE_ROWS, slots=slots)


def fill(table: Any) -> None:
    if isinstance(table, SplitTable):
        for part, rows in table.fills(Matrix()):
            part.write(0, rows.read(0, rows.rows))
    else:
        table.write(0, VALUES)


def train(table: Any) -> None:
    """As steps would: rows that move get other values, and their slots."""
    ids = tf.constant(np.flatnonzero(~FROZEN))
    table.scatter(ids, 2 * table.gather(ids))
    for number, slot in enumerate(table.slots):
        table.scatter(ids, table.gather(ids) + number, slot)


def state(table: Any) -> list[np.ndarray]:
    return [table.read(0, ROWS, slot) for slot in (None, *table.slots)]


def checkpoint(table: Any) -> Any:
    return tf.train.Checkpoint(embedding=TableCheckpoint([table]))


@pytest.mark.parametrize("saved", LAYOUTS)
@pytest.mark.parametrize("restored", LAYOUTS)
def test_saved_in_one_layout_restored_in_another(tmp_path: Path, saved: str, restored: str) -> None:
    first = table_of(saved, tmp_path)
    fill(first)
    train(first)
    write_checkpoint(checkpoint(first), tmp_path / "c")
    infos = checkpoints.keys(tmp_path / "c").values()
    shapes = {info.short: info.shape for info in infos if info.short.startswith("embedding")}
    assert shapes == dict.fromkeys(("embedding/item", "embedding/item.Smomenta", "embedding/item.Svelocities"), (9, 3))
    second = table_of(restored, tmp_path)
    restoring.read_run(checkpoint(second), tmp_path / "c")
    for before, after in zip(state(first), state(second), strict=True):
        np.testing.assert_array_equal(after.view(np.uint32), before.view(np.uint32))
    np.testing.assert_array_equal(second.read(0, ROWS), np.where(FROZEN[:, None], VALUES, 2 * VALUES))
    assert (second.read(0, ROWS, "momenta")[FROZEN] == 0).all()


@pytest.mark.parametrize("layout", ["split", "memory_map"])
def test_in_sessions(tmp_path: Path, layout: str) -> None:
    first = table_of(layout, tmp_path)
    fill(first)
    train(first)
    write_checkpoint(checkpoint(first), tmp_path / "eager")
    expected = state(first)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = table_of(layout, tmp_path)
        saver = streaming.saver_of(checkpoint(table))
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        for variable, values in table.feeds():
            session.run(variable.initializer, {variable.initial_value: values})
        saver.restore(session, store.prefix_in(tmp_path / "eager"))
        found = session.run(table.gather(tf.range(ROWS)))
        np.testing.assert_array_equal(found.view(np.uint32), expected[0].view(np.uint32))
        (tmp_path / "graph").mkdir()
        saver.save(session, str(tmp_path / "graph" / "checkpoint"))
    again = table_of("variable", tmp_path)
    restoring.read_run(checkpoint(again), tmp_path / "graph")
    for before, after in zip(expected, state(again), strict=True):
        np.testing.assert_array_equal(after.view(np.uint32), before.view(np.uint32))


def test_rows_that_stay_in_their_file_must_be_those_of_the_checkpoint(tmp_path: Path) -> None:
    first = table_of("variable", tmp_path)
    fill(first)
    first.scatter(tf.constant([3]), tf.zeros([1, DIM]))
    write_checkpoint(checkpoint(first), tmp_path / "c")
    with pytest.raises(
        CheckpointError, match="frozen rows of table item in the checkpoint differ from those of its pretr"
    ):
        restoring.read_run(checkpoint(table_of("memory_map", tmp_path)), tmp_path / "c")


def test_a_checkpoint_of_another_size(tmp_path: Path) -> None:
    other = EmbeddingTable("item", ROWS + 1, DIM, slots=optimizers.slots_of(Adam()))
    other.write(0, np.zeros((ROWS + 1, DIM), np.float32))
    write_checkpoint(checkpoint(other), tmp_path / "c")
    with pytest.raises(
        CheckpointError, match=r"\(item/momenta\) float32 \[9, 3\], in the checkpoint float32 \[10, 3\]"
    ):
        restoring.read_run(checkpoint(table_of("split", tmp_path)), tmp_path / "c")
    bare = EmbeddingTable("item", ROWS, DIM)
    bare.write(0, VALUES)
    write_checkpoint(checkpoint(bare), tmp_path / "bare")
    with pytest.raises(
        CheckpointError, match=r"missing.*\n    embedding/item\.Smomenta \(item/momenta\) float32 \[9, 3\]"
    ):
        restoring.read_run(checkpoint(table_of("split", tmp_path)), tmp_path / "bare")
