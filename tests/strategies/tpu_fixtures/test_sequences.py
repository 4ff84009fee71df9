"""Sequence features: padded rows, truncation by shape, gradients of padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.strategies.tpu_fixtures import world
from tests.strategies.tpu_fixtures.cases import Case, original

LENGTHS = (2, 2, 3)


@original(("v2_correctness_sequence_feature", "test_sequence_embeddings"))
def test_sequence_embeddings(case: Case, strategy: Any) -> None:
    """Gradients of one at every place, padding too: six looked-up places move a row of `video`, two one of `user`.

    On core 0 `watched` is 0 -, 0 1; `favorited` is 0 1, 1 -; `friends` is 3 - -, 0 1 2 (- is padding, which is zero
    before and after). The steps are 0.1·3·2 = 0.6 and 0.1·1·2 = 0.2.
    """
    embedding = world.embedding(strategy, lengths=LENGTHS)
    embedding.build(world.PER_CORE)
    batch = next(world.distributed(strategy, world.dataset(case.variant)))

    def train() -> Any:
        activations = embedding.dequeue()
        embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, activations))
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

    video, user, zero = world.VIDEO, world.USER, np.zeros(4)
    expected = (
        np.array([[video[0], zero], [video[0], video[1]]]),
        np.array([[video[0], video[1]], [video[1], zero]]),
        np.array([[user[3], zero[:2], zero[:2]], [user[0], user[1], user[2]]]),
    )
    real = (np.array([[1, 0], [1, 1]]), np.array([[1, 1], [1, 0]]), np.array([[1, 0, 0], [1, 1, 1]]))
    for index, step in enumerate((0.6, 0.6, 0.2)):
        np.testing.assert_allclose(before[index], expected[index], atol=1e-4)
        np.testing.assert_allclose(after[index], expected[index] - step * real[index][..., None], atol=1e-4)


def _forward_shapes(strategy: Any, embedding: Any, kind: str) -> list[tuple[int, ...]]:
    batch = world.distributed(strategy, world.dataset(kind))

    @tf.function
    def step() -> Any:
        embedding.enqueue(next(batch), training=False)
        return strategy.run(embedding.dequeue)

    return [value.shape for value in world.on_core(strategy, step())]


@original(("v2_sequence_feature", "test_sequence_feature"))
def test_sequence_feature(case: Case, strategy: Any) -> None:
    """max_sequence_length 3 and nothing else said: [2, 3, dim]."""
    embedding = world.embedding(strategy, lengths=(3, 3, 3))
    assert _forward_shapes(strategy, embedding, case.variant) == [(2, 3, 4), (2, 3, 4), (2, 3, 2)]


@original(("v2_sequence_feature", "test_sequence_feature_with_build"))
def test_sequence_feature_with_build(case: Case, strategy: Any) -> None:
    """`build` may be given the input's shape, or that with the length in it: the same comes out."""
    length = [3] if case.variant == "with_length" else []
    embedding = world.embedding(strategy, lengths=(3, 3, 3))
    embedding.build([tf.TensorShape([world.PER_CORE, *length, width]) for width in world.WIDTH.values()])
    assert _forward_shapes(strategy, embedding, "sparse") == [(2, 3, 4), (2, 3, 4), (2, 3, 2)]
