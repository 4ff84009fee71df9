"""Lookups, updates, initial values, limits and checkpoints on SparseCores: the v3 cases."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2
from tensorflow.python.tpu import (
    embedding_context_utils,
    tpu_embedding_for_serving,
    tpu_embedding_v3_utils,
    tpu_replication,
)

import embexp
from tests.strategies.simulation.programs import rows_of
from tests.strategies.tpu_fixtures import world
from tests.strategies.tpu_fixtures.cases import Case, original

api = tf.tpu.experimental.embedding
ROWS, DIM, SAMPLES = 16384, 127, 16
FILLED = {"video": 1.0, "user": 2.0}


@pytest.fixture
def one_chip(quick_collection: None) -> Iterator[Any]:
    """A strategy of one chip with four SparseCores, as the originals expect."""
    with embexp.tpu_simulator(cores=1, embedding_feature="V2") as strategy:
        yield strategy


@pytest.fixture
def two_chips(quick_collection: None) -> Iterator[Any]:
    with embexp.tpu_simulator(cores=2, embedding_feature="V2") as strategy:
        yield strategy


def table(name: str, initializer: Any = None, rows: int = ROWS, dim: int = DIM) -> Any:
    filled = tf.constant_initializer(FILLED[name]) if initializer is None else initializer
    return api.TableConfig(rows, dim, initializer=filled, combiner="sum", name=name)


def features(*names: str) -> tuple[Any, ...]:
    """A feature for each name of a table; equal names share their table."""
    tables = {name: table(name) for name in names}
    return tuple(
        api.FeatureConfig(tables[name], output_shape=[SAMPLES], name=f"feature {number}")
        for number, name in enumerate(names)
    )


def embedding_of(strategy: Any, config: Any, optimizer: Any = None, **rest: Any) -> Any:
    with strategy.scope():
        return api.TPUEmbeddingV2(config, optimizer or api.SGD(1.0), **rest)


def ids(count: int) -> tf.SparseTensor:
    """Id i is in sample i modulo 16."""
    return tf.sparse.reorder(
        tf.SparseTensor([[i % SAMPLES, i] for i in range(count)], np.arange(count), [SAMPLES, count])
    )


def batch_of(strategy: Any, tensors: Any) -> Any:
    data = world.batches(tensors, size=SAMPLES * strategy.num_replicas_in_sync)
    return next(world.distributed(strategy, data))


def looked_up(strategy: Any, embedding: Any, batch: Any) -> Any:
    @tf.function
    def step(batch: Any) -> Any:
        return strategy.run(lambda given: embedding(given)[0], args=(batch,))

    return world.on_core(strategy, step(batch))


LOOKUPS = {
    "test_single_feature_single_table_lookup_with_static_buffer_size": (("video",), 1024, [64.0]),
    "test_two_features_single_table_lookup_with_csr_input": (("video", "video"), 512, [32.0, 32.0]),
    "test_two_features_two_tables_stacked_lookup_with_csr_input": (("video", "user"), 512, [32.0, 64.0]),
}


@original(*(("v3", test) for test in LOOKUPS))
def test_lookup(case: Case, one_chip: Any) -> None:
    names, count, sums = LOOKUPS[case.test]
    embedding = embedding_of(one_chip, features(*names))
    assert len(embedding.embedding_tables) == 1
    found = looked_up(one_chip, embedding, batch_of(one_chip, (ids(count),) * len(names)))
    for value, expected in zip(found, sums, strict=True):
        np.testing.assert_array_equal(value, np.full([SAMPLES, DIM], expected))


@original(("v3", "test_embedding_initialization"))
def test_initial_values(case: Case, one_chip: Any) -> None:
    def numbers(shape: Any, dtype: Any) -> Any:
        return tf.reshape(tf.range(shape[0] * shape[1], dtype=dtype), shape)

    def shards(shape: Any, dtype: Any, shard_info: Any = None) -> Any:
        return tf.fill(shard_info.shape if shard_info else shape, tf.constant(23.0, dtype))

    tables = {
        "watched": api.TableConfig(ROWS, 128, tf.constant_initializer(1.0), combiner="sum", name="video"),
        "user": api.TableConfig(
            ROWS, 128, tpu_embedding_v3_utils.shard_initializer(one_chip, numbers), combiner="sum", name="user"
        ),
        "country": api.TableConfig(ROWS, 128, shards, combiner="sum", name="country"),
    }
    config = {name: api.FeatureConfig(each, output_shape=[SAMPLES]) for name, each in tables.items()}
    embedding = embedding_of(one_chip, config)
    given = {
        name: tf.SparseTensor([[i, 0] for i in range(SAMPLES)], np.arange(SAMPLES) + first, [SAMPLES, 1])
        for name, first in (("watched", 0), ("user", 16), ("country", 32))
    }

    @tf.function
    def step(batch: Any) -> Any:
        prepared = embedding.enqueue(batch, device=one_chip.extended.worker_devices[0])
        return one_chip.run(lambda given: embedding.dequeue(given)[0], args=(prepared,))

    found = world.on_core(one_chip, step(batch_of(one_chip, given)))
    np.testing.assert_array_equal(found["watched"], np.ones([SAMPLES, 128]))
    np.testing.assert_array_equal(found["user"], 2048 + np.arange(SAMPLES * 128).reshape(SAMPLES, 128))
    np.testing.assert_array_equal(found["country"], np.full([SAMPLES, 128], 23.0))


UPDATES = {
    "test_single_feature_single_table_backwards_pass_with_csr_input": (("video",), 1024),
    "test_two_feature_single_table_backwards_pass_with_csr_input": (("video", "video"), 512),
    "test_two_feature_two_tables_stacked_backwards_pass_with_csr_input": (("video", "user"), 512),
}


@original(*(("v3", test) for test in UPDATES))
def test_update(case: Case, one_chip: Any) -> None:
    """Only an update, with a rate of 1: each id loses the gradient of its sample."""
    names, count = UPDATES[case.test]
    with one_chip.scope():
        rate = tf.Variable(1.0)
    embedding = embedding_of(one_chip, features(*names), api.SGD(rate.read_value))
    embedding.build()
    rng = np.random.default_rng(0)
    gradients = tuple(rng.uniform(size=(SAMPLES, DIM)).astype(np.float32) for _ in names)

    @tf.function
    def step(batch: Any, gradients: Any) -> None:
        def replica(batch: Any, gradients: Any) -> None:
            prepared = tpu_replication.outside_compilation(
                embedding._copy_tensors_to_device, partitioned_tensors=embedding.enqueue(batch)
            )
            embedding.apply_gradients(gradients, prepared)

        one_chip.run(replica, args=(batch, gradients))

    step(batch_of(one_chip, (ids(count),) * len(names)), gradients)
    for name in set(names):
        expected = np.full([ROWS, DIM], FILLED[name])
        for own, gradient in zip(names, gradients, strict=True):
            if own == name:
                expected[:count] -= gradient[np.arange(count) % SAMPLES]
        np.testing.assert_allclose(rows_of(embedding, name), expected, rtol=1e-6, atol=1e-6)


@original(("v3", "test_compute_sparse_core_stats_and_pass_it_to_api"))
def test_statistics_as_limits(case: Case, one_chip: Any) -> None:
    """Of 1024 ids, each of four SparseCores sends 256, and 64 of them to each; one less would be too few."""
    config, batch = features("video")[0], batch_of(one_chip, ids(1024))
    most, distinct = api.TPUEmbeddingV2.compute_sparse_core_stats(
        features=batch, feature_config=config, num_tpu_chips=1, optimizer=api.SGD(1.0)
    )
    assert (int(most["video"]), int(distinct["video"]), config.table.dim) == (64, 64, DIM)

    def limited(limit: int) -> Any:
        limits = {"video": limit}
        settings = api.SparseCoreEmbeddingConfig(max_ids_per_table=limits, max_unique_ids_per_table=limits)
        return embedding_of(one_chip, config, sparse_core_embedding_config=settings)

    np.testing.assert_array_equal(looked_up(one_chip, limited(64), batch), np.full([SAMPLES, DIM], 64.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_ids_per_table of this table is 63; set it to 64"):
        looked_up(one_chip, limited(63), batch)


@original(("v3", "test_raise_error_when_weight_decay_is_set"))
def test_no_weight_decay(case: Case, one_chip: Any) -> None:
    decay = {"weight_decay_factor": 0.1, "multiply_weight_decay_factor_by_learning_rate": True}
    with pytest.raises(NotImplementedError, match="weight_decay_factor"):
        embedding_of(one_chip, features("video"), api.SGD(1.0, **decay))


class _Writer(summary_ops_v2.SummaryWriter):  # type: ignore[misc]
    def init(self) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@original(("v3", "test_pipelining_and_summary_recording"))
def test_pipelining(case: Case, one_chip: Any) -> None:
    """Pipelined operations are marked so, unless summaries are recorded or the context is sequential."""
    recorded, separate, predicate, sequential = (word == "yes" for word in case.variant.split("-"))
    embedding = embedding_of(one_chip, features("video")[0], pipeline_execution_with_tensor_core=True)
    batches = world.distributed(one_chip, world.batches(ids(1024), size=SAMPLES))

    def train(looked_up: Any) -> None:
        activations, kept = looked_up
        embedding.apply_gradients(activations, kept)

    @tf.function
    def steps(batches: Any) -> None:
        for _ in tf.range(10):
            if separate:
                prepared = embedding.enqueue(next(batches), device=one_chip.extended.worker_devices[0])
                one_chip.run(lambda given: train(embedding.dequeue(given)), args=(prepared,))
            else:
                one_chip.run(lambda given: train(embedding(given)), args=(next(batches),))

    context = embedding_context_utils.SequentialEmbeddingContext() if sequential else contextlib.nullcontext()
    when = (lambda: recorded) if predicate else recorded
    with _Writer().as_default(), context, tf.summary.record_if(when):
        graph = steps.get_concrete_function(batches).graph
    body = graph._get_function(next(op for op in graph.get_operations() if op.name == "while").get_attr("body").name)
    marks = {op.node_def.attr["_embedding_pipelining"].s.decode() for op in body.graph.get_operations()} - {""}
    pipelined = not sequential and (predicate or not recorded)
    assert marks == ({"forward", "backward"} if pipelined else {"forward_sequential", "backward_sequential"})


SMALL, SMALL_DIM = 128, 8
SMALL_FIRST = {"video": 0, "user": 1000}


def whole_table(strategy: Any, values: Any) -> Any:
    """An initializer of a table: `values` where it has some, zeros in the padding."""

    def padded(shape: Any, dtype: Any) -> Any:
        given = tf.cast(values, dtype)
        return tf.pad(given, [[0, shape[axis] - given.shape[axis]] for axis in (0, 1)])

    return tpu_embedding_v3_utils.shard_initializer(strategy, padded)


def numbered(first: int, rows: int = SMALL, dim: int = SMALL_DIM) -> np.ndarray:
    """Row i is full of first + i."""
    return np.repeat(first + np.arange(rows, dtype=np.float32), dim).reshape(rows, dim)


@original(
    ("v3_additional", "testSingleTableInitializeAndLookup"), ("v3_additional", "testStackedTableInitializeAndLookup")
)
def test_lookup_of_every_row(case: Case, two_chips: Any) -> None:
    names = ["video"] if "Single" in case.test else ["video", "user"]
    config = [
        api.FeatureConfig(
            table(name, whole_table(two_chips, numbered(SMALL_FIRST[name])), SMALL, SMALL_DIM),
            output_shape=[SMALL],
            name=name,
        )
        for name in names
    ]
    embedding = embedding_of(two_chips, config, api.Adagrad(), pipeline_execution_with_tensor_core=True)
    every = tf.SparseTensor([[i, 0] for i in range(SMALL)], np.arange(SMALL), [SMALL, 1])
    given = two_chips.experimental_distribute_values_from_function(lambda _: [every] * len(names))

    @tf.function
    def step(given: Any) -> Any:
        return two_chips.run(lambda own: embedding(own)[0], args=(given,))

    found = step(given)
    for core in range(2):
        for name, value in zip(names, world.on_core(two_chips, found, core), strict=True):
            np.testing.assert_array_equal(value, numbered(SMALL_FIRST[name]))


def two_tables(strategy: Any, rows: int, dim: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Features of a table of 12 (values for 10) × 2, and of one of 20 × dim."""
    values = {
        "table1": np.arange(100.0, 120.0).reshape(10, 2),
        "table2": np.arange(200.0, 200.0 + 20 * dim).reshape(20, dim),
    }
    config = [
        api.FeatureConfig(table(name, whole_table(strategy, values[name]), size, width), output_shape=[16], name=name)
        for name, size, width in (("table1", rows, 2), ("table2", 20, dim))
    ]
    return config, values


