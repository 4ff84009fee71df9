"""Inputs that are in order: kinds mixed, weights, missing examples, missing gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.strategies.tpu_fixtures import goldens, world
from tests.strategies.tpu_fixtures.cases import Case, original

api = tf.tpu.experimental.embedding


def first_core(feature: str) -> np.ndarray:
    """The activations core 0 has to give."""
    return goldens.ACTIVATIONS[feature][: world.PER_CORE]


@original(("v2_valid_input", "test_pass_none_to_apply_gradients"))
def test_pass_none_to_apply_gradients(case: Case, strategy: Any) -> None:
    """None moves nothing; ones for `friends` move row 3 by 0.1 per core and rows 0–2, of a mean of three, by 0.1/3."""
    embedding = world.embedding(strategy)
    embedding.build(world.flat_shapes())
    batch = next(world.distributed(strategy, world.dataset("sparse")))

    def train() -> Any:
        activations = embedding.dequeue()
        embedding.apply_gradients((None, None, tf.ones_like(activations[2])))
        return activations

    @tf.function
    def trained(batch: Any) -> Any:
        embedding.enqueue(batch)
        return strategy.run(train)

    @tf.function
    def looked_up(batch: Any) -> Any:
        embedding.enqueue(batch, training=False)
        return strategy.run(embedding.dequeue)

    before = world.on_core(strategy, trained(batch))
    after = world.on_core(strategy, looked_up(batch))
    for index, (feature, step) in enumerate(zip(world.IDS, (0.0, 0.0, [[0.2], [0.2 / 3]]), strict=True)):
        np.testing.assert_allclose(before[index], first_core(feature), atol=1e-4)
        np.testing.assert_allclose(after[index], first_core(feature) - step, atol=1e-4)


@original(("v2_valid_input", "test_enqueue_sparse_and_ragged"))
def test_enqueue_sparse_and_ragged(case: Case, strategy: Any) -> None:
    """The original only runs it; here the activations have to be right too."""
    embedding = world.embedding(strategy)
    sparse = world.distributed(strategy, world.dataset("sparse"))
    ragged = world.distributed(strategy, world.dataset("ragged"))

    @tf.function
    def step() -> Any:
        rows, lists = next(sparse), next(ragged)
        embedding.enqueue((rows[0], lists[1], rows[2]), training=False)
        return strategy.run(embedding.dequeue)

    for feature, value in zip(world.IDS, step(), strict=True):
        np.testing.assert_allclose(world.of_all_cores(strategy, value), goldens.ACTIVATIONS[feature], atol=1e-4)


@original(("v2_valid_input", "test_enqueue_per_device"))
def test_enqueue_per_device(case: Case, strategy: Any) -> None:
    """Each core's share enqueued to its device by hand gives what one enqueue of all gives; twice over."""
    embedding = world.embedding(strategy)
    batches = world.distributed(strategy, world.dataset("sparse"))

    @tf.function
    def step() -> Any:
        def activations(value: Any) -> Any:
            return embedding.dequeue(), value

        batch = next(batches)
        embedding.enqueue(batch, training=False)
        together, _ = strategy.run(activations, args=(0.0,))

        def enqueue(context: Any) -> float:
            core = context.replica_id_in_sync_group
            share = tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[core], batch)
            embedding.enqueue(share, training=False, device=strategy.extended.worker_devices[core])
            return 0.0

        values = strategy.experimental_distribute_values_from_function(enqueue)
        by_hand, _ = strategy.run(activations, args=(values,))
        return together, by_hand

    for _ in range(2):
        for results in step():
            for feature, value in zip(world.IDS, results, strict=True):
                np.testing.assert_allclose(world.of_all_cores(strategy, value), goldens.ACTIVATIONS[feature], atol=1e-4)


@original(("v2_valid_input", "test_enqueue_with_weights"))
def test_enqueue_with_weights(case: Case, strategy: Any) -> None:
    """Weights of one half: halves a sum, leaves a mean, and None leaves the feature alone."""
    embedding = world.embedding(strategy)
    if case.variant == "sparse":
        embedding.build(world.flat_shapes())
    ids, weights = next(world.distributed(strategy, world.dataset(case.variant, weight=0.5)))

    @tf.function
    def looked_up(ids: Any, weights: Any) -> Any:
        embedding.enqueue(ids, weights=weights, training=False)
        return strategy.run(embedding.dequeue)

    plain = world.on_core(strategy, looked_up(ids, None))
    weighted = world.on_core(strategy, looked_up(ids, (weights[0], None, weights[2])))
    for index, (feature, factor) in enumerate(zip(world.IDS, (0.5, 1.0, 1.0), strict=True)):
        np.testing.assert_allclose(plain[index], first_core(feature), atol=1e-4)
        np.testing.assert_allclose(weighted[index], factor * first_core(feature), atol=1e-4)


@original(("v2_valid_input", "test_missing_feature"))
def test_missing_feature(case: Case, strategy: Any) -> None:
    """The last example has no id. The original only runs it; here that example has to be zero, the others right."""
    with strategy.scope():
        embedding = api.TPUEmbedding(api.FeatureConfig(world.tables()["video"], name="watched"), api.SGD(0.1))
    if case.variant == "sparse":
        ids = tf.SparseTensor([[0, 0], [1, 0], [1, 1], [2, 0], [2, 1]], [0, 0, 1, 0, 1], [4, 2])
    else:
        ids = tf.RaggedTensor.from_row_lengths([0, 0, 1, 0, 1], [1, 2, 2, 0])
    batches = world.distributed(strategy, world.batches(ids))

    @tf.function
    def step() -> Any:
        embedding.enqueue(next(batches), training=False)
        return strategy.run(embedding.dequeue)

    expected = goldens.ACTIVATIONS["watched"] * np.array([[1], [1], [1], [0]])
    np.testing.assert_allclose(world.of_all_cores(strategy, step()), expected, atol=1e-4)
