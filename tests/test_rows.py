"""Gradients and updates of chosen rows: against a tape on the whole variable, TensorFlow's kernels, and the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
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
    with pytest.raises(ValueError, match=r"sgd has a schedule \(piecewise\): pass step and total_steps"):
        rows.update(rule, variable, {}, found)


def test_what_is_refused() -> None:
    variable = tf.Variable(matrix(0))
    found = rows.gradient(tf.reduce_sum, variable, [0])
    with pytest.raises(ValueError, match="updates every row, not only the rows in the gradient; set lazy_adam=True"):
        rows.update(Adam(lazy_adam=False), variable, {}, found)
    with pytest.raises(ValueError, match=r"adagrad needs the slots \['accumulators'\], got \[\]"):
        rows.update(Adagrad(), variable, {}, found)
    with pytest.raises(ValueError, match="ids must be int32 or int64, got float32"):
        rows.gather(variable, [0.5])
    with pytest.raises(ValueError, match=r"expected a float32 variable \[rows, dim\], got float64 of shape"):
        rows.gather(tf.Variable(np.zeros((2, 2))), [0])
    with pytest.raises(ValueError, match=r"expected a tf\.Variable or a Keras variable, got ndarray"):
        rows.gather(matrix(0), [0])
    with pytest.raises(ValueError, match=r"expected tf\.IndexedSlices"):
        rows.of_slices(tf.zeros([2, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[0\] = 9 is not in \[0, 9\)"):
        rows.gather(variable, [ROWS])


LARGE = 100_000
FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "numbers": lambda numbers: numbers,
    "list": lambda numbers: numbers.tolist(),
    "mask": lambda numbers: np.isin(np.arange(LARGE), numbers),
    "tensor": lambda numbers: tf.constant(numbers),
    "mask tensor": lambda numbers: tf.constant(np.isin(np.arange(LARGE), numbers)),
    "prepared": lambda numbers: rows.FrozenRows(numbers, LARGE),
}
SETS: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "range": (np.arange(5, 60_000), {"range": range(5, 60_000), "slice": slice(5, 60_000)}),
    "backwards": (np.arange(3, 50_000, 7), {"range": range(3, 50_000, 7)[::-1], "slice": slice(3, 50_000, 7)}),
    "tail": (np.arange(LARGE - 9, LARGE), {"slice": slice(-9, None)}),
    "few": (np.array([1, 7, 70_000]), {}),
    "scattered": (np.flatnonzero(np.random.default_rng(3).random(LARGE) < 0.5), {}),
    "none": (np.arange(0), {"range": range(0)}),
}


@pytest.mark.parametrize("chosen", SETS)
def test_every_form_of_frozen_rows_excludes_the_same(chosen: str) -> None:
    """Eagerly, in a function, and in a graph of TensorFlow 1, against NumPy."""
    numbers, more = SETS[chosen]
    forms = {name: form(numbers) for name, form in FORMS.items()} | more
    ids = np.unique(np.random.default_rng(1).integers(0, LARGE, 300))
    kept = np.setdiff1d(ids, numbers)
    variable = tf.Variable(tf.zeros([LARGE, 1]))
    for name, frozen in forms.items():
        find = functools.partial(rows.gradient, tf.reduce_sum, variable, frozen=frozen)
        assert find(ids).ids.numpy().tolist() == kept.tolist(), name
        in_function = tf.function(lambda these, find=find: find(these).ids)
        assert in_function(tf.constant(ids, tf.int32)).numpy().tolist() == kept.tolist(), name
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.Variable(tf.zeros([LARGE, 1]))
        wanted = tf.compat.v1.placeholder(tf.int64, [None])
        forms = {name: frozen for name, frozen in forms.items() if not name.endswith("tensor")}
        forms |= {"tensor": tf.constant(numbers), "mask tensor": tf.constant(FORMS["mask"](numbers))}
        found = {name: rows.gradient(tf.reduce_sum, variable, wanted, frozen=forms[name]).ids for name in forms}
        session.run(variable.initializer)
        for name, left in session.run(found, {wanted: ids}).items():
            assert left.tolist() == kept.tolist(), name


@pytest.mark.parametrize("form", ["numbers", "mask", "range", "prepared"])
def test_graphs_do_not_grow_with_the_frozen_rows(form: str) -> None:
    def sizes(length: int) -> tuple[int, int]:
        scattered = np.flatnonzero(np.random.default_rng(0).random(length) < 0.5)
        frozen = {
            "numbers": scattered,
            "mask": np.isin(np.arange(length), scattered),
            "range": range(0, length, 3),
            "prepared": rows.FrozenRows(scattered, length),
        }[form]
        variable = tf.Variable(tf.zeros([length, 1]))
        step = tf.function(lambda ids: rows.gradient(tf.reduce_sum, variable, ids, frozen=frozen).ids)
        graph = step.get_concrete_function(tf.TensorSpec([4], tf.int64)).graph.as_graph_def()
        with tf.Graph().as_default() as session_graph:
            of_session = tf.compat.v1.get_variable("v", [length, 1], use_resource=True)
            rows.gradient(tf.reduce_sum, of_session, tf.constant([1, 2]), frozen=frozen)
        return graph.ByteSize(), session_graph.as_graph_def().ByteSize()

    few, many = sizes(1_000), sizes(200_000)
    # Numbers such as that of the rows take two bytes more where they are written.
    assert all(0 <= more - less < 100 for less, more in zip(few, many, strict=True))


def test_what_is_no_row_is_refused_in_every_form() -> None:
    variable, find = tf.Variable(matrix(0)), functools.partial(rows.gradient, tf.reduce_sum)
    for frozen in ([3, ROWS], np.array([ROWS]), range(ROWS + 1), tf.constant([ROWS]), tf.Variable([ROWS])):
        with pytest.raises(ValueError, match="frozen: row 9 is not in the variable, which has rows 0 to 8"):
            find(variable, [0], frozen=frozen)
    with pytest.raises(ValueError, match="frozen: row -1 is not in the variable"):
        find(variable, [0], frozen=[-1])
    with pytest.raises(ValueError, match=r"found slice\(0, 10, None\), but the variable has 9 rows"):
        find(variable, [0], frozen=slice(0, 10))
    for frozen in (np.ones(7, np.bool_), [True] * 7, tf.ones([7], tf.bool), tf.Variable(tf.ones([7], tf.bool))):
        with pytest.raises(ValueError, match=r"found a mask of .*7.*, expected a boolean for each of the 9 rows"):
            find(variable, [0], frozen=frozen)
    with pytest.raises(ValueError, match="frozen: found float64, expected row numbers"):
        find(variable, [0], frozen=[0.5])
    with pytest.raises(ValueError, match="prepared for a variable of 10 rows, but this one has 9"):
        find(variable, [0], frozen=rows.FrozenRows([1], 10))
    slices = tf.IndexedSlices(tf.ones([1, DIM]), tf.constant([0]))
    with pytest.raises(ValueError, match=r"pass frozen=embexp\.rows\.FrozenRows"):
        rows.of_slices(slices, frozen=[3])
    assert rows.of_slices(slices, frozen=rows.FrozenRows([0], variable)).ids.numpy().tolist() == []


def test_rows_that_a_step_computes_are_checked_by_the_step() -> None:
    variable = tf.Variable(matrix(0))
    step = tf.function(
        lambda frozen: rows.gradient(tf.reduce_sum, variable, [0, 3], frozen=frozen).ids, reduce_retracing=True
    )
    assert step(tf.constant([3])).numpy().tolist() == [0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="frozen: rows outside the variable"):
        step(tf.constant([3, ROWS]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="frozen: rows outside the variable"):
        step(tf.constant([-1]))
    mask = tf.Variable(np.arange(ROWS) == 3)
    changing = tf.function(lambda: rows.gradient(tf.reduce_sum, variable, [0, 3], frozen=mask).ids)
    assert changing().numpy().tolist() == [0]
    mask.assign(np.arange(ROWS) == 0)
    assert changing().numpy().tolist() == [3]


def test_a_keras_variable_is_the_variable_in_it() -> None:
    layer = keras.layers.Embedding(ROWS, DIM)
    layer.build()
    plain = tf.Variable(layer.embeddings.value)
    for variable in (layer.embeddings, plain):
        slots = rows.slots(RULES["adagrad"], variable)
        rows.update(RULES["adagrad"], variable, slots, rows.gradient(tf.reduce_sum, variable, [2, 2, 4], frozen=[4]))
    np.testing.assert_array_equal(layer.embeddings.numpy(), plain.numpy())


def test_it_is_a_public_name() -> None:
    assert embexp.rows is rows
    assert set(embexp.__all__) <= set(dir(embexp))
