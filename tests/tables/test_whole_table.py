"""Steps that look up every row, against the path by distinct ids, whatever the optimizer and the blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.errors import VocabularyError
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Feature
from embexp.tables import inputs, optimizers, row_engine, row_updates
from embexp.tables.inputs import EveryRow
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from tests.tables.test_optimizers import RULES

ROWS, DIM, STEPS = 11, 5, 3
FEATURES = {"source": Feature(table="entity"), "candidates": Feature(table="entity")}
SOURCES = np.int32([3, 10, 3, 0, 3])


@pytest.fixture(autouse=True)
def small_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_updates, "_LEAST", 0)


def trained(rule: TableOptimizer, *, whole: bool) -> EmbeddingTable:
    random = np.random.default_rng(0)
    table = EmbeddingTable("entity", ROWS, DIM, slots=optimizers.slots_of(rule))
    table.write(0, random.normal(size=(ROWS, DIM)).astype(np.float32))
    step = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"entity": table}, FEATURES, {"entity": rule}, step=step, total_steps=STEPS)

    @tf.function(autograph=False)
    def train(gradients: Any) -> Any:
        every = tf.range(ROWS)[None]
        engine.enqueue(
            {"source": tf.constant(SOURCES), "candidates": EveryRow(every) if whole else every}, training=True
        )
        activations = engine.activations()
        engine.apply_gradients(gradients)
        return activations

    for _ in range(STEPS):
        before = table.read(0, ROWS).copy()
        shapes = {"source": (len(SOURCES), DIM), "candidates": (1, ROWS, DIM)}
        found = train({name: tf.constant(random.normal(size=shape), tf.float32) for name, shape in shapes.items()})
        np.testing.assert_array_equal(found["source"], before[SOURCES])
        np.testing.assert_array_equal(found["candidates"], before[None])
    return table


@pytest.mark.parametrize("block_rows", [3, 100])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "ftrl regularised", "clipped gradient", "decay"])
def test_the_values_are_those_of_distinct_rows(name: str, block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_updates, "_BLOCK_BYTES", 4 * DIM * block_rows)
    found, expected = trained(RULES[name], whole=True), trained(RULES[name], whole=False)
    for slot in (None, *expected.slots):
        wanted = expected.read(0, ROWS, slot)
        np.testing.assert_allclose(found.read(0, ROWS, slot), wanted, rtol=2e-6, atol=1e-6)
    assert found.touched_rows() == expected.touched_rows() == ROWS


def test_nothing_looks_for_distinct_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_engine, "distinct_ids", None)
    trained(RULES["sgd"], whole=True)
    with pytest.raises(TypeError):
        trained(RULES["sgd"], whole=False)


def test_an_id_outside_of_the_table_is_an_error() -> None:
    rule = RULES["sgd"]
    table = EmbeddingTable("entity", ROWS, DIM)
    engine = RowEngine(
        {"entity": table}, FEATURES, {"entity": rule}, step=tf.Variable(0, dtype=tf.int64), total_steps=1
    )
    ids = {"source": tf.constant([ROWS]), "candidates": EveryRow(tf.range(ROWS)[None])}
    with pytest.raises(VocabularyError, match="looks up id 11 in table 'entity'"), inputs.translated_errors():
        engine.enqueue(ids, training=True)
