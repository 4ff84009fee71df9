"""Activations, losses, rows and slots of one step: the v2_correctness cases but for sequences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.strategies.tpu_fixtures import goldens, world
from tests.strategies.tpu_fixtures.cases import OPTIMIZERS, Case, original
from tests.thoroughness import chosen, thorough

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


@dataclass(frozen=True)
class Setting:
    kind: str
    high_dimensional: bool
    training: bool

    @property
    def file(self) -> str:
        """Which original file has it."""
        way = "training" if self.training else "forward"
        return f"v2_correctness_{'hd_' if self.high_dimensional else ''}{self.kind}_{way}"

    def shapes(self) -> list[tf.TensorShape] | None:
        """What the original builds with: the sparse shape, or one without the ragged dimension; None when flat."""
        if not self.high_dimensional:
            return None
        widths = world.WIDTH.values() if self.kind == "sparse" else [None] * 3
        return [tf.TensorShape([world.PER_CORE, world.BATCH, width]) for width in widths]

    def expected(self, feature: str) -> np.ndarray:
        """[4, dim], or [4, 4, dim] where every example holds the flat batch."""
        flat = goldens.ACTIVATIONS[feature]
        return np.stack([flat] * world.BATCH) if self.high_dimensional else flat


SETTINGS = {
    setting.file: setting
    for setting in (Setting(*parts) for parts in product(("sparse", "ragged"), (False, True), (False, True)))
}


def one_step(strategy: Any, embedding: Any, batch: Any, training: bool) -> Any:
    """Loss and activations per core of one step whose loss is the mean squared length."""

    def loss_of(activations: Any) -> tf.Tensor:
        return sum(tf.reduce_mean(tf.reduce_sum(value**2, -1)) for value in activations)

    def replica() -> Any:
        if not training:
            activations = embedding.dequeue()
            return [loss_of(activations)[tf.newaxis], *activations]
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            loss = loss_of(activations)
            share = loss / strategy.num_replicas_in_sync
        embedding.apply_gradients(tape.gradient(share, activations))
        return [loss[tf.newaxis], *activations]

    @tf.function
    def step() -> Any:
        embedding.enqueue(next(batch), training=training)
        return strategy.run(replica)

    return [world.of_all_cores(strategy, value) for value in step()]


@original(*((file, "test_embedding") for file in SETTINGS))
def test_embedding(case: Case, strategy: Any) -> None:
    """The original feeds its high-dimensional 'ragged' cases with sparse tensors, and so does this."""
    setting, optimizer = SETTINGS[case.file], case.variant
    alike = optimizer != ("adagrad" if setting.training else "sgd")  # without training, an optimizer only has slots
    if alike and setting != Setting("sparse", high_dimensional=False, training=True) and not thorough():
        pytest.skip("in every run, one optimizer in each setting and all in one: see `make test-thorough`")
    embedding = world.embedding(strategy, optimizer)
    kind = "sparse" if setting.high_dimensional else setting.kind
    if (shapes := setting.shapes()) is not None:
        if setting.kind == "sparse":
            embedding.build(shapes)
        else:
            embedding.build([tf.TensorShape(shape) for shape in shapes])
    batch = world.distributed(strategy, world.dataset(kind, setting.high_dimensional))

    loss, *activations = one_step(strategy, embedding, batch, setting.training)

    np.testing.assert_allclose(loss, [goldens.LOSS] * world.CORES, rtol=1e-6)
    for feature, value in zip(world.IDS, activations, strict=True):
        np.testing.assert_allclose(value, setting.expected(feature), **TOLERANCE)
    check_tables(embedding, optimizer, setting.training)


def check_tables(embedding: Any, optimizer: str, trained: bool) -> None:
    """Rows and slots of both tables are those after one step, or those before it."""
    for table, rows in (("video", world.VIDEO), ("user", world.USER)):
        gradient = goldens.table_gradient(table) * trained
        expected = goldens.after_one_step(optimizer, rows, gradient)
        found = world.slots(embedding, table)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, err_msg=f"{table}/{name}", **TOLERANCE)
        untouched = [row for row in range(len(rows)) if not trained or row not in goldens.GRADIENTS[table]]
        np.testing.assert_array_equal(found["parameters"][untouched], rows[untouched].astype(np.float32))


@pytest.mark.parametrize("optimizer", chosen(OPTIMIZERS, ["adam"]))
def test_ragged_rows_of_high_dimension(optimizer: str, strategy: Any) -> None:
    """What the original's high-dimensional ragged case names and does not do: ragged rows with an output_shape."""
    shape = (world.PER_CORE, world.BATCH)
    embedding = world.embedding(strategy, optimizer, output_shape=shape)
    rows = [world.ragged(feature, high_dimensional=True) for feature in world.IDS]
    data = world.batches(tuple(rows), size=world.BATCH * world.BATCH)

    loss, *activations = one_step(strategy, embedding, world.distributed(strategy, data), training=True)

    np.testing.assert_allclose(loss, [goldens.LOSS] * world.CORES, rtol=1e-6)
    for feature, value in zip(world.IDS, activations, strict=True):
        np.testing.assert_allclose(value, np.stack([goldens.ACTIVATIONS[feature]] * world.BATCH), **TOLERANCE)
    check_tables(embedding, optimizer, trained=True)


@original(("v2_correctness_dense_lookup", "test_dense_lookup"))
def test_dense_lookup(case: Case, strategy: Any) -> None:
    """Rows of the ids themselves: ids 0 0 1 0, 0 1 1 0 and 3 0 1 2, or the sixteen first of the repeated ones."""
    high_dimensional = case.variant == "high_dimensional"
    embedding = world.embedding(strategy)
    batch = world.distributed(strategy, world.dataset("dense", high_dimensional))

    @tf.function
    def step() -> Any:
        embedding.enqueue(next(batch), training=False)
        return strategy.run(embedding.dequeue)

    ids = {"watched": [0, 0, 1, 0, 1, 1], "favorited": [0, 1, 1, 0, 0, 1], "friends": [3, 0, 1, 2, 3, 0, 1, 2]}
    for (feature, row), value in zip(ids.items(), step(), strict=True):
        table = {"video": world.VIDEO, "user": world.USER}[world.TABLE_OF[feature]]
        expected = table[np.reshape((row * 4)[:16], (4, 4))] if high_dimensional else table[row[:4]]
        np.testing.assert_allclose(world.of_all_cores(strategy, value), expected, **TOLERANCE)
