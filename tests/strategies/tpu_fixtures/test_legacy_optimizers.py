"""TPUEmbeddingV0 trained by Keras' legacy optimizers, which create its slots: the v1_correctness cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.keras.optimizer_v2 import adagrad, adam, ftrl, gradient_descent

from tests.strategies.tpu_fixtures import goldens, world
from tests.strategies.tpu_fixtures.cases import Case, original
from tests.thoroughness import thorough

api = tf.tpu.experimental.embedding
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
LEGACY = {"sgd": gradient_descent.SGD, "adagrad": adagrad.Adagrad, "adam": adam.Adam, "ftrl": ftrl.Ftrl}
ALWAYS = {
    "sgd-forward-ragged-flat",
    "sgd-training-sparse-high_dimensional",
    "adagrad-training-sparse-flat",
    "adam-training-ragged-flat",
    "ftrl-training-ragged-high_dimensional",
}
SLOTS = {"accumulators": "accumulator", "linears": "linear", "momenta": "m", "velocities": "v"}


def optimizers(name: str) -> tuple[Any, Any]:
    """A legacy optimizer, and the embedding's, which has the first create its slots."""
    legacy = LEGACY[name](world.RATE)

    def create(table: Any, names: list[str], initializers: list[Any]) -> dict[str, Any]:
        pairs = zip(names, initializers, strict=True)
        return {slot: legacy.add_slot(table, SLOTS[slot], initial) for slot, initial in pairs}

    keys = {} if name == "sgd" else {"slot_variable_creation_fn": create}
    made = {"sgd": api.SGD, "adagrad": api.Adagrad, "adam": api.Adam, "ftrl": api.FTRL}[name]
    return legacy, made(world.RATE, **keys)


def after_one_step(name: str, rows: np.ndarray, gradient: np.ndarray) -> dict[str, np.ndarray]:
    """As for the TPU's optimizers, but for Adam, which here corrects the bias of its moments."""
    expected = goldens.after_one_step(name, rows, gradient)
    if name == "adam":
        momenta, velocities = expected["momenta"], expected["velocities"]
        rate = world.RATE * np.sqrt(1 - 0.999) / (1 - 0.9)
        expected["parameters"] = rows - rate * momenta / (np.sqrt(velocities) + 1e-7)
    return expected


@original(("v1_correctness", "test_embedding"))
def test_embedding(case: Case, strategy: Any) -> None:
    """Loss, activations, rows and slots; a gradient with respect to the tables, which plain operations look up.

    The original feeds its high-dimensional 'ragged' cases with sparse tensors, and so does this.
    """
    if case.variant not in ALWAYS and not thorough():
        pytest.skip("one case of each optimizer, kind of input and rank in every run: --hypothesis-profile=thorough")
    name, way, kind, shape = case.variant.split("-")
    high_dimensional = shape == "high_dimensional"
    with strategy.scope():
        optimizer, own = optimizers(name)
        embedding = api.TPUEmbeddingV0(world.features(), own)
    data = world.dataset("sparse" if high_dimensional else kind, high_dimensional)
    batch = world.distributed(strategy, data)

    def replica(ids: Any) -> Any:
        with tf.GradientTape() as tape:
            tables = list(embedding.embedding_tables.values())
            tape.watch(tables)
            activations = embedding(ids)
            loss = sum(tf.reduce_mean(tf.reduce_sum(value**2, -1)) for value in activations)
            share = loss / strategy.num_replicas_in_sync
        if way == "training":
            optimizer.apply_gradients(zip(tape.gradient(share, tables), tables, strict=True))
        return [loss[tf.newaxis], *activations]

    @tf.function
    def step() -> Any:
        return strategy.run(replica, args=(next(batch),))

    loss, *activations = (world.of_all_cores(strategy, value) for value in step())
    np.testing.assert_allclose(loss, [goldens.LOSS] * world.CORES, rtol=1e-6)
    for feature, value in zip(world.IDS, activations, strict=True):
        flat = goldens.ACTIVATIONS[feature]
        np.testing.assert_allclose(value, np.stack([flat] * world.BATCH) if high_dimensional else flat, **TOLERANCE)
    for table, rows in (("video", world.VIDEO), ("user", world.USER)):
        gradient = goldens.table_gradient(table) * (way == "training")
        found = {slot: variable.values[0].numpy() for slot, variable in embedding._variables[table].items()}
        expected = after_one_step(name, rows, gradient)
        assert found.keys() == expected.keys()
        # The originals compare FTRL's rows only where there is a gradient; elsewhere the legacy optimizer writes zeros.
        compared = (gradient != 0).any(1) if name == "ftrl" and way == "training" else np.full(len(rows), True)
        for slot, values in expected.items():
            np.testing.assert_allclose(found[slot][compared], values[compared], err_msg=f"{table}/{slot}", **TOLERANCE)
