"""Shapes: which of output_shape, build and input counts, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.strategies.tpu_fixtures import goldens, world
from tests.strategies.tpu_fixtures.cases import Case, original


@original(("v2_hd_valid_input", "test_enqueue_dense_sparse_ragged"))
def test_enqueue_dense_sparse_ragged(case: Case, strategy: Any) -> None:
    """Three kinds in one enqueue. The original only runs it.

    The ragged feature brings two rows per core where its shape has eight places, so they are sequences of four.
    """
    embedding = world.embedding(strategy)
    sources = [world.distributed(strategy, world.dataset(kind, True)) for kind in ("dense", "sparse", "ragged")]
    embedding.build([tf.TensorShape([world.PER_CORE, world.BATCH, width]) for width in (1, 2, 3)])

    @tf.function
    def step() -> Any:
        batches = [next(source) for source in sources]
        embedding.enqueue(tuple(batch[index] for index, batch in enumerate(batches)), training=False)
        return strategy.run(embedding.dequeue)

    watched, favorited, friends = (world.of_all_cores(strategy, value) for value in step())
    ids = np.reshape(([0, 0, 1, 0, 1, 1] * 4)[:16], (4, 4))
    np.testing.assert_allclose(watched, world.VIDEO[ids], atol=1e-4)
    np.testing.assert_allclose(favorited, np.stack([goldens.ACTIVATIONS["favorited"]] * 4), atol=1e-4)
    user, none = world.USER, np.zeros(2)
    np.testing.assert_allclose(friends, [[user[3], none, none, none], [user[0], user[1], user[2], none]] * 2, atol=1e-4)


@original(("v2_hd_valid_input", "test_different_input_shapes"))
def test_different_input_shapes(case: Case, strategy: Any) -> None:
    """Shapes read off the inputs: (1, 3) of a dense [1, 3, 1], (2, 4) of a sparse [2, 4, width]."""
    embedding = world.embedding(strategy)
    sparse = world.distributed(strategy, world.dataset("sparse", high_dimensional=True))
    zeros = world.batches(tf.zeros((1, 3, 1), tf.int32), size=world.CORES)
    dense = world.distributed(strategy, zeros)

    @tf.function
    def step() -> Any:
        embedding.enqueue((next(dense), next(sparse)[1], next(sparse)[2]), training=False)
        return strategy.run(embedding.dequeue)

    watched, favorited, friends = world.on_core(strategy, step())
    assert embedding._output_shapes == [tf.TensorShape(shape) for shape in ((1, 3), (2, 4), (2, 4))]
    np.testing.assert_allclose(watched, np.tile(world.VIDEO[0], (1, 3, 1)), atol=1e-4)
    np.testing.assert_allclose(favorited, np.stack([goldens.ACTIVATIONS["favorited"]] * 2), atol=1e-4)
    np.testing.assert_allclose(friends, np.stack([goldens.ACTIVATIONS["friends"]] * 2), atol=1e-4)


@original(("v2_hd_valid_input", "test_output_shapes_priority_over_feature_config_and_build"))
def test_output_shapes_priority_over_feature_config_and_build(case: Case, strategy: Any) -> None:
    """The feature's output_shape stays, where build gives a shape with gaps that does not contradict it."""
    embedding = world.embedding(strategy, output_shape=(2, 4))
    embedding.build([tf.TensorShape((2, None, None))] * 3)
    assert embedding._output_shapes == [tf.TensorShape((2, 4))] * 3


@original(("v2_hd_invalid_input", "test_build_incorrect_output_shapes"))
def test_build_incorrect_output_shapes(case: Case, strategy: Any) -> None:
    """(2, 4) in the feature, (1, 1) by build."""
    embedding = world.embedding(strategy, output_shape=(2, 4))
    with pytest.raises(ValueError, match="Inconsistent shape founded for input feature"):
        embedding.build([tf.TensorShape([1, 1, 1])] * 3)


@original(("v2_hd_invalid_input", "test_enqueue_incorrect_shape_feature"))
def test_enqueue_incorrect_shape_feature(case: Case, strategy: Any) -> None:
    """(1, 1) in feature and build, (2, 4) enqueued."""
    embedding = world.embedding(strategy, output_shape=(1, 1))
    batches = world.distributed(strategy, world.dataset("sparse", high_dimensional=True))
    embedding.build([tf.TensorShape([1, 1, 1])] * 3)

    @tf.function
    def step() -> Any:
        embedding.enqueue(next(batches), training=False)
        return strategy.run(embedding.dequeue)

    with pytest.raises(ValueError, match="Inconsistent shape founded for input feature"):
        step()


@original(("v2_hd_invalid_input", "test_not_fully_defined_output_shapes_in_feature_config"))
def test_not_fully_defined_output_shapes_in_feature_config(case: Case, strategy: Any) -> None:
    """An output shape of unknown rank."""
    embedding = world.embedding(strategy, output_shape=tf.TensorShape(None))
    with pytest.raises(ValueError, match=r"Input Feature .* is not fully defined"):
        embedding.build()


@original(("v2_hd_invalid_input", "test_not_fully_defined_output_shapes_for_build"))
def test_not_fully_defined_output_shapes_for_build(case: Case, strategy: Any) -> None:
    """A known rank with unknown dimensions."""
    embedding = world.embedding(strategy)
    with pytest.raises(ValueError, match=r"Input Feature .* is not fully defined"):
        embedding.build([tf.TensorShape([1, None, None])] * 3)
