"""The operations of a TPU, as TensorFlow itself traces them."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import embexp
from embexp.strategies.simulation import compilation

api = tf.tpu.experimental.embedding


def traced(strategy: Any) -> tuple[Any, Any]:
    with strategy.scope():
        table = api.TableConfig(8, 3, combiner="sum", name="items")
        embedding = api.TPUEmbedding({"seen": api.FeatureConfig(table, name="seen")}, api.Adagrad(0.5))
    embedding.build(4)

    @tf.function
    def train(ids: Any, steps: Any) -> None:
        def replica() -> None:
            with tf.GradientTape() as tape:
                found = embedding.dequeue()
                tape.watch(found)
                loss = tf.reduce_sum(found["seen"] ** 2)
            embedding.apply_gradients(tape.gradient(loss, found))

        for _ in tf.range(steps):
            given = strategy.experimental_distribute_values_from_function(lambda _: ids)
            embedding.enqueue({"seen": given}, training=True)
            strategy.run(replica)

    graph = train.get_concrete_function(tf.TensorSpec([4], tf.int64), tf.TensorSpec([], tf.int32)).graph
    return embedding, graph


def test_unserved_operations_stand_in_the_graph() -> None:
    with embexp.tpu_simulator(cores=2, serve=False) as strategy:
        embedding, graph = traced(strategy)
    found = compilation.operations(graph)
    types = [one.type for one in found]
    assert types.count("EnqueueTPUEmbeddingArbitraryTensorBatch") == 2
    assert types.count("RecvTPUEmbeddingActivations") == types.count("SendTPUEmbeddingGradients") == 1
    assert "TPUReplicateMetadata" in types
    received = next(one for one in found if one.type == "RecvTPUEmbeddingActivations")
    assert received.outputs == ("float32[4,3]",)
    assert "body" in received.function
    assert str(received) == "RecvTPUEmbeddingActivations() -> (float32[4,3])"
    enqueued = next(one for one in found if one.type.startswith("Enqueue"))
    assert "int64[4]" in enqueued.inputs
    text = compilation.configuration(embedding)
    assert 'name: "items"' in text
    assert "adagrad" in text
    assert "num_tensor_cores: 2" in text


def test_served_operations_do_not() -> None:
    with embexp.tpu_simulator(cores=2) as strategy:
        _, graph = traced(strategy)
    assert not compilation.operations(graph)


def test_no_configuration_before_it_is_built() -> None:
    with pytest.raises(ValueError, match="build it first"):
        compilation.configuration(object())
