"""The random numbers of replicas: independent, at the configured rate, and a function of seed and draw alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.training import step as module
from embexp.training.step import replica_seeds

REPLICAS, RATE, SHAPE = 4, 0.25, (100, 50)


def number() -> Any:
    """Of the replica that is being traced."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def drawn(strategy: Any, make: Callable[[], Any], times: int = 2) -> tuple[np.ndarray, Any]:
    """What a layer makes of ones, [times, REPLICAS, *SHAPE], and its generator."""
    with strategy.scope():
        layer = make()
        layer.build(SHAPE)
    generator = layer.seed_generator

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> Any:
            with replica_seeds([generator.state.value], REPLICAS, number):
                return layer(tf.ones(SHAPE), training=True)

        return strategy.experimental_local_results(strategy.run(replica))

    return np.array([[part.numpy() for part in step()] for _ in range(times)]), generator


def dropout() -> Any:
    return keras.layers.Dropout(RATE, seed=7)


def mirrored() -> Any:
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(REPLICAS)])


def test_masks_of_replicas_are_independent() -> None:
    found, generator = drawn(mirrored(), dropout)
    again, _ = drawn(mirrored(), dropout)
    assert found.tobytes() == again.tobytes()
    masks = [mask == 0 for masks in found for mask in masks]
    count = masks[0].size
    for mask in masks:
        assert abs(mask.mean() - RATE) < 4 * np.sqrt(RATE * (1 - RATE) / count)
    both = RATE**2
    for one, other in combinations(masks, 2):
        assert abs((one & other).mean() - both) < 4 * np.sqrt(both * (1 - both) / count)
    assert [state.numpy().tolist() for state in generator.state.value.values] == [[7, 2]] * REPLICAS


def test_the_first_replica_draws_what_one_device_draws() -> None:
    noise = partial(keras.layers.GaussianNoise, 0.5, seed=11)
    found, _ = drawn(mirrored(), noise)
    alone = noise()
    for masks in found:
        np.testing.assert_array_equal(masks[0], alone(tf.ones(SHAPE), training=True))
        assert len({mask.tobytes() for mask in masks}) == REPLICAS


def test_cores_of_a_tpu_have_their_own() -> None:
    with embexp.tpu_simulator(cores=2, hosts=2) as strategy:
        found, generator = drawn(strategy, dropout)
        assert [state.numpy().tolist() for state in generator.state.value.values] == [[7, 2]] * REPLICAS
    assert found.tobytes() == drawn(mirrored(), dropout)[0].tobytes()


@pytest.mark.parametrize("states", [0, 1])
def test_one_replica_adds_nothing(states: int) -> None:
    state = tf.Variable([7, 0], dtype=tf.int64)
    with tf.Graph().as_default() as graph, replica_seeds([state] * states, 1 if states else REPLICAS, number):
        pass
    assert not graph.get_operations()


def test_seeds_of_any_number_of_replicas_differ() -> None:
    assert np.gcd(module._STRIDE, 2**31 - 2) == 1
