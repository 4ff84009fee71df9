"""Rows moved by fused operations: the same bits as by TensorFlow's own operations, and nothing else touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import VocabularyError
from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, CustomTableOptimizer, RowwiseAdagrad
from embexp.specs.tables import Feature
from embexp.system import native
from embexp.system.arrays import ArrayRows
from embexp.tables import fused_rows, inputs, optimizers
from embexp.tables.optimizers import DecayShares, RowGroups
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable, SplitTable
from embexp.tables.variables import SINGLE, Precision, read_without_copy
from tests.thoroughness import examples

built = pytest.mark.skipif(native.library("moves") is None, reason="the library was not built: no C++ compiler")
RULES: dict[str, Any] = {
    "sgd": SGD(learning_rate=0.1),
    "adagrad": Adagrad(learning_rate=0.1),
    "adam": Adam(learning_rate=0.01),
}
KINDS = {
    "sgd": st.builds(SGD),
    "adagrad": st.builds(Adagrad),
    "rowwise_adagrad": st.builds(RowwiseAdagrad, initial_accumulator_value=st.sampled_from([0.0, 0.1])),
    "adagrad_momentum": st.builds(
        AdagradMomentum,
        momentum=st.sampled_from([0.0, 0.9]),
        use_nesterov=st.booleans(),
        exponent=st.sampled_from([1 / 3, 0.5, 1.0, 2.0, 3.0]),
        beta2=st.sampled_from([0.9, 1.0]),
    ),
    "adam": st.builds(Adam, sum_inside_sqrt=st.booleans()),
    "ftrl": st.builds(
        FTRL,
        learning_rate_power=st.sampled_from([-0.5, -0.7, -1.0, -2.0, 0.0]),
        l1_regularization_strength=st.sampled_from([0.0, 0.01]),
        l2_regularization_strength=st.sampled_from([0.0, 0.1]),
        beta=st.sampled_from([0.0, 1.0]),
        multiply_linear_by_learning_rate=st.booleans(),
    ),
}
LIMITS = st.fixed_dictionaries(
    {"learning_rate": st.sampled_from([0.1, 0.01])},
    optional={
        "clipvalue": st.sampled_from([0.05, (-0.01, 0.2)]),
        "clipnorm": st.sampled_from([0.01, 1.0, 10.0]),
        "weight_decay_factor": st.just(0.01),
        "multiply_weight_decay_factor_by_learning_rate": st.booleans(),
        "clip_weight_min": st.just(-0.5),
        "clip_weight_max": st.just(0.7),
    },
)
ROWS, STEPS = 300, 3
TYPES = [tf.float32, tf.bfloat16, tf.float16]
KEYS = [None, (0, 0), (0x89ABCDEF, 0xFFFFFFFF)]

PRECISIONS = st.builds(Precision, st.sampled_from(TYPES), st.sampled_from(TYPES), st.sampled_from(KEYS))
MULTIPLIERS = {
    "two groups": (np.float32([[0, 1]]), [0]),
    "own rates": (np.float32([[0.25, 0, 3]]), [0]),
    "phases": (np.float32([[0, 1, 0.3, 0], [1, 0, 1, 0]]), [0, 2]),
}


def table_of(rule: Any, rows: int, dim: int, **settings: Any) -> EmbeddingTable:
    table = EmbeddingTable("item", rows, dim, slots=optimizers.slots_of(rule), row_slots=rule.row_slots, **settings)
    table.write(0, np.random.default_rng(3).standard_normal((rows, dim)).astype(np.float32))
    return table


def grouped(layout: str, rule: Any, dim: int, frozen: str | None, path: Path, precision: Precision = SINGLE) -> Any:
    """A table with groups of rows, in one variable, in two, or with frozen rows in a file."""
    if frozen is None:
        return table_of(rule, ROWS, dim, precision=precision)
    generator = np.random.default_rng(5)
    multipliers, starts = MULTIPLIERS[frozen]
    groups = RowGroups("item", generator.integers(0, multipliers.shape[1], ROWS).astype(np.uint8), multipliers, starts)
    if layout == "variable":
        return table_of(rule, ROWS, dim, groups=groups, precision=precision)
    values = np.random.default_rng(3).standard_normal((ROWS, dim)).astype(np.float32)
    mapping = file_rows = None
    if layout == "memory_map":
        file_rows = np.where(generator.random(ROWS) < 0.8, generator.permutation(ROWS), -1)
        file_rows[np.flatnonzero(groups.frozen_rows())[0]] = ROWS
        matrix = np.full((ROWS + 1, dim), np.nan, np.float32)
        matrix[file_rows[file_rows >= 0]] = values[file_rows >= 0]
        np.save(path, matrix)
        mapping = np.asarray(np.load(path, mmap_mode="c"))
    slots = optimizers.slots_of(rule)
    settings: dict[str, Any] = {"slots": slots, "row_slots": rule.row_slots, "precision": precision}
    table = SplitTable("item", groups, dim, mapping=mapping, file_rows=file_rows, **settings)
    for part, rows in table.fills(ArrayRows(values)):
        part.write(0, rows.read(0, rows.rows))
    return table


def trained(
    table: Any, rule: Any, ids: np.ndarray, gradients: np.ndarray, *, schedule: bool, bag: bool = False
) -> dict[str, np.ndarray]:
    """Bits of rows, slots and marks after some steps of two features that share a table."""
    features = {"one": Feature(table="item"), "two": Feature(table="item")}
    counter = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"item": table}, features, {"item": rule}, step=counter, total_steps=10)

    @tf.function(reduce_retracing=True)
    def train(ids: Any, gradients: Any) -> None:
        for step in tf.range(tf.shape(ids)[0]):
            two = tf.RaggedTensor.from_row_lengths(ids[step, :3], [2, 0, 1]) if bag else ids[step, :3]
            engine.enqueue({"one": ids[step], "two": two}, training=True)
            found = engine.activations()
            mine = found["one"] * gradients[step]
            rates = {"item": 0.5 / (1.0 + tf.cast(step, tf.float32))} if schedule else None
            engine.apply_gradients({"one": mine, "two": found["two"]}, rates)
            counter.assign_add(1)

    train(tf.constant(ids), tf.constant(gradients))
    state = {str(slot): table.read(0, ROWS, slot).view(np.int32) for slot in (None, *table.slots)}
    return state | {"touched": table.touched.numpy()}


@built
@pytest.mark.parametrize("kind", KINDS)
@examples(2)
@given(
    data=st.data(),
    dim=st.sampled_from([1, 4, 7, 8, 12, 32, 50]),
    count=st.sampled_from([4, 60, 700, 17_000]),
    seed=st.integers(0, 2**16),
    schedule=st.booleans(),
    dtype=st.sampled_from([np.int32, np.int64]),
    layout=st.sampled_from(["variable", "split", "memory_map"]),
    frozen=st.sampled_from([None, *MULTIPLIERS]),
    bag=st.booleans(),
    per_epoch=st.booleans(),
)
def test_steps_have_the_bits_of_tensorflows_operations(
    kind: str,
    data: st.DataObject,
    dim: int,
    count: int,
    seed: int,
    schedule: bool,
    dtype: type,
    layout: str,
    frozen: str | None,
    bag: bool,
    per_epoch: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rule = data.draw(KINDS[kind]).model_copy(update=data.draw(LIMITS))
    random = np.random.default_rng(seed)
    ids = random.integers(0, ROWS, (STEPS, count)).astype(dtype)
    gradients = random.normal(0, 0.1, (STEPS, count, dim)).astype(np.float32)
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    precision = SINGLE if layout == "memory_map" else data.draw(PRECISIONS)
    table = grouped(layout, rule, dim, frozen, path, precision)
    if per_epoch:
        table.shares = DecayShares("item", random.zipf(1.3, ROWS).clip(0, 10**6), 7.5)
    assert fused_rows.moves(table, rule)
    before = table.read(0, ROWS).copy().view(np.int32)
    found = trained(table, rule, ids, gradients, schedule=schedule, bag=bag)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda _: None)
        other = grouped(layout, rule, dim, frozen, path, precision)
        other.shares = table.shares
        expected = trained(other, rule, ids, gradients, schedule=schedule, bag=bag)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    if frozen is not None:
        still = table.groups.frozen_rows()
        np.testing.assert_array_equal(found["None"][still], before[still])
    assert (found["None"] != before).any()


@built
@pytest.mark.parametrize("frozen", [None, "two groups"])
def test_rows_of_a_part_are_rounded_by_their_numbers_in_the_table(frozen: str | None, tmp_path: Path) -> None:
    """A table of more than 2^32 rows."""

    def numbered(ids: Any) -> Any:
        return 3 * tf.cast(ids, tf.int64) + 2**33

    random, rule = np.random.default_rng(4), RULES["adagrad"]
    ids = random.integers(0, ROWS, (STEPS, 60)).astype(np.int32)
    gradients = random.normal(0, 0.1, (STEPS, 60, 8)).astype(np.float32)
    found = []
    for library, precision in (
        (native.library, Precision(tf.bfloat16, key=(1, 2), numbered=numbered)),
        (lambda _: None, Precision(tf.bfloat16, key=(1, 2), numbered=numbered)),
        (native.library, Precision(tf.bfloat16, key=(1, 2))),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "library", library)
            table = grouped("variable", rule, 8, frozen, tmp_path, precision)
            found.append(trained(table, rule, ids, gradients, schedule=False)["None"])
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


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
    for one, other in zip(fused_rows.unique(tf.constant(ids, dtype)), tf.unique(tf.constant(ids, dtype)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@built
@pytest.mark.parametrize("dim", [1, 7, 32])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gathered_rows_are_those_of_the_table(dim: int, dtype: type) -> None:
    table = table_of(RULES["sgd"], 300, dim)
    ids = np.random.default_rng(0).integers(0, 300, 2000).astype(dtype)
    found = fused_rows.gather(table, "one", tf.constant(ids))
    np.testing.assert_array_equal(found.numpy(), table.read(0, 300)[ids])
    for outside in (-1, 300):
        message = f"feature 'one' looks up id {outside} in table 'item', whose ids are 0 to 299"
        with pytest.raises(VocabularyError, match=message), inputs.translated_errors():
            fused_rows.gather(table, "one", tf.constant([3, outside], dtype))


@built
def test_ids_outside_of_the_table_are_refused() -> None:
    table = table_of(RULES["sgd"], 40, 8)
    for ids, positions in (([40], [0]), ([-1], [0]), ([3], [1]), ([3], [-1])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="is outside of the"):
            native.library("moves").embexp_move_rows(
                variables=[table.variable.handle],
                ids=tf.constant(ids),
                positions=[tf.constant(positions)],
                gradients=[tf.ones([1, 8])],
                rate=tf.constant(1.0),
                touched=[],
                groups=[],
                multipliers=[],
                places=[],
                step=[],
                shares=[],
                numbers=[],
                rule="sgd",
            )


@pytest.mark.parametrize(
    "rule",
    [Adam(lazy_adam=False), CustomTableOptimizer(function="tests.tables.test_fused_rows:table_of", learning_rate=0.1)],
)
def test_other_rules_are_left_to_tensorflow(rule: Any) -> None:
    assert not fused_rows.moves(table_of(rule, 40, 8), rule)
