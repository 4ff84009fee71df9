"""A program as TensorFlow's guide to TPUs writes it, from the resolver on: it trains, evaluates, saves and loads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp

# TensorFlow's distributed variables and NumPy 2, whenever Keras saves them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
CORES, BATCH, EXAMPLES = 2, 8, 32
X = np.random.default_rng(0).standard_normal((EXAMPLES, 4)).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.int64)


@pytest.fixture(scope="class")
def strategy() -> Iterator[Any]:
    """A strategy of one's own, made by the usual beginning of a program."""
    with embexp.tpu_simulator(cores=CORES):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        assert [one.name[-5:] for one in tf.config.list_logical_devices("TPU")] == ["TPU:0", "TPU:1"]
        yield tf.distribute.TPUStrategy(resolver)


def examples(batch: int, *, endless: bool = False) -> tf.data.Dataset:
    """Without tf.data's tuning, whose threads hold up the end of an iterator."""
    options = tf.data.Options()
    options.autotune.enabled = False
    data = tf.data.Dataset.from_tensor_slices((X, Y)).with_options(options)
    return (data.repeat() if endless else data).batch(batch, drop_remainder=endless)


def new_model() -> Any:
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])


class TestTheGuide:
    def test_keras_trains_evaluates_and_saves(self, strategy: Any, tmp_path: Path) -> None:
        """Two steps a call, and `jit_compile=True`, which has no effect; an evaluation ends with a smaller batch."""
        with strategy.scope():
            model = new_model()
            model.compile(
                optimizer=keras.optimizers.Adam(0.05),
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["sparse_categorical_accuracy"],
                steps_per_execution=2,
                jit_compile=True,
            )
        history = model.fit(
            examples(BATCH, endless=True), epochs=2, steps_per_epoch=8, shuffle=False, verbose=0
        ).history["loss"]
        assert history[1] < history[0]
        _, accuracy = model.evaluate(examples(10), verbose=0)
        logits = model.predict(X, verbose=0)
        assert accuracy == pytest.approx((logits.argmax(1) == Y).mean())
        with strategy.scope():
            model.save(tmp_path / "model.keras")
            again = keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_allclose(again.predict(X, verbose=0), logits, rtol=1e-6)

    def test_a_loop_of_ones_own(self, strategy: Any, tmp_path: Path) -> None:
        """Two steps a call, metrics in the step, a checkpoint, and sums over replicas."""
        with strategy.scope():
            model, optimizer = new_model(), keras.optimizers.SGD(0.1)
            losses = keras.metrics.Mean()
            seen = tf.Variable(0, aggregation=tf.VariableAggregation.SUM)

        def step(inputs: Any) -> Any:
            x, y = inputs
            with tf.GradientTape() as tape:
                each = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
                loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            losses.update_state(loss * CORES)
            seen.assign_add(tf.shape(x)[0])
            return loss

        @tf.function
        def train(iterator: Any, steps: Any) -> Any:
            total = 0.0
            for _ in tf.range(steps):
                total += strategy.reduce("sum", strategy.run(step, args=(next(iterator),)), axis=None)
            return total

        data = strategy.distribute_datasets_from_function(lambda _: examples(BATCH // CORES, endless=True))
        iterator = iter(data)
        before = [variable.numpy() for variable in model.weights]
        total = train(iterator, tf.constant(2))
        assert (int(optimizer.iterations.numpy()), int(seen.numpy())) == (2, 2 * BATCH)
        np.testing.assert_allclose(losses.result(), total / 2, rtol=1e-6)
        checkpoint = tf.train.Checkpoint(model=model)
        path = checkpoint.save(tmp_path / "of_a_loop")
        after = [variable.numpy() for variable in model.weights]
        assert any((one != other).any() for one, other in zip(before, after, strict=True))
        for variable, value in zip(model.weights, before, strict=True):
            variable.assign(value)
        checkpoint.restore(path).assert_consumed()
        for variable, value in zip(model.weights, after, strict=True):
            np.testing.assert_array_equal(variable.numpy(), value)

    def test_devices_and_values_by_replica(self, strategy: Any) -> None:
        a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        with tf.device("/TPU:0"):
            product = tf.matmul(a, a)
        each = strategy.run(tf.function(lambda x, y: tf.matmul(x, y)), args=(a, a))
        for one in each.values:
            np.testing.assert_array_equal(one, product)


def test_other_ways_to_the_same_tpu() -> None:
    with embexp.tpu_simulator(cores=2, hosts=2) as given:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect("grpc://10.0.0.2:8470")
        assert resolver.num_accelerators() == {"TPU": 4}
        assert resolver.get_tpu_system_metadata().num_hosts == 2
        for own in (tf.distribute.TPUStrategy(resolver), tf.distribute.TPUStrategy(), given):
            assert own.num_replicas_in_sync == 4
    assert tf.config.list_logical_devices("TPU") == []


class TestCoresOfAReplica:
    def test_two_replicas_of_two_cores(self) -> None:
        """An operation of each core, and a variable on each, as the strategy's page has them."""
        with embexp.tpu_simulator(cores=2, hosts=2):
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
            topology = tf.tpu.experimental.initialize_tpu_system(resolver)
            build = tf.tpu.experimental.DeviceAssignment.build
            assignment = build(topology, computation_shape=[1, 1, 1, 2], num_replicas=2)
            strategy = tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)
            assert (strategy.num_replicas_in_sync, strategy.extended.num_hosts) == (2, 2)
            assert [device[-5:] for device in strategy.extended._tpu_devices.flatten()] == [
                f"TPU:{core}" for core in range(4)
            ]
            with strategy.scope(), strategy.extended.experimental_logical_device(1):
                second = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)

            @tf.function
            def step(x: Any) -> Any:
                y = strategy.experimental_assign_to_logical_device(x + x, 1)
                with tf.distribute.get_replica_context().experimental_logical_device(1):
                    second.assign_add(y)
                return y + second

            # Both replicas add 2 to 1; the sum is 5.
            assert [float(one) for one in strategy.run(step, args=(tf.constant(1.0),)).values] == [7.0, 7.0]
            assert [float(one) for one in second.values] == [5.0, 5.0]

    def test_split_tensors_and_variables_of_a_mesh(self) -> None:
        with embexp.tpu_simulator(cores=2):
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
            topology = tf.tpu.experimental.initialize_tpu_system(resolver)
            assignment = tf.tpu.experimental.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2])
            strategy = tf.distribute.TPUStrategy(
                resolver, experimental_device_assignment=assignment, experimental_spmd_xla_partitioning=True
            )
            with strategy.scope():
                weight = tf.Variable([[1.0], [2.0]])

            @tf.function
            def step(x: Any) -> Any:
                x = strategy.experimental_split_to_logical_devices(x, [2, 1])
                y = strategy.experimental_replicate_to_logical_devices(tf.matmul(x, weight))
                weight.assign_sub(y)
                return y

            x = tf.constant([[1.0, 0.0], [1.0, 1.0]])
            np.testing.assert_array_equal(strategy.run(step, args=(x,)), [[1.0], [3.0]])
            np.testing.assert_array_equal(weight.numpy(), [[0.0], [-1.0]])
            np.testing.assert_array_equal(strategy.run(step, args=(x,)), [[0.0], [-1.0]])


def test_after_the_block(tmp_path: Path) -> None:
    """What was trained inside is saved and loaded outside; a new step is refused in a sentence."""
    api = tf.tpu.experimental.embedding
    with embexp.tpu_simulator(cores=1) as strategy, strategy.scope():
        table = api.TableConfig(3, 2, tf.ones_initializer(), name="items")
        embedding = api.TPUEmbedding({"seen": api.FeatureConfig(table, name="seen")}, api.SGD(0.5))
        embedding.build(2)
        model = new_model()
        model(X)
    weights = model.get_weights()
    path = tf.train.Checkpoint(embedding=embedding, model=model).save(tmp_path / "after")
    embedding._variables["items"]["parameters"].variables[0].assign(np.zeros((3, 2)))
    model.set_weights([0 * one for one in weights])
    tf.train.Checkpoint(embedding=embedding, model=model).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(embedding._variables["items"]["parameters"].variables[0].numpy(), np.ones((3, 2)))
    for found, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(found, expected)
    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(exported.serve(X), keras.models.load_model(tmp_path / "model.keras")(X), rtol=1e-6)
    with pytest.raises(RuntimeError, match="block has ended; run steps inside the block"):
        strategy.run(tf.function(lambda: tf.constant(1)))