@original(("v3_additional", "testTwoTablesStackedHaveCorrectInitialValues"))
def test_initial_values_of_stacked_tables(case: Case, two_chips: Any) -> None:
    config, values = two_tables(two_chips, 10, 2)
    embedding = embedding_of(two_chips, config, pipeline_execution_with_tensor_core=True)
    assert len(embedding.embedding_tables) == 1
    for name, expected in values.items():
        np.testing.assert_array_equal(rows_of(embedding, name), expected)


@original(("v3_additional", "testCpuRestoreForNoStackedTables"), ("v3_additional", "testCpuRestoreForStackedTables"))
def test_restored_without_a_tpu(case: Case, two_chips: Any, tmp_path: Path) -> None:
    stacked = case.test == "testCpuRestoreForStackedTables"
    config, values = two_tables(two_chips, 12, 2 if stacked else 9)
    with two_chips.scope():
        embedding = api.TPUEmbeddingV2(config, api.SGD(1.0))
        assert len(embedding.embedding_tables) == (1 if stacked else 2)
        path = tf.train.Checkpoint(embedding).save(str(tmp_path / "saved"))
    with tf.distribute.get_strategy().scope():
        served = tpu_embedding_for_serving.TPUEmbeddingForServing(config, api.SGD(1.0))
        tf.train.Checkpoint(served).restore(path)
        served.build()
    second = tf.SparseTensor([[0, 0]], [1], [1, 1])
    for found, expected in zip(served([second, second]), values.values(), strict=True):
        np.testing.assert_array_equal(found, expected[1:2])
    tf.saved_model.save(served, str(tmp_path / "exported"))
    assert len(tf.saved_model.load(str(tmp_path / "exported"))._variables) == 2


