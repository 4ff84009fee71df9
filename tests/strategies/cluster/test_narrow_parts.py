"""Rows of 16 bits on several workers: each is rounded as in the whole table, by its number there.

And rows that start again with an epoch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.initialization import filling
from embexp.initialization.filling import Grouped, TablePlan
from embexp.specs.inits import Assign
from embexp.specs.optimizers import Adagrad, Adam, TableOptimizer
from embexp.specs.tables import Feature, Storage
from embexp.strategies.cluster.partition import Partition
from embexp.strategies.cluster.rows import make_tables, sharded
from embexp.system.arrays import ArrayRows
from embexp.tables.row_engine import RowEngine
from embexp.tables.variables import Precision
from tests import checkpoint_values
from tests.strategies.cluster.cluster_runs import command, done, summary
from tests.strategies.cluster.test_multi_worker import SAVED, resumed_from_step_80

ROWS, DIM, WORKERS, STEPS = 500, 8, 2, 3
NARROW = Precision(tf.bfloat16, tf.float16, (0x1234, 0x9ABCDEF0))
CASES: dict[str, tuple[TableOptimizer, Storage | None]] = {
    "frozen rows": (Adagrad(), Storage.VARIABLE),
    "frozen rows, split": (Adagrad(), Storage.SPLIT),
    "no frozen rows": (Adagrad(), None),
    "a rule that moves all rows, by TensorFlow": (Adam(lazy_adam=False), Storage.SPLIT),
}


def moved(table: Any, rule: TableOptimizer, numbers: np.ndarray) -> dict[str | None, np.ndarray]:
    """A table and its slots after steps that look up every second of its rows, once each, by one feature.

    Args:
        numbers: of its rows, in the whole table.
    """
    counter = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"t": table}, {"f": Feature(table="t")}, {"t": rule}, step=counter, total_steps=STEPS)
    gradients = np.random.default_rng(1).standard_normal((STEPS, ROWS, DIM)).astype(np.float32)

    @tf.function(reduce_retracing=True)
    def train(ids: Any, gradient: Any) -> None:
        engine.enqueue({"f": ids}, training=True)
        engine.activations()
        engine.apply_gradients({"f": gradient})
        counter.assign_add(1)

    for step in range(STEPS):
        ids = np.flatnonzero((numbers + step) % 2 == 0)
        train(tf.constant(ids, tf.int32), tf.constant(gradients[step, numbers[ids]]))
    return {slot: table.read(0, len(numbers), slot) for slot in (None, *table.slots)}


@pytest.mark.parametrize(("rule", "storage"), CASES.values(), ids=CASES)
def test_parts_have_the_bits_of_the_whole(rule: TableOptimizer, storage: Storage | None) -> None:
    values = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
    settings: dict[str, Any] = {}
    if storage is not None:
        groups = (np.arange(ROWS) % 5 == 0).astype(np.uint8)
        grouped = Grouped("t", groups, np.float32([[1, 0]]), [0])
        settings = {"storage": storage, "groups": grouped, "frozen_rows": groups == 1}
    plan = TablePlan("t", ArrayRows(values), Assign(), optimizer=rule, precision=NARROW, **settings)
    whole = filling.make_tables({"t": plan})["t"]
    filling.fill_tables({"t": whole}, {"t": plan})
    expected = moved(whole, rule, np.arange(ROWS))
    assert np.unique(expected[None] - values).size > ROWS  # they moved
    partition = Partition.of(ROWS, WORKERS, 2)
    for worker in range(WORKERS):
        tables = make_tables({"t": plan}, worker=worker, workers=WORKERS, block=2, leader=None)
        filling.fill_tables(tables, {"t": plan})
        numbers = partition.numbers(worker, 0, partition.count(worker))
        found = moved(sharded(tables)["t"].own, rule, numbers)
        for slot, rows in expected.items():
            assert found[slot].tobytes() == rows[numbers].tobytes(), (worker, slot)


SETTINGS = (
    *("experiment=clicks", "model=dot", "~features.history", "optimizer=adagrad", "train.batch_size=2"),
    *("data.examples=110", "data.users=40", "data.items=80", "train.steps=100", "train.epochs=null"),
    *("tables.user.dtype=bfloat16", "tables.item.dtype=float16", "tables.item.slot_dtype=bfloat16"),
    *("tables.user.reset=epoch", "tables.item.reset=epoch"),
    *("freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[0,20],[40,45]]", *SAVED),
    *("output.plots=false", "output.tensorboard=false", "output.baselines=false"),
)


def resets(directory: Path) -> list[tuple[int, dict[str, int]]]:
    """The step, and how many rows of each table started again."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["step"], line["rows"]) for line in lines if line["event"] == "reset"]


@pytest.mark.slow
def test_of_two_examples_a_step_two_workers_have_the_bits_of_one_process(tmp_path: Path) -> None:
    """No sum of gradients has more than two addends then, so nothing depends on their order.

    Also if it was resumed between two resets.
    """
    one, two = tmp_path / "one", tmp_path / "two"
    for directory, strategy in ((one, ()), (two, ("strategy=multi_worker",))):
        done(command("run", *SETTINGS, *strategy, f"output.cache={tmp_path}", f"hydra.run.dir={directory}"))
    assert [step for step, _ in resets(one)] == [44, 88]  # epochs of 88 examples
    expected = checkpoint_values.tables(one / "checkpoints" / "final")
    assert expected["user"][None].dtype.name == "bfloat16"
    for resumed in (False, True):
        if resumed:
            resumed_from_step_80(two)
        found = checkpoint_values.tables(two / "checkpoints" / "final")
        for table, parts in expected.items():
            for slot, rows in parts.items():
                assert found[table][slot].dtype == rows.dtype
                assert found[table][slot].tobytes() == rows.tobytes(), (table, slot)
        for name, each in summary(one)["tables"].items():
            assert summary(two)["tables"][name]["digest"] == each["digest"]
        assert summary(two)["freeze"] == summary(one)["freeze"]
        assert resets(two) == resets(one)
