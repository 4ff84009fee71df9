"""Weight decay of SGD in each place where tables can be, against float64; and what only SparseCores have of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import RunError
from embexp.specs.optimizers import SGD, Adagrad, PiecewiseSchedule
from embexp.specs.sparse_cores import Chips, Limits, Vectors, distinct_rows
from embexp.specs.tables import Combiner, Feature
from embexp.tables.inputs import translated_errors
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_backend import SparseCoreDecay, TPUBackend
from embexp.tables.tpu_tables import TPUTable
from tests.tables.test_tpu_backend import BATCH, DIM, FIRST, FROZEN, ROWS, STEPS, Recorded, on_tpu, ragged

RATE, LENGTHS = 0.125, (3, 0, 4, 1)
EVER = ROWS - 2
"""Batches look up rows below this."""
NEVER = np.arange(ROWS) >= EVER
SCHEDULE = PiecewiseSchedule(boundaries=(1, 3), values=(1.0, 0.25, 0.5))
RULES = {
    "fixed": SGD(learning_rate=RATE, weight_decay_factor=0.125),
    "by rate": SGD(learning_rate=RATE, weight_decay_factor=0.375, multiply_weight_decay_factor_by_learning_rate=True),
    "fixed, scheduled": SGD(learning_rate=RATE, weight_decay_factor=0.125, schedule=SCHEDULE),
    "by rate, scheduled": SGD(
        learning_rate=RATE,
        weight_decay_factor=0.375,
        multiply_weight_decay_factor_by_learning_rate=True,
        schedule=SCHEDULE,
    ),
}
FEATURES = {"one": Feature(table="t"), "bag": Feature(table="t")}
SPECS = {"one": tf.TensorSpec([BATCH], tf.int64), "bag": tf.RaggedTensorSpec([BATCH, None], tf.int64, 1)}
Lists = list[list[Any]]


@dataclass(frozen=True)
class Batch:
    """A replica's part: an id for each example of `one`; ids with weights of `bag`."""

    one: list[int]
    bag: Lists
    weights: Lists

    @property
    def inputs(self) -> dict[str, Any]:
        return {
            "one": tf.constant(self.one, tf.int64),
            "bag": (ragged(self.bag), ragged(self.weights, tf.float32)),
        }


def slope(activations: Any) -> Any:
    """Some loss's gradient, which depends little on rounding."""
    return tf.cos(activations * 0.25)


def batches(replicas: int) -> list[list[Batch]]:
    """Of each step and replica: with ids that others have, too, and that it has several times, also in one vector."""
    generator = np.random.default_rng(1)

    def draw() -> Batch:
        bag = [generator.integers(0, EVER, length).tolist() for length in LENGTHS]
        bag[2][:2] = bag[0][:1] * 2
        weights = [generator.uniform(0.5, 2.0, length).tolist() for length in LENGTHS]
        return Batch(generator.integers(0, EVER, BATCH).tolist(), bag, weights)

    return [[draw() for _ in range(replicas)] for _ in range(STEPS)]


def in_float64(rule: SGD, combiner: Combiner, frozen: np.ndarray, steps: list[list[Batch]]) -> tuple[Any, Any]:
    """Rows after all steps, and how far each number has come, from 0."""
    rows = FIRST.astype(np.float64)
    moved = np.abs(rows)
    for number, step in enumerate(steps):
        rate, sums = rule.learning_rate, np.zeros_like(rows)
        if rule.schedule is SCHEDULE:
            rate *= SCHEDULE.values[int(np.searchsorted(SCHEDULE.boundaries, number, side="right"))]
        touched = np.zeros(ROWS, bool)
        for batch in step:
            ones = [([id_], [1.0], 1.0) for id_ in batch.one]
            bags = [
                (ids, weights, by(combiner, weights)) for ids, weights in zip(batch.bag, batch.weights, strict=True)
            ]
            for ids, weights, denominator in ones + [bag for bag in bags if bag[0]]:
                factors = np.float32(weights).astype(np.float64)[:, None] / denominator
                np.add.at(sums, ids, factors * np.cos(0.25 * (factors * rows[ids]).sum(0)))
                touched[ids] = True
        decay = rule.weight_decay_factor * (rate if rule.multiply_weight_decay_factor_by_learning_rate else 1)
        change = np.where((touched & ~frozen)[:, None], -decay * rows - rate * sums, 0)
        rows, moved = rows + change, moved + np.abs(change)
    return rows, moved


def by(combiner: Combiner, weights: list[float]) -> float:
    """What a vector's sum is divided by."""
    each = np.float32(weights).astype(np.float64)
    return {Combiner.SUM: 1.0, Combiner.MEAN: each.sum(), Combiner.SQRTN: np.sqrt((each**2).sum())}[combiner]