@original(("v3_additional", "testUnshardedToTpuRestore"))
def test_restored_from_a_processor(case: Case, two_chips: Any, tmp_path: Path) -> None:
    values = numbered(0, 25, 6)
    config = [api.FeatureConfig(table("table1", whole_table(two_chips, values), 25, 6), output_shape=[16], name="f")]
    with tf.distribute.get_strategy().scope():
        served = tpu_embedding_for_serving.TPUEmbeddingForServing(config, api.Adagrad(0.1))
        assert len(served.embedding_tables) == 1
        path = tf.train.Checkpoint(served).save(str(tmp_path / "saved"))
    embedding = embedding_of(two_chips, config, api.Adagrad(0.1))
    tf.train.Checkpoint(embedding).restore(path)
    embedding.build()
    np.testing.assert_array_equal(rows_of(embedding, "table1"), values)
    np.testing.assert_array_equal(rows_of(embedding, "table1", "accumulators"), np.full([25, 6], np.float32(0.1)))
    for device, part in embedding.embedding_table_shards["table1"]:
        read = embedding.variables["table1"]["parameters"].read_from_device(device)
        assert part.shape == (32, 8)
        np.testing.assert_array_equal(part, read)


@original(("v3_checkpoint", "test_checkpoint_save_and_restore"))
def test_saved_and_restored(case: Case, two_chips: Any, tmp_path: Path) -> None:
    """Restored before its variables are made, so no initializer is called."""
    first, second = (
        embedding_of(
            two_chips,
            api.FeatureConfig(
                api.TableConfig(ROWS, 128, filled, api.SGD(1.0), "sum", "video"), output_shape=[16], name="watched"
            ),
        )
        for filled in (tf.constant_initializer(1.0), lambda *_, **__: pytest.fail("it is restored"))
    )
    first.build()
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "saved"))
    tf.train.Checkpoint(model=second).restore(path)
    second.build()
    for embedding in (first, second):
        parts = embedding.variables["video"]["parameters"].values
        assert [part.shape for part in parts] == [(ROWS // 2, 128)] * 2
        np.testing.assert_array_equal(parts[1].numpy(), np.ones([ROWS // 2, 128]))
