"""Checkpoints of the simulated TPU and of the CPU, each read by the other, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp

api = tf.tpu.experimental.embedding
ROWS, DIM = 7, 3


def new_embedding() -> Any:
    """A TPUEmbedding with two tables, under the current strategy."""
    one = api.TableConfig(ROWS, DIM, tf.random_uniform_initializer(seed=1), api.Adam(0.1), name="one")
    two = api.TableConfig(ROWS + 2, DIM, tf.random_uniform_initializer(seed=2), api.FTRL(0.1), name="two")
    features = {"a": api.FeatureConfig(one, name="a"), "b": api.FeatureConfig(two, name="b")}
    return api.TPUEmbedding(features, None if not tf.distribute.has_strategy() else api.SGD(0.1))


def values(embedding: Any) -> dict[str, np.ndarray]:
    return {
        f"{table}/{slot}": np.concatenate([one.numpy() for one in getattr(variable, "variables", [variable])])
        for table, slots in embedding._variables.items()
        for slot, variable in slots.items()
    }


def train(strategy: Any, embedding: Any) -> None:
    count = strategy.num_replicas_in_sync

    def replica() -> None:
        embedding.apply_gradients(tf.nest.map_structure(tf.identity, embedding.dequeue()))

    @tf.function
    def step(ids: Any) -> None:
        given = strategy.experimental_distribute_values_from_function(
            lambda context: {"a": ids[context.replica_id_in_sync_group], "b": ids[context.replica_id_in_sync_group] + 2}
        )
        embedding.enqueue(given, training=True)
        strategy.run(replica)

    for ids in np.random.default_rng(0).integers(0, ROWS, (3, count, 2)):
        step([tf.constant(one) for one in ids])


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert set(found) == set(wanted)
    assert len(found) == 6
    for name, value in found.items():
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)


@pytest.mark.parametrize("hosts", [1, 2])
def test_to_the_processor_and_back(tmp_path: Path, hosts: int) -> None:
    with embexp.tpu_simulator(cores=1, hosts=hosts) as strategy:
        with strategy.scope():
            embedding = new_embedding()
        embedding.build(2)
        before = values(embedding)
        train(strategy, embedding)
        trained = values(embedding)
        assert all((trained[name] != before[name]).any() for name in before)
        path = tf.train.Checkpoint(embedding=embedding).save(str(tmp_path / "tpu"))
        assert_same(values(embedding), trained)

    on_cpu = new_embedding()
    on_cpu.build()
    tf.train.Checkpoint(embedding=on_cpu).restore(path).assert_consumed()
    assert_same(values(on_cpu), trained)
    for slots in on_cpu._variables.values():
        for variable in slots.values():
            variable.assign(variable * 2)
    doubled = values(on_cpu)
    path = tf.train.Checkpoint(embedding=on_cpu).save(str(tmp_path / "cpu"))

    with embexp.tpu_simulator(cores=2) as strategy:
        with strategy.scope():
            embedding = new_embedding()
        embedding.build(2)
        tf.train.Checkpoint(embedding=embedding).restore(path).assert_consumed()
        assert_same(values(embedding), doubled)
        train(strategy, embedding)  # the restored rows are those that steps look up
        assert (values(embedding)["one/parameters"] != doubled["one/parameters"]).any()


def test_restored_before_it_is_built(tmp_path: Path) -> None:
    """Restoring on creation, which spares the initializer."""
    on_cpu = new_embedding()
    on_cpu.build()
    wanted = values(on_cpu)
    path = tf.train.Checkpoint(embedding=on_cpu).save(str(tmp_path / "cpu"))
    with embexp.tpu_simulator(cores=1) as strategy:
        with strategy.scope():
            embedding = new_embedding()
        tf.train.Checkpoint(embedding=embedding).restore(path)
        embedding.build(2)
        assert_same(values(embedding), wanted)


def test_served_by_the_processor(tmp_path: Path) -> None:
    """`TPUEmbeddingForServing` looks up what the simulated TPU trained."""
    with embexp.tpu_simulator(cores=2) as strategy:
        with strategy.scope():
            embedding = new_embedding()
        embedding.build(2)
        train(strategy, embedding)
        trained = values(embedding)
        path = tf.train.Checkpoint(embedding=embedding).save(str(tmp_path / "tpu"))
    configs = new_embedding()._feature_config
    serving = api.TPUEmbeddingForServing(configs, api.SGD(0.1))
    serving.build()
    tf.train.Checkpoint(embedding=serving).restore(path).expect_partial()
    found = serving({"a": tf.constant([1, 5]), "b": tf.constant([8, 0])})
    np.testing.assert_array_equal(found["a"], trained["one/parameters"][[1, 5]])
    np.testing.assert_array_equal(found["b"], trained["two/parameters"][[8, 0]])
