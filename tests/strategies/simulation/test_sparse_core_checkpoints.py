"""What `tf.train.Checkpoint` saves of a `TPUEmbeddingV2` program, which is stacks, and what embexp makes of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp import checkpoints
from embexp.cli import commands
from tests.strategies.simulation.programs import rows_of

api = tf.tpu.experimental.embedding
SHAPES = {"item": (37, 16), "user": (50, 16), "word": (20, 3)}
"""Two tables have a stack of their own, the third has one that is called as it is."""
SLOTS = ("parameters", "accumulators")
BATCH = 8


def new_embedding(kind: Any) -> Any:
    """With tables that have an optimizer each, under the current strategy."""
    features = {
        name: api.FeatureConfig(
            api.TableConfig(rows, dim, tf.random_uniform_initializer(seed=1), api.Adagrad(0.5), name=name),
            output_shape=[BATCH],
            name=name,
        )
        for name, (rows, dim) in SHAPES.items()
    }
    return kind(features, api.SGD(0.1))


def edge(name: str, slot: str) -> str:
    """The path below the embedding that a table, or its slot, has in a checkpoint of the first generation."""
    return name + f".S{slot}" * (slot != "parameters")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A program that trains, and saves: the prefix, and what is in it, by table and slot."""
    with embexp.tpu_simulator(cores=2, embedding_feature="V2", sparse_cores=4) as strategy:
        with strategy.scope():
            embedding = new_embedding(api.TPUEmbeddingV2)
            embedding.build()

        def replica(ids: Any) -> None:
            found, kept = embedding(ids)
            embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, found), kept)

        @tf.function
        def step(ids: Any) -> None:
            given = strategy.experimental_distribute_values_from_function(
                lambda context: {name: values[context.replica_id_in_sync_group] for name, values in ids.items()}
            )
            strategy.run(replica, args=(given,))

        generator = np.random.default_rng(0)
        step({name: tf.constant(generator.integers(0, SHAPES[name][0], (2, BATCH)), tf.int32) for name in SHAPES})
        rows = {(name, slot): rows_of(embedding, name, slot) for name in SHAPES for slot in SLOTS}
        path = tf.train.Checkpoint(embedding=embedding).save(str(tmp_path_factory.mktemp("program") / "checkpoint"))
    assert len(np.unique(rows["item", "accumulators"])) > 1  # it trained
    return SimpleNamespace(path=Path(path), rows=rows)


def assert_same(embedding: Any, rows: dict[tuple[str, str], np.ndarray]) -> None:
    for (name, slot), values in rows.items():
        np.testing.assert_array_equal(embedding._variables[name][slot].numpy(), values, err_msg=f"{name} {slot}")


def test_tables_are_listed_and_read(program: Any) -> None:
    keys = checkpoints.keys(program.path)
    found = {info.key: (info.table, info.slot, info.shape) for info in keys.values() if info.table is not None}
    assert found == {
        f"embedding/{edge(name, slot)}/.ATTRIBUTES/VARIABLE_VALUE": (
            name,
            None if slot == "parameters" else slot,
            SHAPES[name],
        )
        for name, slot in program.rows
    }
    assert not [key for key in keys if "layouts" in key or "item_user" in key]
    for (name, slot), rows in program.rows.items():
        key = f"embedding/{edge(name, slot)}"
        np.testing.assert_array_equal(checkpoints.read_rows(program.path, key, 5, 19), rows[5:19])
        np.testing.assert_array_equal(checkpoints.tensor(program.path, key).read(0, len(rows)), rows)


@pytest.mark.parametrize("when", ["after it is built", "before it is built"])
def test_they_are_restored_on_a_processor(program: Any, when: str) -> None:
    embedding = new_embedding(api.TPUEmbedding)
    if when == "after it is built":
        embedding.build()
    account = checkpoints.restore(program.path, tf.train.Checkpoint(embedding=embedding))
    if when == "before it is built":
        embedding.build()
    account.assert_complete()
    account.assert_consumed()
    assert_same(embedding, program.rows)


def test_a_table_goes_into_variables_of_any_program(program: Any) -> None:
    rows = program.rows["user", "parameters"]
    table, longer = tf.Variable(tf.zeros([50, 16])), tf.Variable(tf.zeros([60, 16]))
    asked: dict[str, Any] = {"only": ["embedding/user"], "rename": {"embedding/user": "mine"}}
    checkpoints.restore(program.path, {"mine": table}, **asked).assert_complete()
    checkpoints.restore(program.path, {"mine": longer}, rows="grow", **asked)
    np.testing.assert_array_equal(table.numpy(), rows)
    np.testing.assert_array_equal(longer.numpy()[:50], rows)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("mine", [50, 16], use_resource=True)
        checkpoints.restore(program.path, {"mine": variable}, **asked).run_restore_ops(session)
        np.testing.assert_array_equal(session.run(variable), rows)


def test_a_converted_one_is_restored_on_other_chips(program: Any, tmp_path: Path) -> None:
    """By TensorFlow alone, which restores no slots into another layout; on a processor it does."""
    out = tmp_path / "converted"
    assert not commands.main(["checkpoint", "convert", str(program.path), str(out), "--to", "object"])
    size = sum(values.nbytes for values in program.rows.values())
    assert out.with_name("converted.data-00000-of-00001").stat().st_size < 1.5 * size  # the stacks are left out
    embedding = new_embedding(api.TPUEmbedding)
    embedding.build()
    tf.train.Checkpoint(embedding=embedding).restore(str(out)).assert_consumed()
    assert_same(embedding, program.rows)
    with embexp.tpu_simulator(cores=1, embedding_feature="V2", sparse_cores=2) as strategy, strategy.scope():
        embedding = new_embedding(api.TPUEmbeddingV2)
        tf.train.Checkpoint(embedding=embedding).read(str(out)).expect_partial()
        embedding.build()
        for name in SHAPES:
            np.testing.assert_array_equal(rows_of(embedding, name), program.rows[name, "parameters"])


def test_names_and_more_rows(program: Any, tmp_path: Path) -> None:
    names, grown = tmp_path / "names", tmp_path / "grown"
    assert not commands.main(["checkpoint", "convert", str(program.path), str(names), "--to", "name"])
    words = ["--rows", "embedding/item=40", "--missing", "mean", "--out", str(grown)]
    assert not commands.main(["checkpoint", "grow", str(program.path), *words])
    for slot in SLOTS:
        rows, name = program.rows["item", slot], f"embedding/{edge('item', slot)}"
        np.testing.assert_array_equal(tf.train.load_variable(str(names), name.replace(".S", "/")), rows)
        longer = tf.train.load_variable(str(grown / "checkpoint"), f"{name}/.ATTRIBUTES/VARIABLE_VALUE")
        np.testing.assert_array_equal(longer[:37], rows)
        expected = rows.min() if slot == "accumulators" else rows.mean(0, dtype=np.float64)
        np.testing.assert_allclose(longer[37:], np.broadcast_to(expected, (3, 16)), rtol=1e-6)
    embedding = new_embedding(api.TPUEmbedding)
    others = {key: rows for key, rows in program.rows.items() if key[0] != "item"}
    embedding.build()
    only = [f"embedding/{edge(*key)}" for key in others]
    checkpoints.restore(grown, tf.train.Checkpoint(embedding=embedding), only=only)
    assert_same(embedding, others)
