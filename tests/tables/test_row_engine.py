"""The row engine: whole steps against float64, rows that a step must not change, and invalid calls."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import VocabularyError
from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, ExponentialSchedule, RowwiseAdagrad
from embexp.specs.tables import Combiner, Feature
from embexp.tables import fused_rows, inputs, optimizers
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from tests.exact_rules import Course
from tests.thoroughness import examples

DIM = 4
RULES = {
    "sgd": SGD(learning_rate=0.125),
    "adagrad": Adagrad(learning_rate=0.125),
    "adagrad_momentum": AdagradMomentum(learning_rate=0.0625, momentum=0.5),
    "rowwise_adagrad": RowwiseAdagrad(learning_rate=0.125, clipnorm=0.5),
    "adam": Adam(learning_rate=0.0625),
    "adam, all rows": Adam(learning_rate=0.0625, lazy_adam=False),
    "ftrl": FTRL(learning_rate=0.125, l2_regularization_strength=0.25),
    "decayed and clipped": Adam(learning_rate=0.0625, weight_decay_factor=0.0625, clip_weight_max=0.5, clipvalue=0.5),
    "all rows, decayed": Adam(learning_rate=0.0625, lazy_adam=False, weight_decay_factor=0.0625),
}


def filled(name: str, rows: int, rule: Any, combiner: Combiner = Combiner.SUM, seed: int = 0) -> EmbeddingTable:
    table = EmbeddingTable(
        name, rows, DIM, combiner=combiner, slots=optimizers.slots_of(rule), row_slots=rule.row_slots
    )
    table.write(0, np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32))
    return table


def engine_of(table: EmbeddingTable, features: dict[str, Feature], rule: Any, step: Any = None) -> RowEngine:
    step = tf.Variable(0, dtype=tf.int64) if step is None else step
    return RowEngine({table.name: table}, features, {table.name: rule}, step=step, total_steps=10)


def state(table: EmbeddingTable) -> dict[str | None, np.ndarray]:
    return {slot: table.read(0, table.rows, slot) for slot in (None, *table.slots)}


@pytest.mark.parametrize("name", RULES)
@examples(3)
@given(seed=st.integers(0, 2**16))
def test_steps_are_one_application_of_the_summed_gradient(name: str, seed: int) -> None:
    """Two features share the table, ids repeat within and across them; the oracle sums in float64."""
    rule, rows, batch = RULES[name], 9, 5
    generator = np.random.default_rng(seed)
    table = filled("item", rows, rule, seed=seed)
    engine = engine_of(table, {"dense": Feature(table="item"), "bag": Feature(table="item")}, rule)

    @tf.function(reduce_retracing=True)
    def train(dense: Any, bag: Any, dense_gradient: Any, bag_gradient: Any) -> None:
        engine.enqueue({"dense": dense, "bag": bag}, training=True)
        engine.activations()
        engine.apply_gradients({"dense": dense_gradient, "bag": bag_gradient})

    course = Course(rule, state(table))
    for _ in range(4):
        dense = generator.integers(0, rows - 2, (batch, 2))
        lengths = generator.integers(0, 4, batch)
        values = generator.integers(0, rows - 2, lengths.sum())
        gradients = [generator.standard_normal(s).astype(np.float32) for s in ((batch, 2, DIM), (batch, DIM))]
        train(tf.constant(dense), tf.RaggedTensor.from_row_lengths(values, lengths), *map(tf.constant, gradients))

        summed, size = np.zeros((2, rows, DIM))
        for ids, gradient in (
            (dense.ravel(), gradients[0].reshape(-1, DIM)),
            (values, gradients[1].repeat(lengths, 0)),
        ):
            np.add.at(summed, ids, gradient.astype(np.float64))
            np.add.at(size, ids, np.abs(gradient))
        course.step(summed, np.isin(np.arange(rows), np.concatenate([dense.ravel(), values])))
        # A sum that cancels is only as exact as its terms are large; the rules pass that on times the learning rate.
        course.moved[None] += rule.learning_rate * size / 4
        if rule.kind in ("adam", "adagrad_momentum"):
            course.moved["momenta"] += size
    for slot, error in course.errors(state(table)).items():
        assert (error <= 1).all(), slot


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if not rule.moves_every_row])
def test_rows_that_no_id_names_keep_every_bit(name: str) -> None:
    table = filled("item", 50, RULES[name])
    # Values that arithmetic would not leave alone: -0.0, infinities, NaN, in rows and slots.
    odd = np.array([-0.0, np.inf, np.nan, 1e-38], np.float32)
    for slot in (None, *table.slots):
        table.write(40, np.tile(odd, (10, 1))[:, : table.width(slot)], slot)
    before = state(table)
    engine = engine_of(table, {"f": Feature(table="item")}, RULES[name])
    engine.enqueue({"f": tf.constant([3, 3, 7], tf.int64)}, training=True)
    engine.activations()
    engine.apply_gradients({"f": tf.ones([3, DIM])})
    for slot, after in state(table).items():
        changed = np.flatnonzero((after.view(np.uint32) != before[slot].view(np.uint32)).any(1))
        assert changed.tolist() == [3, 7], slot
    assert table.touched_rows() == 2


def test_adam_that_is_not_lazy_moves_rows_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embexp.tables.row_updates._BLOCK", 4)
    rule = Adam(learning_rate=0.5, lazy_adam=False)
    table = filled("item", 11, rule)
    table.write(0, np.ones((11, DIM), np.float32), "momenta")
    engine = engine_of(table, {"f": Feature(table="item")}, rule)
    before = table.read(0, 11)

    @tf.function
    def train() -> None:
        engine.enqueue({"f": tf.constant([10], tf.int64)}, training=True)
        engine.activations()
        engine.apply_gradients({"f": None})

    train()
    np.testing.assert_allclose(table.read(0, 11, "momenta"), 0.9, rtol=1e-6)
    np.testing.assert_allclose(table.read(0, 11) - before, -0.5 * 0.9 / 1e-7, rtol=1e-5)


def test_a_missing_gradient_counts_as_zero() -> None:
    rule = Adam(learning_rate=0.5)
    table = filled("item", 5, rule)
    table.write(0, np.ones((5, DIM), np.float32), "momenta")
    engine = engine_of(table, {"a": Feature(table="item"), "b": Feature(table="item")}, rule)
    engine.enqueue({"a": tf.constant([1]), "b": tf.constant([1, 2])}, training=True)
    engine.activations()
    engine.apply_gradients({"a": None, "b": tf.ones([2, DIM])})
    np.testing.assert_allclose(table.read(0, 5, "momenta")[:, 0], [1, 1.0, 1.0, 1, 1], rtol=1e-6)
    engine.enqueue({"a": tf.constant([3]), "b": tf.constant([1])}, training=True)
    engine.activations()
    engine.apply_gradients({"a": None, "b": None})
    np.testing.assert_allclose(table.read(0, 5, "momenta")[:, 0], [1, 0.9, 1.0, 0.9, 1], rtol=1e-6)
    assert table.touched_rows() == 3


def test_features_on_one_input_and_tables_with_one_input() -> None:
    """The same ids tensor feeds two features of one table and one of another: the gradients still add up."""
    rule = SGD(learning_rate=1.0)
    tables = {name: filled(name, 6, rule) for name in ("item", "bias")}
    before = {name: table.read(0, 6) for name, table in tables.items()}
    features = {"left": Feature(table="item"), "right": Feature(table="item"), "bias": Feature(table="bias")}
    step = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine(tables, features, {"item": rule, "bias": rule}, step=step, total_steps=1)

    @tf.function
    def train(ids: Any) -> Any:
        engine.enqueue({"left": ids, "right": ids, "bias": ids}, training=True)
        found = engine.activations()
        engine.apply_gradients({name: (number + 1.0) * tf.ones([3, DIM]) for number, name in enumerate(features)})
        return found

    ids = tf.constant([4, 1, 4], tf.int64)
    found = train(ids)
    np.testing.assert_array_equal(found["left"], before["item"][[4, 1, 4]])
    np.testing.assert_array_equal(found["bias"], before["bias"][[4, 1, 4]])
    names = [operation.type for operation in operations(train.get_concrete_function(ids).graph)]
    assert names.count("Unique") + names.count("EmbexpDistinct") == 1
    for name, once in (("item", 3.0), ("bias", 3.0)):
        expected = before[name].copy()
        expected[[1, 4]] -= np.array([[once], [2 * once]], np.float32)
        np.testing.assert_allclose(tables[name].read(0, 6), expected, rtol=1e-6)


def test_features_of_both_id_types_share_a_table() -> None:
    table = filled("item", 5, SGD())
    engine = engine_of(table, {"a": Feature(table="item"), "b": Feature(table="item")}, SGD())
    engine.enqueue({"a": tf.constant([1], tf.int32), "b": tf.constant([4, 1], tf.int64)}, training=True)
    np.testing.assert_array_equal(engine.activations()["b"], table.read(0, 5)[[4, 1]])


def operations(graph: Any) -> list[Any]:
    """Operations of a graph and of the functions it calls."""
    found = list(graph.get_operations())
    for function in graph._functions.values():
        inner = getattr(function, "graph", None)
        if inner is not None:
            found += operations(inner)
    return found


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if not rule.moves_every_row])
def test_nothing_in_a_step_is_as_large_as_the_table(name: str) -> None:
    rows = 7919
    table = filled("item", rows, RULES[name])
    features = {"dense": Feature(table="item"), "bag": Feature(table="item")}
    engine = engine_of(table, features, RULES[name])

    @tf.function
    def train(dense: Any, bag: Any) -> None:
        engine.enqueue({"dense": dense, "bag": bag}, training=True)
        activations = engine.activations()
        with tf.GradientTape() as tape:
            tape.watch(activations)
            loss = tf.add_n([tf.reduce_sum(value**2) for value in activations.values()])
        engine.apply_gradients(tape.gradient(loss, activations))

    bag = tf.RaggedTensorSpec([None, None], tf.int64)
    graph = train.get_concrete_function(tf.TensorSpec([None], tf.int64), bag).graph
    every = operations(graph)
    whole = [
        op.name for op in every for output in op.outputs if rows in (output.shape.as_list() if output.shape else [])
    ]
    assert whole == []
    captured = {id(inner) for outer, inner in graph.captures if outer.dtype == tf.resource}
    users = {op.type for op in every if any(id(tensor) in captured for tensor in op.inputs)}
    writer = "EmbexpMoveRows" if fused_rows.moves(table, RULES[name]) else "ResourceScatterUpdate"
    assert users == {"ResourceGather", writer}


def test_the_learning_rate_follows_the_step() -> None:
    step = tf.Variable(0, dtype=tf.int64)
    rule = SGD(learning_rate=0.5, schedule=ExponentialSchedule(decay_steps=1, decay_rate=0.5))
    table = filled("item", 3, rule)
    engine = engine_of(table, {"f": Feature(table="item")}, rule, step)

    @tf.function
    def train() -> None:
        engine.enqueue({"f": tf.constant([1], tf.int64)}, training=True)
        engine.activations()
        engine.apply_gradients({"f": tf.ones([1, DIM])})
        step.assign_add(1)

    table.write(0, np.zeros((3, DIM), np.float32))
    found = []
    for _ in range(3):
        train()
        found.append(float(table.read(1, 2)[0, 0]))
    assert found == [-0.5, -0.75, -0.875]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("id_type", "bad"),
    # As 32 bits, 2^32 + 3 would be 3.
    [(tf.int32, 7), (tf.int64, 7), (tf.int32, -(2**31)), (tf.int64, -1), (tf.int64, 2**32 + 3), (tf.int64, 2**63 - 1)],
)
def test_an_id_outside_the_vocabulary_is_named(training: bool, traced: bool, id_type: Any, bad: int) -> None:
    table = filled("item", 7, SGD())
    engine = engine_of(table, {"user": Feature(table="item"), "history": Feature(table="item")}, SGD())
    before = table.read(0, 7)

    def run(user: Any, history: Any) -> Any:
        engine.enqueue({"user": user, "history": history}, training=training)
        found = engine.activations()
        if training:
            engine.apply_gradients({"user": tf.ones([2, DIM]), "history": tf.ones([2, DIM])})
        return found

    message = rf"^feature 'history' looks up id {bad} in table 'item', whose ids are 0 to 6 \(vocabulary size 7\)$"
    history = tf.RaggedTensor.from_row_lengths(tf.constant([6, bad, 3], id_type), [1, 2])
    with pytest.raises(VocabularyError, match=message), inputs.translated_errors():
        (tf.function(run) if traced else run)(tf.constant([0, 6], id_type), history)
    np.testing.assert_array_equal(table.read(0, 7), before)


def test_errors_that_are_not_about_inputs_pass_unchanged() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="something else"), inputs.translated_errors():
        tf.debugging.Assert(False, ["something else"])


def test_invalid_calls() -> None:
    table = filled("item", 5, SGD())
    with pytest.raises(ValueError, match=r"feature 'f' uses table 'user', which does not exist"):
        engine_of(table, {"f": Feature(table="user")}, SGD())
    with pytest.raises(ValueError, match=r"table 'item' has slots \[\], its optimizer needs \['accumulators'\]"):
        engine_of(table, {"f": Feature(table="item")}, Adagrad())
    engine = engine_of(table, {"f": Feature(table="item")}, SGD())
    ids = tf.constant([1])
    with pytest.raises(RuntimeError, match=r"call activations\(\) once after each enqueue\(\)"):
        engine.activations()
    with pytest.raises(ValueError, match=r"enqueue needs every feature exactly once: missing \['f'\], unknown \['g'\]"):
        engine.enqueue({"g": ids}, training=True)
    engine.enqueue({"f": ids}, training=True)
    refused = r"call apply_gradients\(\) once after enqueue\(\.\.\., training=True\) and activations\(\)"
    with pytest.raises(RuntimeError, match=refused):
        engine.apply_gradients({"f": None})
    engine.activations()
    with pytest.raises(
        ValueError, match=r"apply_gradients needs every feature exactly once: missing \['f'\], " r"unknown \[\]"
    ):
        engine.apply_gradients({})
    with pytest.raises(ValueError, match="the gradient of feature 'f' is float64; it must be float32"):
        engine.apply_gradients({"f": tf.ones([1, DIM], tf.float64)})
    engine.apply_gradients({"f": None})
    with pytest.raises(RuntimeError, match=refused):
        engine.apply_gradients({"f": None})
    engine.enqueue({"f": ids}, training=False)
    engine.activations()
    with pytest.raises(RuntimeError, match=refused):
        engine.apply_gradients({"f": None})


REPEATED = """
import sys
import numpy as np, tensorflow as tf
from embexp.specs.optimizers import Adam
from embexp.specs.tables import Feature
from embexp.tables import optimizers
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(2)
if sys.argv[1] == "deterministic":
    tf.config.experimental.enable_op_determinism()
