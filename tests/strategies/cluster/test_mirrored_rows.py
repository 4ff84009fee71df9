"""Copies of a table, looked up, and moved by what all workers have sent, against formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from embexp.initialization.filling import TablePlan
from embexp.specs.inits import Assign
from embexp.specs.optimizers import Adagrad
from embexp.specs.tables import Feature
from embexp.strategies.cluster.rows import CopiedRows, MirroredTable
from embexp.tables import inputs
from embexp.tables.inputs import EveryRow, Occurrences

RATE, FIRST, DIM = 0.1, 0.5, 16
SIZES = {"in one piece": 40, "block by block": 70_000}
"""Rows of tables that are looked up whole; from four megabytes on a rule goes over blocks of them."""


class Given:
    """Rows of an array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]

    def memory_map(self) -> None:
        return None


def copy_of(values: np.ndarray) -> tuple[MirroredTable, CopiedRows]:
    rule = Adagrad(learning_rate=RATE, initial_accumulator_value=FIRST)
    table = MirroredTable(TablePlan("t", Given(values), Assign(), optimizer=rule, mirrored=True), None)
    table.write(0, values)
    step = tf.Variable(0, dtype=tf.int64)
    return table, CopiedRows({"t": table}, {"t": rule}, step=step, total_steps=1)


def check_moved(table: MirroredTable, before: np.ndarray, gradient: np.ndarray) -> None:
    """Adagrad, within what float32 can promise: 2e-6 (|w| + |step|)."""
    exact = gradient.astype(np.float64)
    moved = RATE * exact / np.sqrt(FIRST + exact**2)
    found = table.read(0, table.rows)
    assert (np.abs(found - (before - moved)) <= 2e-6 * (np.abs(before) + np.abs(moved))).all()
    assert (found != before).any()


def read_of(ids: object, every: bool = False) -> Occurrences:
    value = tf.constant(ids)
    return inputs.occurrences("f", Feature(table="t"), "mean", EveryRow(value) if every else value)


@pytest.mark.parametrize("rows", SIZES.values(), ids=SIZES)
def test_all_rows_move_by_the_sum_of_their_gradients(rows: int) -> None:
    random = np.random.default_rng(rows)
    values, gradient = random.standard_normal((2, rows, DIM), dtype=np.float32)
    table, copies = copy_of(values)
    read = {"all": read_of(np.arange(rows)[None], every=True), "some": read_of(np.array([3, 1, 3]))}
    assert copies.moved_whole("t", read)
    for feature, ids in (("all", np.arange(rows)), ("some", [3, 1, 3])):
        found, positions = copies.lookups("t", read, None)[feature]
        gathered = found if positions is None else tf.gather(found, positions)
        assert gathered.numpy().tobytes() == values[ids].tobytes()
    tf.function(lambda: copies.move({}, {}, {"t": tf.constant(gradient)}))()
    check_moved(table, values, gradient)
    assert table.touched_rows() == rows


def test_rows_move_by_what_every_worker_has_sent() -> None:
    random = np.random.default_rng(4)
    values = random.standard_normal((40, DIM), dtype=np.float32)
    of_workers = [random.permutation(40)[:count] for count in (7, 0, 9)]
    ids = np.concatenate(of_workers)
    gradients = random.standard_normal((len(ids), DIM), dtype=np.float32)
    table, copies = copy_of(values)
    assert not copies.moved_whole("t", {"f": read_of(ids)})
    tf.function(lambda: copies.move({"t": tf.constant(ids)}, {"t": tf.constant(gradients)}, {}))()
    summed = np.zeros((40, DIM))
    np.add.at(summed, ids, gradients.astype(np.float64))
    check_moved(table, values, summed)
    untouched = np.setdiff1d(np.arange(40), ids)
    assert table.take(untouched).tobytes() == values[untouched].tobytes()
    assert table.touched_rows() == len(np.unique(ids))
