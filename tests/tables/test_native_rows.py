"""Rows moved by the native library: the same bits as by TensorFlow's own operations, and nothing else touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from embexp.errors import VocabularyError
from embexp.specs.optimizers import FTRL, SGD, Adagrad, Adam
from embexp.specs.tables import Feature
from embexp.system import native
from embexp.tables import inputs, optimizers, row_updates
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.tables.variables import read_without_copy

built = pytest.mark.skipif(native.library("rows") is None, reason="the native library was not built: no C++ compiler")
RULES: dict[str, Any] = {
    "sgd": SGD(learning_rate=0.1),
    "adagrad": Adagrad(learning_rate=0.1),
    "adam": Adam(learning_rate=0.01),
}


def table_of(rule: Any, rows: int, dim: int, **settings: Any) -> EmbeddingTable:
    table = EmbeddingTable("item", rows, dim, slots=optimizers.slots_of(rule), **settings)
    table.write(0, np.random.default_rng(3).standard_normal((rows, dim)).astype(np.float32))
    return table


def trained(rule: Any, dim: int, ids: np.ndarray, gradients: np.ndarray, *, schedule: bool) -> list[np.ndarray]:
    """Bits of rows, slots and marks after some steps of two features that share a table."""
    table = table_of(rule, 300, dim)
    features = {"one": Feature(table="item"), "two": Feature(table="item")}
    counter = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"item": table}, features, {"item": rule}, step=counter, total_steps=10)

    @tf.function(reduce_retracing=True)
    def train(ids: Any, gradients: Any) -> None:
        for step in tf.range(tf.shape(ids)[0]):
            engine.enqueue({"one": ids[step], "two": ids[step, :3]}, training=True)
            found = engine.activations()
            mine = found["one"] * gradients[step]
            rates = {"item": 0.5 / (1.0 + tf.cast(step, tf.float32))} if schedule else None
            engine.apply_gradients({"one": mine, "two": found["two"]}, rates)

    train(tf.constant(ids), tf.constant(gradients))
    return [*(table.read(0, 300, slot).view(np.int32) for slot in (None, *table.slots)), table.touched.numpy()]


@built
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])  # each example traces a step
@given(
    dim=st.sampled_from([1, 4, 7, 8, 12, 32, 50]),
    count=st.sampled_from([4, 60, 700, 17_000]),
    seed=st.integers(0, 2**16),
    schedule=st.booleans(),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_steps_have_the_bits_of_tensorflows_operations(
    name: str, dim: int, count: int, seed: int, schedule: bool, dtype: type
) -> None:
    random = np.random.default_rng(seed)
    ids = random.integers(0, 300, (3, count)).astype(dtype)
    gradients = random.normal(0, 0.1, (3, count, dim)).astype(np.float32)
    assert row_updates.is_native(table_of(RULES[name], 300, dim), RULES[name])
    found = trained(RULES[name], dim, ids, gradients, schedule=schedule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda _: None)
        expected = trained(RULES[name], dim, ids, gradients, schedule=schedule)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@built
@pytest.mark.parametrize("name", RULES)
def test_what_was_read_before_a_step_stays_as_it_was(name: str) -> None:
    rule = RULES[name]
    table = table_of(rule, 40, 8)
    engine = RowEngine(
        {"item": table},
        {"item": Feature(table="item")},
        {"item": rule},
        step=tf.Variable(0, dtype=tf.int64),
        total_steps=1,
    )
    held = [read_without_copy(variable) for variable in (table.variable, *table.slots.values())]
    before = [each.numpy().copy() for each in held]
    engine.enqueue({"item": tf.constant([7, 7, 9])}, training=True)
    engine.apply_gradients({"item": engine.activations()["item"]})
    for one, other in zip(held, before, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)
    moved = np.flatnonzero((table.read(0, 40) != before[0]).any(1))
    assert moved.tolist() == [7, 9]


@built
@given(
    ids=st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9), max_size=200),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_distinct_ids_are_those_of_tensorflow(ids: list[int], dtype: type) -> None:
    for one, other in zip(
        row_updates.native_unique(tf.constant(ids, dtype)), tf.unique(tf.constant(ids, dtype)), strict=True
    ):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@built
@pytest.mark.parametrize("dim", [1, 7, 32])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gathered_rows_are_those_of_the_table(dim: int, dtype: type) -> None:
    table = table_of(RULES["sgd"], 300, dim)
    ids = np.random.default_rng(0).integers(0, 300, 2000).astype(dtype)
    found = row_updates.native_gather(table, "one", tf.constant(ids))
    np.testing.assert_array_equal(found.numpy(), table.read(0, 300)[ids])
    for outside in (-1, 300):
        message = f"feature 'one' looks up id {outside} in table 'item', whose ids are 0 to 299"
        with pytest.raises(VocabularyError, match=message), inputs.translated_errors():
            row_updates.native_gather(table, "one", tf.constant([3, outside], dtype))


@built
def test_ids_outside_of_the_table_are_refused() -> None:
    table = table_of(RULES["sgd"], 40, 8)
    for ids, positions in (([40], [0]), ([-1], [0]), ([3], [1]), ([3], [-1])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="is outside of the"):
            native.library("rows").embexp_move_rows(
                variables=[table.variable.handle],
                ids=tf.constant(ids),
                positions=tf.constant(positions),
                gradients=[tf.ones([1, 8])],
                rate=tf.constant(1.0),
                touched=[],
                rule="sgd",
            )


@pytest.mark.parametrize(
    "rule",
    [
        SGD(clipvalue=1.0),
        SGD(weight_decay_factor=0.1),
        SGD(clip_weight_min=-1.0),
        Adagrad(clip_weight_max=1.0),
        Adam(lazy_adam=False),
        Adam(sum_inside_sqrt=False),
        FTRL(),
    ],
)
def test_other_rules_are_left_to_tensorflow(rule: Any) -> None:
    assert not row_updates.is_native(table_of(rule, 40, 8), rule)
