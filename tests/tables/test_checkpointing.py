"""Checkpoints exchanged with a real `TPUEmbedding`, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam
from embexp.specs.tables import Feature
from embexp.tables import optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_backend import TableShape, to_tensorflow

RULES = {"user": Adagrad(), "item": Adam(), "tag": FTRL(), "word": AdagradMomentum(), "plain": SGD()}
SIZES = {"user": (5, 3), "item": (7, 2), "tag": (4, 1), "word": (6, 4), "plain": (3, 3)}
KEYS = {
    "embedding/user/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/user.Saccumulators/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/item/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/item.Smomenta/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/item.Svelocities/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/tag/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/tag.Saccumulators/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/tag.Slinears/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/word/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/word.Saccumulators/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/word.Smomenta/.ATTRIBUTES/VARIABLE_VALUE",
    "embedding/plain/.ATTRIBUTES/VARIABLE_VALUE",
}


def ours() -> dict[str, EmbeddingTable]:
    tables = {
        name: EmbeddingTable(name, rows, dim, slots=optimizers.slots_of(RULES[name]))
        for name, (rows, dim) in SIZES.items()
    }
    for table in tables.values():
        table.write(0, np.zeros((table.rows, table.dim), np.float32))
    return tables


def theirs() -> Any:
    shapes = {name: TableShape(rows, dim) for name, (rows, dim) in SIZES.items()}
    _, features = to_tensorflow(shapes, {name: Feature(table=name) for name in SIZES}, RULES)
    made = tf.tpu.experimental.embedding.TPUEmbedding(features, optimizer=None)
    made.build(8)
    return made


def variables_of_ours(tables: dict[str, EmbeddingTable]) -> dict[str, Any]:
    return {
        f"{name}/{slot}": variable
        for name, table in tables.items()
        for slot, variable in {"parameters": table.variable, **table.slots}.items()
    }


def variables_of_theirs(embedding: Any) -> dict[str, Any]:
    return {f"{name}/{slot}": v for name, slots in embedding._variables.items() for slot, v in slots.items()}


def randomised(variables: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    for variable in variables.values():
        variable.assign(generator.standard_normal(variable.shape).astype(np.float32))
    return {name: variable.numpy() for name, variable in variables.items()}


def check_exchange(path: Path, written: Any, saved: dict[str, Any], read: Any, restored: dict[str, Any]) -> None:
    expected = randomised(saved, 1)
    randomised(restored, 2)
    prefix = tf.train.Checkpoint(embedding=written).write(str(path / "checkpoint"))
    keys = {key for key, _ in tf.train.list_variables(prefix)}
    assert keys == KEYS | {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    # assert_consumed alone passes where nothing was restored, so the values are compared one by one.
    tf.train.Checkpoint(embedding=read).read(prefix).assert_consumed()
    assert set(restored) == set(expected)
    for name, variable in restored.items():
        np.testing.assert_array_equal(variable.numpy(), expected[name], strict=True)


def test_tpu_embedding_restores_what_we_write(tmp_path: Path) -> None:
    tables, embedding = ours(), theirs()
    saved, restored = variables_of_ours(tables), variables_of_theirs(embedding)
    check_exchange(tmp_path, TableCheckpoint(tables.values()), saved, embedding, restored)


def test_we_restore_what_tpu_embedding_writes(tmp_path: Path) -> None:
    tables, embedding = ours(), theirs()
    saved, restored = variables_of_theirs(embedding), variables_of_ours(tables)
    check_exchange(tmp_path, embedding, saved, TableCheckpoint(tables.values()), restored)
    # The engine's own access sees the restored values.
    np.testing.assert_array_equal(tables["item"].read(0, 7), saved["item/parameters"].numpy())


def test_a_restored_table_can_still_be_written(tmp_path: Path) -> None:
    tables = ours()
    prefix = tf.train.Checkpoint(embedding=TableCheckpoint(tables.values())).write(str(tmp_path / "c"))
    tf.train.Checkpoint(embedding=TableCheckpoint(tables.values())).read(prefix).assert_consumed()
    tables["item"].write(2, np.ones((1, 2), np.float32))
    assert tables["item"].read(0, 7).sum() == 2


@pytest.mark.parametrize("name", ["save", "name", "variables", "embedding"])
def test_table_names_do_not_clash_with_the_trackable(tmp_path: Path, name: str) -> None:
    table = EmbeddingTable(name, 2, 1)
    table.write(0, np.ones((2, 1), np.float32))
    prefix = tf.train.Checkpoint(embedding=TableCheckpoint([table])).write(str(tmp_path / "c"))
    assert f"embedding/{name}/.ATTRIBUTES/VARIABLE_VALUE" in dict(tf.train.list_variables(prefix))


@pytest.mark.parametrize("by_reference", [False, True])
def test_a_frozen_table_is_part_of_it_unless_kept_by_reference(tmp_path: Path, by_reference: bool) -> None:
    frozen = EmbeddingTable("word", 2, 1, frozen=True, by_reference=by_reference)
    user = EmbeddingTable("user", 2, 1)
    for table in (frozen, user):
        table.write(0, np.ones((2, 1), np.float32))
    prefix = tf.train.Checkpoint(embedding=TableCheckpoint([frozen, user])).write(str(tmp_path / "c"))
    ours = {"user"} if by_reference else {"user", "word"}
    assert {key.split("/")[1] for key, _ in tf.train.list_variables(prefix) if "/" in key} == ours
    for table in (frozen, user):
        table.write(0, np.zeros((2, 1), np.float32))
    tf.train.Checkpoint(embedding=TableCheckpoint([frozen, user])).read(prefix).assert_consumed()
    assert (user.read(0, 2) == 1).all()
    assert (frozen.read(0, 2) == (0 if by_reference else 1)).all()
