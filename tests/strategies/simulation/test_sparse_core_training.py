"""Training on SparseCores against the first generation, and against float64, for inputs of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as draw

import embexp
from embexp.specs import optimizers
from embexp.specs.tables import Combiner, Feature
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from tests.strategies.simulation import programs
from tests.strategies.simulation.programs import COMBINERS, DIM, GRADIENT, KINDS, ROWS, SAMPLES, as_tensors, of_kind
from tests.strategies.simulation.reference import RULES, Ids, Table
from tests.thoroughness import examples, thorough

STEPS = 2
REPLICAS = [1, 2, 4] if thorough() else [1, 2]
"""Four are traced in twice the time."""
LISTS = draw.lists(
    draw.lists(draw.tuples(draw.integers(0, ROWS - 1), draw.sampled_from([0.5, 1.0, 2.0])), max_size=5),
    min_size=SAMPLES,
    max_size=SAMPLES,
)
"""For each sample ids with weights; ids repeat, and samples may have none."""


def train(feature: str, rule: str, combiner: str, kind: str, batches: list[list[Ids]], sparse_cores: int) -> Any:
    with embexp.tpu_simulator(cores=len(batches[0]), embedding_feature=feature, sparse_cores=sparse_cores) as strategy:
        return programs.train(strategy, rule, combiner, kind, batches)


def on_processor(rule: str, combiner: str, kind: str, batches: list[list[Ids]]) -> np.ndarray:
    """The rows after the same steps of the row engine, which gets the ids of all replicas at once."""
    optimizer = getattr(optimizers, rule)(learning_rate=RULES[rule].rate, **RULES[rule].own)
    table = EmbeddingTable("t", ROWS, DIM, combiner=Combiner(combiner), slots=optimizers.slots_of(optimizer))
    table.write(0, np.full([ROWS, DIM], 0.75, np.float32))
    features, step = {"seen": Feature(table="t")}, tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"t": table}, features, {"t": optimizer}, step=step, total_steps=len(batches))
    for batch in batches:
        ids, weights = as_tensors(kind, [one for lists in batch for one in lists])
        engine.enqueue({"seen": ids if weights is None else (ids, weights)}, training=True)
        engine.activations()
        engine.apply_gradients({"seen": tf.constant(np.tile(GRADIENT, [len(batch), 1]))})
        step.assign_add(1)
    return table.read(0, ROWS)


@pytest.mark.parametrize("rule", RULES)
@examples(4)
@given(data=draw.data())
def test_every_input_trains_as_in_float64_and_as_elsewhere(rule: str, data: Any) -> None:
    """On the first generation, and on a processor.

    Each is within 1e-6 of float64, relative to how far an element has moved in all, its first value included. Relative
    to the value itself no bound holds: a row that moves close to 0 keeps the rounding of the way there. Sums of
    gradients are rounded too, in another order in each place, and where they cancel, what is left of them is small.
    """
    replicas, cores = data.draw(draw.sampled_from(REPLICAS)), data.draw(draw.sampled_from([1, 2, 4]))
    combiner, kind = data.draw(draw.sampled_from(COMBINERS)), data.draw(draw.sampled_from(KINDS))
    batches = [[of_kind(kind, data.draw(LISTS)) for _ in range(replicas)] for _ in range(STEPS)]

    exact = Table(np.full([ROWS, DIM], 0.75), RULES[rule])
    expected = []
    for batch in batches:
        expected.append([exact.look_up(lists, combiner) for lists in batch])
        for lists in batch:
            exact.add(lists, combiner, GRADIENT.astype(np.float64))
        exact.step()

    found, tables = train("V2", rule, combiner, kind, batches, cores)
    before, others = train("V1", rule, combiner, kind, batches, cores)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found, before, rtol=1e-6, atol=1e-6)
    scale = 1e-6 * exact.path
    assert (np.abs(tables["parameters"] - exact.rows) <= scale).all()
    assert (np.abs(tables["parameters"] - others["parameters"]) <= scale).all()
    alone = on_processor(rule, combiner, kind, batches)
    assert (np.abs(alone - exact.rows) <= scale).all()
    assert (np.abs(tables["parameters"] - alone) <= scale).all()
    for slot, values in exact.slots.items():
        np.testing.assert_allclose(tables[slot], values, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(tables[slot], others[slot], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_bits_are_those_of_any_number_of_sparse_cores(rule: str) -> None:
    """Of one id a vector: the gradients of a row are summed in the order of samples, wherever the row is."""
    batches = [[[[(number % 3, 1.0)] for number in range(step, step + SAMPLES)] for _ in range(2)] for step in range(3)]
    found, tables = train("V2", rule, "sum", "dense", batches, 1)
    for cores in (2, 4):
        others, moved = train("V2", rule, "sum", "dense", batches, cores)
        np.testing.assert_array_equal(others, found)
        for slot, values in tables.items():
            assert moved[slot].tobytes() == values.tobytes()
