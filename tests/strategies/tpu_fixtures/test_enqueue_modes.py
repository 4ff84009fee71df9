"""Enqueueing inside strategy.run, which XLA calls outside compilation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.strategies.tpu_fixtures import goldens, world
from tests.strategies.tpu_fixtures.cases import Case, original


@pytest.fixture
def bridge(case: Case) -> Iterator[None]:
    """The MLIR bridge on, for the variant with it."""
    if case.variant == "mlir":
        tf.config.experimental.enable_mlir_bridge()
    yield
    if case.variant == "mlir":
        tf.config.experimental.disable_mlir_bridge()


def built(strategy: Any) -> tuple[Any, Any]:
    """An embedding built for the flat sparse batch, and its batches."""
    embedding = world.embedding(strategy)
    embedding.build(world.flat_shapes())
    return embedding, world.distributed(strategy, world.dataset("sparse"))


@original(("v2_enqueue_mode", "test_enqueue_with_outside_compilation"))
@pytest.mark.usefixtures("bridge")
def test_enqueue_with_outside_compilation(case: Case, strategy: Any) -> None:
    """Enqueueing in the replica gives what enqueueing on the host gives."""
    embedding, batches = built(strategy)
    batch = next(batches)

    def replica(ids: Any) -> Any:
        embedding.enqueue(ids, training=False)
        return embedding.dequeue()

    @tf.function
    def inside(batch: Any) -> Any:
        return strategy.run(replica, args=(batch,))

    @tf.function
    def outside(batch: Any) -> Any:
        embedding.enqueue(batch, training=False)
        return strategy.run(embedding.dequeue)

    for results in (inside(batch), outside(batch)):
        for feature, value in zip(world.IDS, results, strict=True):
            np.testing.assert_allclose(world.of_all_cores(strategy, value), goldens.ACTIVATIONS[feature], atol=1e-4)


@original(("v2_enqueue_mode", "test_enqueue_with_outside_compilation_in_control_flow"))
@pytest.mark.usefixtures("bridge")
def test_enqueue_with_outside_compilation_in_control_flow(case: Case, strategy: Any) -> None:
    """A tf.function in the replica that enqueues: refused."""
    embedding = world.embedding(strategy)
    batches = world.distributed(strategy, world.dataset("sparse"))

    @tf.function
    def enqueue(ids: Any) -> None:
        embedding.enqueue(ids, training=False)

    def replica(ids: Any) -> Any:
        enqueue(ids)
        return embedding.dequeue()

    with pytest.raises(RuntimeError, match="does not match graph which contains TPUReplicateContext"):
        tf.function(lambda: strategy.run(replica, args=(next(batches),)))()


@original(("v2_enqueue_mode", "test_enqueue_with_outside_compilation_non_direct_input"))
def test_enqueue_with_outside_compilation_non_direct_input(case: Case, strategy: Any) -> None:
    """Something computed in the replica can't be enqueued there."""
    embedding, batches = built(strategy)

    def replica(ids: Any) -> Any:
        embedding.enqueue(tuple(value * 2 for value in ids), training=False)
        return embedding.dequeue()

    with pytest.raises(ValueError, match="which does not have the `_tpu_input_identity` attr"):
        tf.function(lambda: strategy.run(replica, args=(next(batches),)))()


@original(("v2_enqueue_mode", "test_enqueue_with_outside_compilation_auto_mode"))
def test_enqueue_with_outside_compilation_auto_mode(case: Case, strategy: Any) -> None:
    """Whether it is a training step follows from whether gradients of the same name are applied.

    Gradients of one: rows 0 and 1 of `video` occur three times per core, so they move by 0.1·3·2; an example of two ids
    moves twice that. `friends` moves by 0.1·2 and, as a mean of three, by 0.1·2/3.
    """
    embedding, batches = built(strategy)
    batch = next(batches)

    def replica(ids: Any, name: str, train: bool) -> Any:
        embedding.enqueue(ids, name=name)
        activations = embedding.dequeue(name=name)
        if train:
            embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, activations), name=name)
        return activations

    @tf.function
    def trained(batch: Any) -> Any:
        return strategy.run(lambda ids: replica(ids, "call2", train=True), args=(batch,))

    @tf.function
    def looked_up(batch: Any) -> Any:
        return strategy.run(lambda ids: replica(ids, "call1", train=False), args=(batch,))

    before = world.on_core(strategy, trained(batch))
    after = world.on_core(strategy, looked_up(batch))
    steps = ([[0.6], [1.2]], [[1.2], [0.6]], [[0.2], [0.2 / 3]])
    for index, (feature, step) in enumerate(zip(world.IDS, steps, strict=True)):
        expected = goldens.ACTIVATIONS[feature][: world.PER_CORE]
        np.testing.assert_allclose(before[index], expected, atol=1e-4)
        np.testing.assert_allclose(after[index], expected - step, atol=1e-4)