rule, digests = Adam(learning_rate=0.1), set()
generator = np.random.default_rng(0)
ids = tf.constant(generator.zipf(1.3, (6, 4096, 8)) % 5000)
lengths = generator.integers(0, 9, 4096)
bag = tf.RaggedTensor.from_row_lengths(generator.zipf(1.3, lengths.sum()) % 5000, lengths)
weights = bag.with_values(tf.constant(generator.random(lengths.sum()), tf.float32))
start = generator.standard_normal((5000, 32)).astype(np.float32)
for _ in range(3):
    table = EmbeddingTable("item", 5000, 32, slots=optimizers.slots_of(rule), row_slots=rule.row_slots)
    table.write(0, start)
    features = {"f": Feature(table="item"), "g": Feature(table="item"), "h": Feature(table="item")}
    engine = RowEngine({"item": table}, features, {"item": rule}, step=tf.Variable(0, dtype=tf.int64), total_steps=1)
    @tf.function
    def train(ids):
        engine.enqueue({"f": ids, "g": (bag, weights), "h": bag}, training=True)
        activations = engine.activations()
        engine.apply_gradients({name: tf.sin(value) for name, value in activations.items()})
    for number in range(6):
        train(ids[number])
    digests.add((table.digest(), table.digest("momenta"), table.digest("velocities")))
