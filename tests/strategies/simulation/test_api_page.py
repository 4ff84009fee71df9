"""The script on TensorFlow's own page about `TPUEmbedding`, except for the strategy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import embexp
from tests.strategies.simulation.reference import RULES, Table

VOCABULARY, DIM, BATCH, STEPS = 16, 4, 3, 20
START = np.random.default_rng(0).standard_normal((2, VOCABULARY, DIM)).astype(np.float32)


def dataset_of(replicas: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, (3, STEPS * replicas, BATCH, 1))


def run(cores: int, hosts: int = 1) -> tuple[dict[str, np.ndarray], Any]:
    ids = dataset_of(cores * hosts)

    def dataset_fn(context: Any) -> Any:
        assert context.num_input_pipelines == hosts
        mine = ids.reshape(3, STEPS, hosts, cores, BATCH, 1)[:, :, context.input_pipeline_id]
        one, two, three = mine.reshape(3, STEPS * cores, BATCH, 1)
        features = {"feature_one": one, "feature_two": two, "feature_three": three}
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread keeps an iterator over .repeat() from ending, for seconds
        dataset = tf.data.Dataset.from_tensor_slices((features, two.astype(np.float32))).repeat()
        return dataset.with_options(options)

    with embexp.tpu_simulator(cores=cores, hosts=hosts) as strategy:
        table_config_one = tf.tpu.experimental.embedding.TableConfig(
            vocabulary_size=VOCABULARY, dim=DIM, initializer=_rows_of(START[0]), name="one"
        )
        table_config_two = tf.tpu.experimental.embedding.TableConfig(
            vocabulary_size=VOCABULARY, dim=DIM, initializer=_rows_of(START[1]), name="two"
        )
        feature_config = {
            "feature_one": tf.tpu.experimental.embedding.FeatureConfig(table=table_config_one),
            "feature_two": tf.tpu.experimental.embedding.FeatureConfig(table=table_config_one),
            "feature_three": tf.tpu.experimental.embedding.FeatureConfig(table=table_config_two),
        }
        with strategy.scope():
            embedding = tf.tpu.experimental.embedding.TPUEmbedding(
                feature_config=feature_config, optimizer=tf.tpu.experimental.embedding.SGD(0.1)
            )
            model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
            optimizer = keras.optimizers.Adam(0.01)
            losses = keras.metrics.Mean()
        distributed_dataset = strategy.distribute_datasets_from_function(
            dataset_fn=dataset_fn, options=tf.distribute.InputOptions(experimental_fetch_to_device=False)
        )
        dataset_iterator = iter(distributed_dataset)

        @tf.function
        def training_step(dataset_iterator: Any, num_steps: Any) -> None:
            def tpu_step(tpu_features: Any) -> None:
                with tf.GradientTape(persistent=True) as tape:
                    activations = embedding.dequeue()
                    tape.watch(activations)
                    model_output = model(tf.concat([tf.stop_gradient(a) for a in activations.values()], -1))
                    model_loss = tf.reduce_mean((model_output - tpu_features / VOCABULARY) ** 2)
                    loss = sum(tf.reduce_sum(a * a) for a in activations.values()) / strategy.num_replicas_in_sync
                embedding_gradients = tape.gradient(loss, activations)
                embedding.apply_gradients(embedding_gradients)
                weights = model.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(model_loss, weights), weights, strict=True))
                losses.update_state(model_loss)

            for _ in tf.range(num_steps):
                embedding_features, tpu_features = next(dataset_iterator)
                embedding.enqueue(embedding_features, training=True)
                strategy.run(tpu_step, args=(tpu_features,))

        @tf.function
        def evaluation_step(dataset_iterator: Any, num_steps: Any) -> Any:
            def tpu_step(tpu_features: Any) -> Any:
                activations = embedding.dequeue()
                return model(tf.concat(list(activations.values()), -1)), tpu_features

            results = (tf.zeros([BATCH, 1]), tf.zeros([BATCH, 1]))
            for _ in tf.range(num_steps):
                embedding_features, tpu_features = next(dataset_iterator)
                embedding.enqueue(embedding_features, training=False)
                per_replica = strategy.run(tpu_step, args=(tpu_features,))
                results = tf.nest.map_structure(lambda one: strategy.experimental_local_results(one)[-1], per_replica)
            return results

        training_step(dataset_iterator, tf.constant(STEPS))
        first = losses.result().numpy()
        rows = {
            name: np.concatenate([shard.numpy() for shard in embedding._variables[name]["parameters"].variables])
            for name in ("one", "two")
        }
        output, _ = evaluation_step(dataset_iterator, tf.constant(STEPS))
        for name in rows:  # evaluation moves no row
            after = np.concatenate([shard.numpy() for shard in embedding._variables[name]["parameters"].variables])
            np.testing.assert_array_equal(after, rows[name])
        losses.reset_state()
        for _ in range(5):
            training_step(dataset_iterator, tf.constant(STEPS))
        assert losses.result().numpy() < first
        assert output.shape == (BATCH, 1)
        for variable in model.variables:  # replicas agree
            copies = [copy.numpy() for copy in variable.value.values]
            for copy in copies:
                np.testing.assert_array_equal(copy, copies[0])
        return rows, ids


def _rows_of(start: np.ndarray) -> Any:
    def rows(shape: Any, dtype: Any = tf.float32, shard_info: Any = None) -> Any:
        first, count = (0, shape[0]) if shard_info is None else (shard_info.offset[0], shard_info.shape[0])
        return tf.constant(start[first : first + count], dtype)

    return rows


def check(cores: int, hosts: int = 1) -> None:
    rows, ids = run(cores, hosts)
    replicas = cores * hosts
    one, two = Table(START[0], RULES["SGD"]), Table(START[1], RULES["SGD"])
    for step in ids.reshape(3, STEPS, replicas * BATCH).swapaxes(0, 1):
        for table, batch in ((one, step[0]), (one, step[1]), (two, step[2])):
            vectors = [[(int(number), 1.0)] for number in batch]
            table.add(vectors, "mean", 2 * table.look_up(vectors, "mean") / replicas)
        one.step()
        two.step()
    for name, table in (("one", one), ("two", two)):
        assert (np.abs(rows[name] - table.rows) <= 2e-6 * table.path).all()
        assert (rows[name] != START[0 if name == "one" else 1]).any()


def test_as_the_page_has_it() -> None:
    check(cores=2)


def test_as_the_page_has_it_on_two_hosts() -> None:
    check(cores=2, hosts=2)
