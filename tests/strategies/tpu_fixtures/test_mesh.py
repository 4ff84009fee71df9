"""A replica of two cores, and the beginning of a TPU program."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.strategies.tpu_fixtures.cases import Case, original

api = tf.tpu.experimental.embedding
STEPS, DIM, CORES = 10, 4, 2
FIRST_RATE, LAST_RATE = 1.0, 0.5


@original(("initialization", "test_tpu_initialization"))
def test_tpu_initialization(case: Case, strategy: Any) -> None:
    """A resolver of no name finds the TPU."""
    topology = tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver(""))
    assert (topology.num_tasks, topology.num_tpus_per_task) == (1, 2)


@original(("v2_mp_strategy", "test_spmd_training"))
def test_spmd_training(case: Case, strategy: Any) -> None:
    """Each core looks up its half of the only replica's batch; the rate falls from 1 to 0.5 in ten steps.

    The gradient of each element of both rows is 1, so rows are minus the sum of the rates so far.
    """
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("")
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    assignment = tf.tpu.experimental.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=1)
    mesh = tf.distribute.TPUStrategy(
        resolver, experimental_device_assignment=assignment, experimental_spmd_xla_partitioning=True
    )
    with mesh.scope():
        step = tf.Variable(0.0)
        rate = api.SGD(lambda: tf.maximum(LAST_RATE, FIRST_RATE + (LAST_RATE - FIRST_RATE) * step / STEPS))
        table = api.TableConfig(2, DIM, tf.zeros_initializer(), combiner="sum", name="table")
        embedding = api.TPUEmbedding({"feature": api.FeatureConfig(table, name="feature")}, rate)
    options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    whole = tf.data.Dataset.from_tensors({"feature": tf.constant([[0], [1]])}).repeat()
    each = [tf.data.Dataset.from_tensors({"feature": tf.constant([[core]])}).repeat() for core in range(CORES)]
    iterator = iter(mesh.distribute_datasets_from_function(lambda _: whole, options))
    iterators = list(map(iter, each))

    @tf.function(jit_compile=True)
    def train() -> Any:
        def replica() -> Any:
            with tf.GradientTape() as tape:
                activations = embedding.dequeue()
                tape.watch(activations)
                loss = tf.reduce_sum(activations["feature"])
            embedding.apply_gradients(tape.gradient(loss, activations))
            return activations["feature"]

        if case.variant == "whole":
            embedding.enqueue(next(iterator), training=True)
        else:
            for own, device in zip(iterators, mesh.extended._tpu_devices[0], strict=True):
                embedding.enqueue(next(own), device=device, training=True)
        return mesh.run(replica)

    moved = 0.0
    for number in range(STEPS):
        np.testing.assert_allclose(train(), np.full((CORES, DIM), -moved), rtol=1e-6)
        moved += FIRST_RATE + (LAST_RATE - FIRST_RATE) * number / STEPS
        step.assign_add(1.0)