def alone(rule: SGD, combiner: Combiner, steps: list[list[Batch]]) -> np.ndarray:
    """The row engine's rows, which get the parts of all replicas as one batch."""
    step = tf.Variable(0, dtype=tf.int64)
    table = EmbeddingTable("t", ROWS, DIM, combiner=combiner)
    table.write(0, FIRST)
    engine = RowEngine({"t": table}, FEATURES, {"t": rule}, step=step, total_steps=STEPS)
    for parts in steps:
        names = ("one", "bag", "weights")
        whole = Batch(*([each for part in parts for each in getattr(part, name)] for name in names))
        engine.enqueue(whole.inputs, training=True)
        engine.apply_gradients({name: slope(found) for name, found in engine.activations().items()})
        step.assign_add(1)
    return table.read(0, ROWS)


def on_simulated(
    feature: str, chips: int, cores: int, rule: SGD, combiner: Combiner, frozen: np.ndarray, steps: list[list[Batch]]
) -> np.ndarray:
    with embexp.tpu_simulator(chips, embedding_feature=feature, sparse_cores=cores) as strategy:
        with strategy.scope():
            step = tf.Variable(0, dtype=tf.int64)
        split = frozen if frozen.any() else None
        table = TPUTable("t", Recorded(), ROWS, DIM, combiner=combiner, optimizer=rule, frozen_rows=split)
        limits = Limits() if feature == "V2" else None
        backend = TPUBackend(strategy, {"t": table}, FEATURES, SPECS, step=step, total_steps=STEPS, sparse_cores=limits)

        @tf.function(autograph=False)
        def train(given: Any, *, training: bool) -> Any:
            backend.enqueue(given, training=training)

            def replica() -> Any:
                found = backend.activations()
                if training:
                    backend.apply_gradients({name: slope(each) for name, each in found.items()})
                return found["one"]

            found = backend.run(replica)
            if training:
                step.assign_add(1)
            return found

        def given(parts: list[Batch]) -> Any:
            if chips == 1:
                return parts[0].inputs
            return strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group].inputs
            )

        for parts in steps:
            train(given(parts), training=True)
        rows = table.read(0, ROWS)
        found = strategy.experimental_local_results(train(given(steps[0]), training=False))
        for part, each in zip(steps[0], found, strict=True):
            assert each.numpy().tobytes() == rows[part.one].tobytes()
        assert table.read(0, ROWS).tobytes() == rows.tobytes()
        return rows


