"""Frozen rows in every layout: no bit of them changes, what moves is right, and layouts agree to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, RowwiseAdagrad
from embexp.specs.tables import Combiner, Feature
from embexp.tables import optimizers
from embexp.tables.optimizers import RowGroups
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable, SplitTable
from tests.exact_rules import Course, Values
from tests.thoroughness import examples

DIM, ROWS, STEPS = 3, 23, 50
RULES = {
    "sgd": SGD(learning_rate=0.125, weight_decay_factor=0.0625),
    "adagrad": Adagrad(learning_rate=0.125, clipvalue=0.5),
    "adagrad_momentum": AdagradMomentum(learning_rate=0.0625, momentum=0.5),
    "rowwise_adagrad": RowwiseAdagrad(learning_rate=0.125, clipnorm=0.5),
    "adam": Adam(learning_rate=0.0625),
    "adam, all rows": Adam(learning_rate=0.0625, lazy_adam=False),
    "adam, decayed and clipped": Adam(
        learning_rate=0.0625, lazy_adam=False, weight_decay_factor=0.0625, clip_weight_max=0.5, clipvalue=0.5
    ),
    "ftrl": FTRL(learning_rate=0.125, l2_regularization_strength=0.25),
}
LAYOUTS = ("variable", "split", "memory_map")


class Matrix:
    """First values of a table."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


def table_of(
    layout: str,
    rule: Any,
    values: np.ndarray,
    groups: np.ndarray,
    multipliers: np.ndarray,
    starts: list[int],
    file: Any,
) -> EmbeddingTable | SplitTable:
    """A table in a layout; `file` is a mapping and the row in it of each row of the table."""
    made = RowGroups("item", groups, multipliers, starts)
    slots: dict[str, Any] = {"slots": optimizers.slots_of(rule), "row_slots": rule.row_slots}
    if layout == "variable":
        table = EmbeddingTable("item", len(values), DIM, combiner=Combiner.SUM, groups=made, **slots)
        table.write(0, values)
        return table
    mapping, file_rows = file if layout == "memory_map" else (None, None)
    split = SplitTable("item", made, DIM, mapping=mapping, file_rows=file_rows, combiner=Combiner.SUM, **slots)
    for part, rows in split.fills(Matrix(values)):
        part.write(0, rows.read(0, rows.rows))
    return split


