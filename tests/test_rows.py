"""Gradients and updates of chosen rows: against a tape on the whole variable, TensorFlow's kernels, and the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import embexp
from embexp import rows
from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, RowwiseAdagrad
from embexp.specs.tables import Combiner, Feature
from embexp.tables import optimizers
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable

ROWS, DIM = 9, 4
RULES: dict[str, Any] = {
    "sgd": SGD(learning_rate=0.1),
    "adagrad": Adagrad(learning_rate=0.1),
    "adagrad_momentum": AdagradMomentum(learning_rate=0.05, momentum=0.9, weight_decay_factor=0.01),
    "rowwise_adagrad": RowwiseAdagrad(learning_rate=0.1, clipnorm=0.5),
    "adam": Adam(learning_rate=0.01, clipvalue=0.5),
    "ftrl": FTRL(learning_rate=0.1, l1_regularization_strength=0.01),
}
IDS = st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=30)


def matrix(seed: int, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, DIM)).astype(np.float32)


def bits(x: Any) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


def loss_of(weights: np.ndarray) -> Callable[[Any], Any]:
    return lambda looked_up: tf.reduce_sum(tf.sin(looked_up) * weights[: looked_up.shape[0]])


@settings(deadline=None, max_examples=40)
@given(ids=IDS, seed=st.integers(0, 100), narrow=st.booleans(), frozen=st.none() | st.sets(st.integers(0, ROWS - 1)))
def test_gradients_are_those_of_the_whole_variable(
    ids: list[int], seed: int, narrow: bool, frozen: set[int] | None
) -> None:
    variable, loss = tf.Variable(matrix(seed)), loss_of(matrix(seed + 1, 30))
    wanted = tf.constant(ids, tf.int32 if narrow else tf.int64)
    with tf.GradientTape(persistent=True) as tape:
        value = loss(tf.gather(variable, wanted))
    whole = tape.gradient(value, variable)
    # In float64: every element's sum in another order may differ in its last digits.
    expected = np.zeros((ROWS, DIM))
    np.add.at(expected, whole.indices.numpy(), whole.values.numpy().astype(np.float64))

    as_mask = np.isin(np.arange(ROWS), list(frozen or ()))
    ways = [None] if frozen is None else [np.array(sorted(frozen), np.int64), as_mask]
    for left_out in ways:
        for found in (
            rows.gradient(loss, variable, wanted, frozen=left_out),
            rows.of_slices(whole, frozen=left_out),
        ):
            assert found.ids.dtype == wanted.dtype
            assert sorted(found.ids.numpy()) == sorted(set(ids) - (frozen or set()))
            np.testing.assert_allclose(found.values, expected[found.ids.numpy()], rtol=1e-5, atol=1e-6)
    assert float(rows.gradient(loss, variable, wanted).loss) == float(value)


@settings(deadline=None, max_examples=20)
@given(ids=st.lists(IDS, min_size=1, max_size=4), seed=st.integers(0, 100))
def test_updates_are_those_of_tensorflows_kernel(ids: list[list[int]], seed: int) -> None:
    """`ResourceSparseApplyAdagrad`, given each row once."""
    start, loss, rule = matrix(seed), loss_of(matrix(seed + 1, 30)), RULES["adagrad"]
    ours, theirs = tf.Variable(start), tf.Variable(start)
    slots, accumulators = rows.slots(rule, ours), tf.fill([ROWS, DIM], rule.initial_accumulator_value)
    accumulators = tf.Variable(accumulators)
    for some in ids:
        rows.update(rule, ours, slots, rows.gradient(loss, ours, some))
        with tf.GradientTape() as tape:
            value = loss(tf.gather(theirs, some))
        whole = tape.gradient(value, theirs)
        distinct, positions = tf.unique(whole.indices)
        tf.raw_ops.ResourceSparseApplyAdagrad(
            var=theirs.handle,
            accum=accumulators.handle,
            lr=tf.constant(rule.learning_rate),
            grad=tf.math.unsorted_segment_sum(whole.values, positions, tf.size(distinct)),
            indices=distinct,
        )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(slots["accumulators"].numpy(), accumulators.numpy(), rtol=2e-6)
    untouched = sorted(set(range(ROWS)) - {each for some in ids for each in some})
    np.testing.assert_array_equal(bits(ours.numpy()[untouched]), bits(start[untouched]))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("frozen", [None, [1, 7]])
def test_steps_are_those_of_the_row_engine(name: str, frozen: list[int] | None) -> None:
    """The same ids and losses in a `tf.function`, as a step of a run does them; frozen rows keep every bit."""
    rule, weights = RULES[name], matrix(5, 12)
    table = EmbeddingTable(
        "t", ROWS, DIM, combiner=Combiner.SUM, slots=optimizers.slots_of(rule), row_slots=rule.row_slots
    )
    table.write(0, matrix(0))
    features = {"f": Feature(table="t")}
    engine = RowEngine({"t": table}, features, {"t": rule}, step=tf.Variable(0, dtype=tf.int64), total_steps=9)
    variable = tf.Variable(matrix(0))
    slots = rows.slots(rule, variable)

    @tf.function
    def theirs(ids: Any) -> None:
        engine.enqueue({"f": ids}, training=True)
        activations = engine.activations()
        with tf.GradientTape() as tape:
            tape.watch(activations)
            loss = tf.reduce_sum(tf.sin(activations["f"]) * weights)
        engine.apply_gradients(tape.gradient(loss, activations))

    @tf.function
    def ours(ids: Any) -> Any:
        def loss(looked_up: Any) -> Any:
            total = tf.reduce_sum(tf.sin(looked_up) * weights)
            if total > 1e9:  # AutoGraph rewrites this: the loss is the user's own code
                total = 0.0 * total
            return total

        found = rows.gradient(loss, variable, ids, frozen=frozen)
        rows.update(rule, variable, slots, found)
        return found.loss

    for step in range(4):
        ids = tf.constant(np.random.default_rng(step).integers(0, ROWS, 12))
        theirs(ids)
        assert np.isfinite(ours(ids))
    moving = [row for row in range(ROWS) if row not in (frozen or [])]
    np.testing.assert_allclose(variable.numpy()[moving], table.read(0, ROWS)[moving], rtol=1e-5, atol=1e-6)
    for slot, kept in slots.items():
        np.testing.assert_allclose(kept.numpy()[moving], table.read(0, ROWS, slot)[moving], rtol=1e-5, atol=1e-6)
    for row in frozen or []:
        np.testing.assert_array_equal(bits(variable.numpy()[row]), bits(matrix(0)[row]))
        assert all(np.all(kept.numpy()[row] == optimizers.slots_of(rule)[slot]) for slot, kept in slots.items())


def test_one_tape_for_rows_and_all_else() -> None:
    variable, kernel = tf.Variable(matrix(0)), tf.Variable(tf.ones([DIM, 1]))
    chosen = rows.gather(variable, [[3, 1], [3, 3]])
    with tf.GradientTape() as tape:
        tape.watch(chosen.values)
        loss = tf.reduce_sum(chosen.lookup() @ kernel)
    assert chosen.lookup().shape == (2, 2, DIM)
    found, other = tape.gradient(loss, [chosen.values, kernel])
    gradient = chosen.gradient(found, frozen=[1])
    assert gradient.ids.numpy().tolist() == [3]
    np.testing.assert_array_equal(gradient.values, np.full((1, DIM), 3.0))
    np.testing.assert_allclose(other[:, 0], matrix(0)[[3, 1, 3, 3]].sum(0), rtol=1e-6)
    unused = chosen.gradient(None)
    np.testing.assert_array_equal(unused.values, np.zeros((2, DIM)))


@pytest.mark.parametrize("name", RULES)
def test_in_a_graph_of_tensorflow_1(name: str) -> None:
    rule, weights = RULES[name], matrix(1, 3)
    eager = tf.Variable(matrix(0))
    rows.update(rule, eager, rows.slots(rule, eager), rows.gradient(loss_of(weights), eager, [2, 5, 2]))
    with tf.Graph().as_default():
        variable = tf.Variable(matrix(0))
        ids = tf.compat.v1.placeholder(tf.int64, [3])
        slots = rows.slots(rule, variable)
        found = rows.gradient(loss_of(weights), variable, ids)
        step = rows.update(rule, variable, slots, found)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(step, {ids: [2, 5, 2]})
            moved = session.run(variable.read_value())
    np.testing.assert_allclose(moved, eager.numpy(), rtol=1e-6, atol=1e-7)
    assert not np.any(bits(moved[[0, 1, 3, 4, 6, 7, 8]]) != bits(matrix(0)[[0, 1, 3, 4, 6, 7, 8]]))


def test_a_schedule_follows_the_step() -> None:
    rule = SGD(learning_rate=1.0, schedule={"kind": "piecewise", "boundaries": [1], "values": [0.5, 0.25]})
    variable, found = tf.Variable(tf.zeros([2, 1])), rows.RowGradient(tf.constant([1]), tf.ones([1, 1]))
    for step in range(2):
        rows.update(rule, variable, {}, found, step=step, total_steps=2)
    np.testing.assert_array_equal(variable, [[0.0], [-0.75]])
    with pytest.raises(ValueError, match=r"sgd has a schedule \(piecewise\): give step and total_steps"):
        rows.update(rule, variable, {}, found)


def test_what_is_refused() -> None:
    variable = tf.Variable(matrix(0))
    found = rows.gradient(tf.reduce_sum, variable, [0])
    with pytest.raises(ValueError, match="updates every row, not only those of a gradient; set lazy_adam=True"):
        rows.update(Adam(lazy_adam=False), variable, {}, found)
    with pytest.raises(ValueError, match=r"adagrad needs the slots \['accumulators'\], got \[\]"):
        rows.update(Adagrad(), variable, {}, found)
    with pytest.raises(ValueError, match="ids must be int32 or int64, got float32"):
        rows.gather(variable, [0.5])
    with pytest.raises(ValueError, match=r"expected a float32 variable \[rows, dim\], got float64 of shape"):
        rows.gather(tf.Variable(np.zeros((2, 2))), [0])
    with pytest.raises(ValueError, match=r"expected a tf\.Variable \(of a Keras variable, its value\), got ndarray"):
        rows.gather(matrix(0), [0])
    with pytest.raises(ValueError, match=r"expected tf\.IndexedSlices"):
        rows.of_slices(tf.zeros([2, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[0\] = 9 is not in \[0, 9\)"):
        rows.gather(variable, [ROWS])


def test_it_is_a_public_name() -> None:
    assert embexp.rows is rows
    assert set(embexp.__all__) <= set(dir(embexp))
