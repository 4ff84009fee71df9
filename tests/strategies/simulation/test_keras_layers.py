"""Keras models with a layer that looks rows up. Keras traces it outside of replicas first, to find out about shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp

api = tf.tpu.experimental.embedding
ROWS, DIM, BATCH, RATE, VALUE = 24, 3, 8, 0.5, 1.5
FEATURES = ("V1", "V2")


def embedding_of(strategy: Any, feature: str, replicas: int) -> Any:
    kind, build = (api.TPUEmbedding, [BATCH // replicas]) if feature == "V1" else (api.TPUEmbeddingV2, [])
    with strategy.scope():
        table = api.TableConfig(ROWS, DIM, tf.constant_initializer(VALUE), combiner="sum", name="items")
        config = {"seen": api.FeatureConfig(table, output_shape=[BATCH // replicas], name="seen")}
        embedding = kind(config, api.SGD(RATE))
    embedding.build(*build)
    return embedding


class LookUp(keras.layers.Layer):
    """Rows of ids [B]. A variable that nothing depends on gets the gradients, and passes them on to the rows."""

    def __init__(self, look_up: Callable[[Any], tuple[Any, Callable[[Any], None]]]) -> None:
        super().__init__()
        self.look_up = look_up

    def build(self, _: Any) -> None:
        self.trap = self.add_weight(shape=(1,), initializer="zeros", name="trap")

    def call(self, ids: Any) -> Any:
        @tf.custom_gradient
        def trapped(trap: Any) -> Any:
            found, apply = self.look_up(ids)

            def gradient(of_found: Any) -> Any:
                apply(of_found)
                return tf.zeros_like(trap)

            return found, gradient

        return trapped(tf.convert_to_tensor(self.trap))


def look_up_in(embedding: Any, feature: str) -> Callable[[Any], tuple[Any, Callable[[Any], None]]]:
    def first(ids: Any) -> Any:
        embedding.enqueue({"seen": ids}, training=True)
        return embedding.dequeue()["seen"], lambda found: embedding.apply_gradients({"seen": found})

    def second(ids: Any) -> Any:
        found, kept = embedding({"seen": ids})
        return found["seen"], lambda gradient: embedding.apply_gradients({"seen": gradient}, kept)

    return first if feature == "V1" else second


def rows(embedding: Any, feature: str) -> np.ndarray:
    """All rows, of which SparseCores have another order; all start with the same value."""
    if feature == "V1":
        return embedding._variables["items"]["parameters"].variables[0].numpy()
    parts = embedding.variables["items"]["parameters"].values
    return np.concatenate([part.numpy()[:, :DIM] for part in parts])


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_fit_builds_and_trains_a_model(feature: str, replicas: int) -> None:
    """The loss is the mean of squares, so each occurrence of a row moves it by 2 × value / (batch × width) × rate."""
    ids = np.array([0, 1, 1, 5, 7, 7, 7, 23])
    with embexp.tpu_simulator(cores=replicas, embedding_feature=feature) as strategy:
        embedding = embedding_of(strategy, feature, replicas)
        with strategy.scope():
            given = keras.Input([], BATCH // replicas, dtype="int32")
            model = keras.Model(given, LookUp(look_up_in(embedding, feature))(given))
            model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", jit_compile=False)
        assert model.output_shape == (BATCH // replicas, DIM)
        data = tf.data.Dataset.from_tensors((tf.constant(ids, tf.int32), tf.zeros([BATCH, DIM]))).unbatch()
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        batches = strategy.experimental_distribute_dataset(data.batch(BATCH, drop_remainder=True), options=options)
        model.fit(batches, epochs=1, steps_per_epoch=1, shuffle=False, verbose=0)
        moved = np.sort(rows(embedding, feature)[:, 0])[:5]
    counts = np.unique(ids, return_counts=True)[1]
    np.testing.assert_allclose(moved, np.sort(VALUE - RATE * counts * 2 * VALUE / (BATCH * DIM)), rtol=1e-6)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_lookup_outside_of_replicas_may_be_traced_but_not_run(feature: str) -> None:
    with embexp.tpu_simulator(cores=1, embedding_feature=feature) as strategy:
        look_up = look_up_in(embedding_of(strategy, feature, 1), feature)
        traced = tf.function(lambda: look_up(tf.range(BATCH))[0]).get_concrete_function()
        assert traced.structured_outputs.shape == (BATCH, DIM)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"only inside a function passed to"):
            traced()


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_layer_of_keras_rs_learns(feature: str, replicas: int) -> None:
    """The layer's loss is the sum of squares of its activations, and its rows go towards zero."""
    pytest.importorskip("keras_rs", reason="it is an extra: pip install embexp[keras]")
    from keras_rs.layers import DistributedEmbedding, FeatureConfig, TableConfig

    with embexp.tpu_simulator(cores=replicas, embedding_feature=feature) as strategy, strategy.scope():
        own = BATCH // replicas
        table = TableConfig(
            "items", ROWS, DIM, initializer=keras.initializers.Constant(VALUE), optimizer=keras.optimizers.SGD(RATE)
        )
        layer = DistributedEmbedding({"seen": FeatureConfig("seen", table, (BATCH, 1), (BATCH, DIM))})

        @tf.function
        def step(ids: Any) -> Any:
            def replica(ids: Any) -> Any:
                with tf.GradientTape() as tape:
                    found = layer({"seen": ids})["seen"]
                    loss = tf.reduce_sum(found**2)
                tape.gradient(loss, layer.trainable_variables)
                return loss

            return strategy.reduce("SUM", strategy.run(replica, args=(ids,)), axis=None)

        ids = strategy.experimental_distribute_values_from_function(
            lambda context: own * context.replica_id_in_sync_group + tf.range(own)[:, None]
        )
        losses = [float(step(ids)) for _ in range(2)]
    # Each row occurs once, and 1.5 - 0.5 * 2 * 1.5 is 0.
    np.testing.assert_allclose(losses, [BATCH * DIM * VALUE**2, 0.0], rtol=1e-6)