def file_of(path: Path, values: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A mapped file with most rows of a table, in another order, and rows that the table does not have."""
    file_rows = np.where(generator.random(len(values)) < 0.8, generator.permutation(len(values)) + 2, -1)
    file_rows[0] = 1  # the first row is frozen in every policy below
    matrix = np.full((len(values) + 5, DIM), np.nan, np.float32)
    matrix[file_rows[file_rows >= 0]] = values[file_rows >= 0]
    np.save(path, matrix)
    return np.asarray(np.load(path, mmap_mode="c")), file_rows


def step_of(table: Any, rule: Any) -> tuple[Any, Any]:
    """A traced step on given ids and gradients, and its counter."""
    counter = tf.Variable(0, dtype=tf.int64)
    features = {"dense": Feature(table="item"), "bag": Feature(table="item")}
    engine = RowEngine({"item": table}, features, {"item": rule}, step=counter, total_steps=STEPS)

    @tf.function(reduce_retracing=True)
    def step(dense: Any, bag: Any, dense_gradient: Any, bag_gradient: Any) -> Any:
        engine.enqueue({"dense": dense, "bag": bag}, training=True)
        found = engine.activations()
        engine.apply_gradients({"dense": dense_gradient, "bag": bag_gradient})
        counter.assign_add(1)
        return found

    return step, counter


def batches(seed: int) -> list[tuple[Any, ...]]:
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(STEPS):
        dense, lengths = generator.integers(0, ROWS - 1, (4, 2)), generator.integers(0, 4, 4)
        values = generator.integers(0, ROWS - 1, lengths.sum())
        gradients = [generator.standard_normal(shape).astype(np.float32) for shape in ((4, 2, DIM), (4, DIM))]
        if generator.random() < 0.2:
            gradients[0][:] = 0
        made.append((dense, values, lengths, *gradients))
    return made


def run(step: Any, given: list[tuple[Any, ...]]) -> None:
    for dense, values, lengths, dense_gradient, bag_gradient in given:
        bag = tf.RaggedTensor.from_row_lengths(values, lengths)
        step(tf.constant(dense), bag, tf.constant(dense_gradient), tf.constant(bag_gradient))


def state(table: Any) -> dict[Any, np.ndarray]:
    return {slot: table.read(0, table.rows, slot) for slot in (None, *table.slots)}


def exact(rule: Any, first: Values, given: list[tuple[Any, ...]], factors: np.ndarray) -> Course:
    """The table after all steps; `factors` are [steps, rows]."""
    course = Course(rule, first)
    for factor, (dense, bag, lengths, dense_gradient, bag_gradient) in zip(factors, given, strict=True):
        summed = np.zeros((ROWS, DIM))
        for ids, gradient in (
            (dense.ravel(), dense_gradient.reshape(-1, DIM)),
            (bag, bag_gradient.repeat(lengths, 0)),
        ):
            np.add.at(summed, ids, gradient.astype(np.float64))
        course.step(summed, np.isin(np.arange(ROWS), np.concatenate([dense.ravel(), bag])), factor)
    return course


@pytest.mark.parametrize("name", RULES)
@examples(2)
@given(
    seed=st.integers(0, 2**16),
    phases=st.lists(
        st.lists(st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.0]), min_size=3, max_size=3), min_size=1, max_size=3
    ),
)
def test_policies_in_all_layouts(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, phases: list[list[float]]
) -> None:
    """Group 0 never moves, group 1 always does, three more have phases; all rows are touched again and again."""
    rule, generator = RULES[name], np.random.default_rng(seed)
    values = generator.standard_normal((ROWS, DIM)).astype(np.float32)
    values[0] = [-0.0, np.inf, 1e-40]
    groups = generator.integers(0, 5, ROWS).astype(np.uint8)
    groups[:2] = [0, 1]
    multipliers = np.array([[0.0, 1.0, *phase] for phase in phases], np.float32)
    starts = [17 * number for number in range(len(phases))]
    file = file_of(tmp_path_factory.mktemp("file") / "m.npy", values, generator)
    given_batches, states = batches(seed), {}
    for layout in LAYOUTS:
        table = table_of(layout, rule, values, groups, multipliers, starts, file)
        first = state(table)
        np.testing.assert_array_equal(first[None].view(np.uint32), values.view(np.uint32))
        step, _ = step_of(table, rule)
        run(step, given_batches)
        states[layout] = state(table)
        frozen = (multipliers == 0).all(0)[groups]
        for slot, found in states[layout].items():
            changed = (found.view(np.uint32) != first[slot].view(np.uint32)).any(1)
            assert not changed[frozen].any(), (layout, slot)
        assert table.touched_rows() <= np.count_nonzero(~frozen)
        if layout != "variable":
            assert {each.shape[0] for each in table.slots.values()} <= {np.count_nonzero(~frozen)}
    for layout in LAYOUTS[1:]:
        for slot, found in states[layout].items():
            np.testing.assert_array_equal(found.view(np.uint32), states["variable"][slot].view(np.uint32))
    factors = np.stack([multipliers[min(number // 17, len(phases) - 1)][groups] for number in range(STEPS)])
    course = exact(rule, {slot: np.where(frozen[:, None], 1, each) for slot, each in first.items()},
                   given_batches, factors)  # fmt: skip
    for slot, error in course.errors(states["variable"]).items():
        assert (error <= 1)[~frozen].all(), slot


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_mixes_rows_that_move_and_rows_that_do_not(tmp_path: Path, layout: str) -> None:
    """Combined with weights: rows are put together before they are combined, whichever part they are in."""
    generator = np.random.default_rng(0)
    values = generator.standard_normal((ROWS, DIM)).astype(np.float32)
    groups = (np.arange(ROWS) % 2).astype(np.uint8)
    file = file_of(tmp_path / "m.npy", values, generator)
    table = table_of(layout, SGD(), values, groups, np.array([[0, 1]], np.float32), [0], file)
    table.combiner = Combiner.MEAN
    counter = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"item": table}, {"f": Feature(table="item")}, {"item": SGD()}, step=counter, total_steps=1)
    bag = tf.RaggedTensor.from_row_lengths([0, 1, 2, 1, 20, 21], [3, 0, 3])
    weights = bag.with_values(tf.constant([1, 2, 3, 1, 0.5, 0.25]))
    for training in (False, True):
        engine.enqueue({"f": (bag, weights)}, training=training)
        found = engine.activations()["f"]
        expected = [np.average(values[[0, 1, 2]], 0, [1, 2, 3]), np.zeros(DIM)]
        expected.append(np.average(values[[1, 20, 21]], 0, [1, 0.5, 0.25]))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    engine.apply_gradients({"f": tf.fill([3, DIM], np.float32(np.nan))})
    after = table.read(0, ROWS)
    assert np.flatnonzero(np.isnan(after).any(1)).tolist() == [1, 21]
    np.testing.assert_array_equal(after[groups == 0].view(np.uint32), values[groups == 0].view(np.uint32))
    assert table.touched_rows() == 2


def test_one_row_in_ten_has_slots(tmp_path: Path) -> None:
    values = np.zeros((100, DIM), np.float32)
    groups = (np.arange(100) % 10 == 0).astype(np.uint8)
    table = table_of("split", Adam(), values, groups, np.array([[0, 1]], np.float32), [0], None)
    assert isinstance(table, SplitTable)
    assert (table.fixed.shape[0], table.others.shape[0]) == (90, 10)
    assert [each.shape.as_list() for each in table.slots.values()] == [[10, DIM], [10, DIM]]


@pytest.mark.parametrize(
    ("name", "momenta", "moves"),
    [
        ("adam", 1.0, True),
        ("adagrad_momentum", 1.0, True),
        ("sgd", 0.0, True),  # by weight decay
        ("adam, decayed and clipped", 0.0, True),
        ("adagrad", 0.0, False),
    ],
)
@pytest.mark.parametrize("way", ["masked gradients", "groups"])
def test_masking_gradients_does_not_freeze(name: str, momenta: float, moves: bool, way: str) -> None:
    """The usual way, kept to show that the comparisons above can fail: rows move by momentum and by decay."""
    rule = RULES[name]
    groups = (np.arange(ROWS) >= 10).astype(np.uint8)
    made = RowGroups("item", groups, np.array([[0, 1]], np.float32), [0]) if way == "groups" else None
    slots = optimizers.slots_of(rule)
    table = EmbeddingTable("item", ROWS, DIM, combiner=Combiner.SUM, slots=slots, row_slots=rule.row_slots, groups=made)
    table.write(0, np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32))
    if momenta:
        table.write(0, np.full((ROWS, DIM), momenta, np.float32), "momenta")  # as after a training before
    before = table.read(0, ROWS)
    step, _ = step_of(table, rule)
    masked = []
    for dense, values, lengths, dense_gradient, _ in batches(0):
        mask = groups[dense][..., None] if way == "masked gradients" else np.ones((4, 2, 1))
        masked.append(
            (dense, values, lengths, (dense_gradient * mask).astype(np.float32), np.zeros((4, DIM), np.float32))
        )
    run(step, masked)
    changed = (table.read(0, ROWS).view(np.uint32) != before.view(np.uint32)).any(1)
    assert changed[10 : ROWS - 1].all()
    assert changed[:10].any() == (moves and way == "masked gradients")


def test_a_part_of_a_table_may_have_no_row_that_moves() -> None:
    """As a worker's share of a table: slots have no rows, and read as their initial value."""
    one, values = np.array([[0, 1]], np.float32), np.arange(3 * DIM, dtype=np.float32).reshape(3, DIM)
    groups = RowGroups("item", np.zeros(3, np.uint8), one, [0])
    table = SplitTable("item", groups, DIM, slots={"accumulators": 0.5})
    table.checkpointed().assign(0, values)
    assert table.read(0, 3).tobytes() == values.tobytes()
    assert table.gather(tf.constant([2, 0, 0])).numpy().tobytes() == values[[2, 0, 0]].tobytes()
    assert table.slots["accumulators"].shape == [0, DIM]
    assert (table.read(0, 3, "accumulators") == 0.5).all()
    table.checkpointed("accumulators").assign(0, values)
    assert (table.read(0, 3, "accumulators") == 0.5).all()


def test_invalid_arguments(tmp_path: Path) -> None:
    one = np.array([[0, 1]], np.float32)
    for groups in ([1, 1], [0]):
        with pytest.raises(ValueError, match=f"none of its {len(groups)} rows would be split off"):
            SplitTable("item", RowGroups("item", np.array(groups, np.uint8), one, [0]), DIM)
    with pytest.raises(ValueError, match=r"phases begin at \[0, 0\], expected 2, rising from 0"):
        RowGroups("item", np.zeros(2, np.uint8), np.ones((2, 1), np.float32), [0, 0])
    with pytest.raises(ValueError, match="multipliers are finite numbers of at least 0"):
        RowGroups("item", np.zeros(2, np.uint8), np.array([[-1]], np.float32), [0])
    with pytest.raises(ValueError, match="there is a group 3, but only 2 groups have multipliers"):
        RowGroups("item", np.array([3], np.uint8), one, [0])
    made = RowGroups("item", np.array([0, 1], np.uint8), one, [0])
    with pytest.raises(ValueError, match="table 'item' is frozen, so it can't have groups"):
        EmbeddingTable("item", 2, DIM, frozen=True, groups=made)
    mapping = np.asarray(np.memmap(tmp_path / "m", np.float32, "w+", shape=(2, DIM)))
    with pytest.raises(ValueError, match="table 'item' is 2 × 3, but the rows of its file don't fit"):
        SplitTable("item", made, DIM, mapping=mapping, file_rows=np.array([0]))