SPARSE_CORES = {"1 chip": (1, 4), "2 chips": (2, 2), "4 chips": (4, 1)}
CASES = [
    *(("cpu", rule, Combiner.MEAN, False) for rule in RULES),
    ("V1", "by rate, scheduled", Combiner.MEAN, False),
    ("1 chip", "fixed", Combiner.SUM, False),
    ("2 chips", "fixed", Combiner.MEAN, False),
    ("2 chips", "by rate", Combiner.MEAN, True),
    ("2 chips", "fixed, scheduled", Combiner.SQRTN, True),
    ("2 chips", "by rate, scheduled", Combiner.SQRTN, False),
    pytest.param("4 chips", "fixed, scheduled", Combiner.MEAN, True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("place", "rule", "combiner", "split"), CASES)
def test_a_row_decays_once_in_a_step_that_looks_it_up(place: str, rule: str, combiner: Combiner, split: bool) -> None:
    """Whatever its occurrences in vectors, features and replicas, and their weights. Others keep their bits."""
    chips, cores = SPARSE_CORES.get(place, (2, 4))
    steps, frozen = batches(chips), FROZEN if split else np.zeros(ROWS, bool)
    if place == "cpu":
        found = alone(RULES[rule], combiner, steps)
    else:
        feature = "V2" if place in SPARSE_CORES else place
        found = on_simulated(feature, chips, cores, RULES[rule], combiner, frozen, steps)
    expected, moved = in_float64(RULES[rule], combiner, frozen, steps)
    assert (np.abs(found - expected) <= 1e-6 * moved).all()
    still = frozen | NEVER
    assert found[still].tobytes() == FIRST[still].tobytes()
    assert (found[~still] != FIRST[~still]).any(1).all()


def of_two_tables(strategy: Any, rules: dict[str, SGD]) -> TPUBackend:
    with strategy.scope():
        step = tf.Variable(0, dtype=tf.int64)
    tables = {name: TPUTable(name, Recorded(), ROWS, DIM, optimizer=rule) for name, rule in rules.items()}
    features = {name.upper(): Feature(table=name) for name in rules}
    specs = dict.fromkeys(features, SPECS["one"])
    return TPUBackend(strategy, tables, features, specs, step=step, total_steps=1, sparse_cores=Limits())


def test_decay_changes_no_layout() -> None:
    """Tables of one learning rate are stacked, whatever their decay, and its features come after the others."""
    rules = {"a": RULES["fixed"], "b": RULES["by rate"], "c": SGD(learning_rate=0.5, weight_decay_factor=0.1)}
    with embexp.tpu_simulator(2, embedding_feature="V2") as strategy:
        decayed = of_two_tables(strategy, rules).embedding
        plain = of_two_tables(strategy, {name: rule.without_decay for name, rule in rules.items()}).embedding
        assert list(decayed.embedding_tables) == ["a_b", "c"]
        assert decayed.embedding_layouts == plain.embedding_layouts
        features = [path for path, _ in decayed._flat_features]
        assert features == [*(path for path, _ in plain._flat_features), "~decay/a", "~decay/b", "~decay/c"]


def distinct(rows: int, *vectors: Vectors, chips: Chips, limit: int | None = None) -> Any:
    return distinct_rows(rows, vectors, Limits(max_ids_per_chip_per_sample=limit), chips)


CHIPS = Chips(2, 4)
ONES, BAGS = Vectors("t", 24, 1), Vectors("t", 8, 5, bag=True)


@pytest.mark.parametrize(
    ("rows", "vectors", "limit", "count", "enough"),
    [
        (1000, [ONES], None, 24, True),
        (1000, [ONES], 64, 24, True),
        (30, [ONES], None, 16, True),
        (1000, [ONES, BAGS], None, 64, False),
        (1000, [ONES, BAGS], 3, 64, False),
        (1000, [ONES, BAGS], 8, 88, False),
        (128, [ONES, BAGS], None, 64, True),
        (129, [ONES, BAGS], 1000, 68, True),
    ],
)
def test_there_are_vectors_for_all_ids_or_all_rows(
    rows: int, vectors: list[Vectors], limit: int | None, count: int, enough: bool
) -> None:
    found = distinct(rows, *vectors, chips=CHIPS, limit=limit)
    assert (found.count, found.enough) == (count, enough)


@pytest.mark.parametrize("ids", [129, 200, 500])
def test_the_limit_that_is_named_is_sufficient(ids: int) -> None:
    found = distinct(1000, ONES, BAGS, chips=CHIPS)
    limit = found.sufficient(ids)
    assert found.room < ids <= distinct(1000, ONES, BAGS, chips=CHIPS, limit=limit).room
    assert distinct(1000, ONES, BAGS, chips=CHIPS, limit=limit - 8).room < ids


@pytest.mark.parametrize("ids", [[], [[5]], [[[3, 7], [3, 1]], [9, 7]], [list(range(48))]])
def test_distinct_ids_are_dealt_out_evenly(ids: list[Any]) -> None:
    decay = SparseCoreDecay("t", "t", (), RULES["fixed"], distinct(1000, ONES, chips=CHIPS))
    parts = decay.deal([tf.constant(each) for each in ids])
    assert [part.shape[0] for part in parts] == [24, 24]
    lengths = np.concatenate([part.row_lengths().numpy() for part in parts])
    expected = sorted({id_ for each in ids for id_ in np.ravel(each).tolist()})
    assert sorted(tf.concat([part.values for part in parts], 0).numpy().tolist()) == expected
    assert lengths.max() == (1 if expected else 0)
    of_each = lengths.reshape(CHIPS.partitions, -1).sum(1)
    assert of_each.max() - of_each.min() <= 1


def look_up(limit: int | None, *, training: bool = True) -> None:
    """A step of 10 distinct rows in four vectors, where there is room for two ids of each by default."""
    lists = [[0, 1, 2, 3], [4, 5, 6], [7, 8], [9]]
    with embexp.tpu_simulator(1, embedding_feature="V2") as strategy:
        with strategy.scope():
            step = tf.Variable(0, dtype=tf.int64)
        table = TPUTable("t", Recorded(), ROWS, DIM, optimizer=RULES["fixed"])
        backend = TPUBackend(
            strategy,
            {"t": table},
            {"f": Feature(table="t")},
            {"f": SPECS["bag"]},
            step=step,
            total_steps=1,
            sparse_cores=Limits(max_ids_per_chip_per_sample=limit),
            most_ids={"f": 2},
        )

        @tf.function(autograph=False)
        def step_of_all() -> None:
            backend.enqueue({"f": ragged(lists)}, training=training)

            def replica() -> None:
                found = backend.activations()["f"]
                if training:
                    backend.apply_gradients({"f": slope(found)})

            backend.run(replica)

        with translated_errors():
            step_of_all()
        assert (table.read(0, ROWS) != FIRST).any(1).tolist() == [training] * 10 + [False] * 3


def test_more_rows_than_there_is_room_for_are_an_error() -> None:
    words = (
        "^table 't': a step looks up 10 distinct rows, but SparseCores have room for the weight decay of 8; set"
        " strategy.max_ids_per_chip_per_sample to 8 or more$"
    )
    with pytest.raises(RunError, match=words):
        look_up(None)
    look_up(8)
    look_up(None, training=False)


def test_decay_of_other_rules_does_not_go_unnoticed() -> None:
    inert = Adagrad(multiply_weight_decay_factor_by_learning_rate=True)
    with embexp.tpu_simulator(1, embedding_feature="V2") as strategy:
        on_tpu(strategy, FEATURES["one"], SPECS["one"], optimizer=inert)
        with pytest.raises(NotImplementedError, match="weight_decay_factor"):
            on_tpu(strategy, FEATURES["one"], SPECS["one"], optimizer=Adagrad(weight_decay_factor=0.1))