print(len(digests), *digests.pop())
"""


@pytest.mark.slow
def test_the_same_steps_give_the_same_bits_on_two_threads(root: Path, forked: Path) -> None:
    found = []
    for mode in ("plain", "deterministic"):
        result = subprocess.run(
            [forked / "python", "-c", REPEATED, mode], capture_output=True, text=True, check=True, cwd=root
        )
        found.append(result.stdout.split())
    assert found[0] == found[1]
    assert found[0][0] == "1"


@pytest.mark.parametrize("name", ["adam, all rows", "all rows, decayed", "sgd"])
@pytest.mark.parametrize("gradient", ["ones", "NaN", "none"])
def test_a_frozen_table_is_looked_up_and_keeps_every_bit(name: str, gradient: str) -> None:
    """Even under rules that move or decay what has no gradient, and with gradients that would poison it."""
    frozen = EmbeddingTable("word", 6, DIM, combiner=Combiner.MEAN, frozen=True)
    values = np.random.default_rng(1).standard_normal((6, DIM)).astype(np.float32)
    values[5] = [-0.0, np.inf, np.nan, 1e-38]
    frozen.write(0, values)
    tables = {"word": frozen, "item": filled("item", 9, RULES[name])}
    before = tables["item"].read(0, 9)
    engine = RowEngine(
        tables,
        {"bag": Feature(table="word"), "again": Feature(table="word"), "item": Feature(table="item")},
        {"item": RULES[name], "word": RULES[name]},
        step=tf.Variable(0, dtype=tf.int64),
        total_steps=1,
    )

    @tf.function
    def train(ids: Any) -> Any:
        bag = tf.RaggedTensor.from_row_lengths(ids, [2, 0, 1])
        engine.enqueue({"bag": bag, "again": ids, "item": ids}, training=True)
        found = engine.activations()
        given = {"ones": tf.ones_like, "NaN": lambda each: each * np.nan, "none": lambda each: None}[gradient]
        engine.apply_gradients(
            {"bag": given(found["bag"]), "again": given(found["again"]), "item": tf.ones_like(found["item"])}
        )
        return found

    found = train(tf.constant([1, 3, 3]))
    expected = np.stack([(values[1] + values[3]) / 2, np.zeros(DIM), values[3]])
    np.testing.assert_allclose(found["bag"], expected, rtol=1e-6)
    np.testing.assert_array_equal(found["again"], values[[1, 3, 3]])
    np.testing.assert_array_equal(frozen.read(0, 6).view(np.uint32), values.view(np.uint32))
    assert frozen.touched_rows() == 0
    changed = np.flatnonzero((tables["item"].read(0, 9) != before).any(1))
    assert {1, 3} <= set(changed.tolist())
    # No search for distinct ids but that of the table that trains.
    names = [each.type for each in train.get_concrete_function(tf.TensorSpec([3], tf.int32)).graph.get_operations()]
    assert names.count("Unique") + names.count("EmbexpDistinct") == 1


def test_a_frozen_tables_ids_are_looked_at_too() -> None:
    frozen = EmbeddingTable("word", 6, DIM, frozen=True)
    frozen.write(0, np.zeros((6, DIM), np.float32))
    step = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"word": frozen}, {"f": Feature(table="word")}, {}, step=step, total_steps=1)
    with (
        pytest.raises(VocabularyError, match="feature 'f' looks up id 6 in table 'word', whose ids are 0 to 5"),
        inputs.translated_errors(),
    ):
        engine.enqueue({"f": tf.constant([6])}, training=True)
