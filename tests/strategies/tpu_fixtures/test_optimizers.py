"""Optimizers: rates that change, slots of the user's making, what is no optimizer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.strategies.tpu_fixtures import world
from tests.strategies.tpu_fixtures.cases import Case, original

api = tf.tpu.experimental.embedding


@original(("v2_optimizer", "test_unsupported_optimizer"))
def test_unsupported_optimizer(case: Case, strategy: Any) -> None:
    """The original passes the Estimator's AdagradParameters, which is gone; here it is one of Keras."""
    optimizer = tf.keras.optimizers.Adagrad(0.1)
    with strategy.scope(), pytest.raises(ValueError, match=r"is an unsupported optimizer class\."):
        api.TPUEmbedding(world.features(), optimizer)


@original(("v2_optimizer", "test_variable_learning_rate"))
def test_variable_learning_rate(case: Case, strategy: Any) -> None:
    """SGD whose rate falls from 1.0 by 0.05 a step; the gradient of row 0 is one, summed over the cores."""
    seen = [0.0, -1.0, -1.95, -2.85, -3.7, -4.5, -5.25, -5.95, -6.6, -7.2]  # row 0 before each of ten steps
    with strategy.scope():
        counter = tf.Variable(0.0)
        zeros = tf.constant_initializer(np.zeros((world.CORES, 4)))
        table = api.TableConfig(world.CORES, 4, initializer=zeros, combiner="sum", name="table")
        embedding = api.TPUEmbedding(
            {"feature": api.FeatureConfig(table, name="feature")},
            api.SGD(lambda: tf.maximum(0.5, 1.0 - 0.5 * counter / 10.0)),
        )
    data = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.from_tensors({"feature": tf.zeros((1, 1), tf.int32)}).repeat(),
        options=tf.distribute.InputOptions(experimental_fetch_to_device=False),
    )
    batch = iter(data)

    def replica() -> tf.Tensor:
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            loss = tf.reduce_sum(activations["feature"]) / world.CORES
        embedding.apply_gradients(tape.gradient(loss, activations))
        return activations["feature"]

    @tf.function
    def step() -> Any:
        embedding.enqueue(next(batch), training=True)
        return strategy.run(replica)

    for value in seen:
        rows = world.of_all_cores(strategy, step())
        counter.assign_add(1.0)
        np.testing.assert_allclose(rows, np.full((world.CORES, 4), value), atol=1e-4)


def _build_with_slots(strategy: Any, initial: Any) -> Any:
    """An embedding with Adagrad whose slots are made by hand; `initial(shape)` is their initial value."""

    def slots(table: Any, names: list[str], initializers: Any) -> dict[str, Any]:
        return {name: tf.Variable(initial(table.shape), name=f"{table.name}_{name}", trainable=False) for name in names}

    with strategy.scope():
        embedding = api.TPUEmbedding(world.features(), api.Adagrad(0.1, slot_variable_creation_fn=slots))
        embedding.build(world.PER_CORE)
    return embedding


@original(("v2_optimizer", "test_optimizer_with_slot_creation_fn"))
def test_optimizer_with_slot_creation_fn(case: Case, strategy: Any) -> None:
    """Accumulators are the zeros from the settings, not the optimizer's initial value."""
    embedding = _build_with_slots(
        strategy, lambda shape: partial(tf.zeros_initializer(), shape=shape, dtype=tf.float32)
    )
    for table, shape in (("video", (8, 4)), ("user", (16, 2))):
        accumulators = embedding._variables[table]["accumulators"].variables[0].numpy()
        np.testing.assert_array_equal(accumulators, np.zeros(shape))


@original(("v2_optimizer", "test_optimizer_with_slot_creation_fn_non_partial"))
def test_optimizer_with_slot_creation_fn_non_partial(case: Case, strategy: Any) -> None:
    """A finished tensor can't be made per shard."""
    with pytest.raises(ValueError, match="Unable to extract initializer function"):
        _build_with_slots(strategy, lambda shape: tf.zeros_initializer()(shape, tf.float32))
