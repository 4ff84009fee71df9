"""Making and configuring: once per TPU, the same every time, and nothing of it on a processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.strategies.tpu_fixtures import goldens, world
from tests.strategies.tpu_fixtures.cases import Case, original

api = tf.tpu.experimental.embedding


@original(("v2_initialization", "test_enqueue_dequeue_apply_gradients_on_cpu"))
def test_enqueue_dequeue_apply_gradients_on_cpu(case: Case) -> None:
    """No strategy: none of the three works."""
    embedding = api.TPUEmbedding(world.features(), api.SGD(0.1))
    words = "is not valid when TPUEmbedding object is not created under a TPUStrategy"
    for call in (
        embedding.dequeue,
        lambda: embedding.enqueue({"watched": world.sparse("watched")}),
        lambda: embedding.apply_gradients(None),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


@original(("v2_initialization", "test_multiple_creation"))
def test_multiple_creation(case: Case, strategy: Any) -> None:
    """Two may be made, one may be built."""
    feature = api.FeatureConfig(world.tables()["user"], name="friends", max_sequence_length=2)
    with strategy.scope():
        first, second = (api.TPUEmbedding(feature, api.SGD(0.1)) for _ in range(2))
    first.build(64)
    with pytest.raises(RuntimeError, match=r"TPU is already initialized for embeddings\."):
        second.build(64)


def configuration(strategy: Any, tables: list[Any], optimizer: Any) -> Any:
    """The TPUEmbeddingConfiguration of one feature per table, 128 examples per core."""
    features = [api.FeatureConfig(table, output_shape=[128]) for table in tables]
    with strategy.scope():
        return api.TPUEmbedding(features, optimizer)._create_config_proto()


def thirty_tables(optimizer_of: Callable[[int], Any]) -> list[Any]:
    """Tables of 100–999 rows, 1–127 wide, always the same; the originals draw them anew."""
    rng = np.random.default_rng(30)
    sizes = zip(rng.integers(100, 1000, 30), rng.integers(1, 128, 30), strict=True)
    return [
        api.TableConfig(
            int(rows),
            int(dim),
            initializer=tf.zeros_initializer(),
            optimizer=optimizer_of(int(dim)),
            name=f"table{index}",
        )
        for index, (rows, dim) in enumerate(sizes)
    ]


@original(
    ("v2_valid_input", "test_same_config_different_instantiations"),
    ("v2_initialization", "test_same_config_different_instantiations"),
)
def test_same_config_different_instantiations(case: Case, strategy: Any) -> None:
    """Thirty tables give the same configuration twice; in the second file the even widths have a callable rate."""

    def optimizer_of(dim: int) -> Any:
        if case.file == "v2_valid_input" or dim % 2:
            return None
        return api.Adagrad(learning_rate=lambda: tf.constant(1.0))

    first, second = (configuration(strategy, thirty_tables(optimizer_of), api.Adagrad(0.1)) for _ in range(2))
    assert first == second
    assert [table.name for table in first.table_descriptor] == [f"table{index}" for index in range(30)]


@original(("v2_initialization", "test_learning_rate_tag_order"))
def test_learning_rate_tag_order(case: Case, strategy: Any) -> None:
    """Thirty tables, each with a callable rate of its own: tags 0, 1, 2, … in the order of the tables."""
    tables = thirty_tables(lambda _: api.Adagrad(learning_rate=lambda: tf.constant(1.0)))
    made = configuration(strategy, tables, api.Adagrad(0.1))
    tags = [table.optimization_parameters.learning_rate.dynamic.tag for table in made.table_descriptor]
    assert tags == list(range(30))


@original(("v1_correctness", "test_enqueue_with_weights"))
def test_v1_with_weights(case: Case, strategy: Any) -> None:
    """TPUEmbeddingV0, called in the replica: weights of one half halve a sum and leave a mean."""
    with strategy.scope():
        embedding = api.TPUEmbeddingV0(world.features(), api.SGD(0.1))
    ids, weights = next(world.distributed(strategy, world.dataset(case.variant, weight=0.5)))

    @tf.function
    def looked_up(ids: Any, weights: Any) -> Any:
        return strategy.run(lambda ids, weights: embedding(ids, weights), args=(ids, weights))

    for factors, given in (((1.0, 1.0, 1.0), None), ((0.5, 1.0, 1.0), (weights[0], None, weights[2]))):
        results = looked_up(ids, given)
        for feature, factor, value in zip(world.IDS, factors, results, strict=True):
            expected = factor * goldens.ACTIVATIONS[feature]
            np.testing.assert_allclose(world.of_all_cores(strategy, value), expected, atol=1e-4)
