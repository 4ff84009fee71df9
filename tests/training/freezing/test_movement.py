from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from embexp.specs.optimizers import FTRL, SGD, Adagrad, TableOptimizer
from embexp.system.arrays import ArrayRows
from embexp.training.freezing import watching
from embexp.training.freezing.watching import Movement

RANDOM = np.random.default_rng(0)


@dataclass
class Table:
    """Final rows, and accumulators."""

    values: np.ndarray
    accumulators: np.ndarray | None = None
    taken: int = 0

    def take(self, numbers: np.ndarray, slot: str | None = None) -> np.ndarray:
        assert (np.diff(numbers) > 0).all()
        self.taken = len(numbers)
        if slot is None:
            return self.values[numbers]
        if self.accumulators is None:
            raise KeyError(slot)
        return self.accumulators[numbers]


def measured(table: Table, first: np.ndarray, trained: np.ndarray, optimizer: TableOptimizer | None = None) -> Any:
    return watching.measure_movement(
        table, ArrayRows(first), trained, optimizer or Adagrad(initial_accumulator_value=0.1)
    )  # type: ignore[arg-type]


def test_the_median_over_trained_rows() -> None:
    first = RANDOM.normal(size=(101, 8)).astype(np.float32)
    share = RANDOM.random(101)
    trained = np.arange(101) % 2 == 0
    share[~trained] = 50.0
    now = (first * (1 + share[:, None])).astype(np.float32)
    added = RANDOM.random((101, 8))
    found = measured(Table(now, (0.1 + added).astype(np.float32)), first, trained)
    assert found.rows == 51
    assert found.median == pytest.approx(np.median(share[trained]), rel=1e-5)
    assert found.accumulated == pytest.approx(np.median(added[trained]), rel=1e-5)


def test_only_a_sample_is_read() -> None:
    first = np.ones((100_000, 2), np.float32)
    table = Table(2 * first)
    assert measured(table, first, np.ones(100_000, np.bool_)) == Movement(watching.MOST_ROWS, 1.0)
    assert table.taken == watching.MOST_ROWS


def test_what_is_not_known() -> None:
    zeros, trained = np.zeros((4, 1), np.float32), np.ones(4, np.bool_)
    assert measured(Table(zeros + 1), zeros, trained) == Movement(4, None)  # biases begin at 0
    assert measured(Table(zeros), zeros, ~trained) is None
    slots = Table(zeros + 1, zeros + 1)
    assert measured(slots, zeros + 1, trained, SGD()) == Movement(4, 0.0)


def of(optimizer: TableOptimizer, *names: str) -> dict[str, tuple[str, TableOptimizer]]:
    return {name: ("optimizer" if name != "own" else "tables.own.optimizer", optimizer) for name in names}


CASES = {
    "an accumulator that is too large": (Adagrad(initial_accumulator_value=0.1), 0.002, 1e-6, True, "accumulator"),
    "the same in FTRL": (FTRL(initial_accumulator_value=0.1), 0.05, 1e-6, True, "accumulator"),
    "a large learning rate makes up for it": (Adagrad(initial_accumulator_value=0.1), 0.5, 1e-6, True, None),
    "an accumulator that has grown": (Adagrad(initial_accumulator_value=1e-7), 0.05, 1e-4, True, None),
    "small steps, and nothing learned": (SGD(learning_rate=1e-4), 0.005, None, False, "steps"),
    "small steps of what was learned before": (SGD(learning_rate=1e-4), 0.005, None, True, None),
    "large steps, and nothing learned": (SGD(learning_rate=1.0), 0.7, None, False, None),
    "not measured": (Adagrad(initial_accumulator_value=0.1), None, 1e-6, False, None),
    "diverged": (Adagrad(initial_accumulator_value=0.1), float("nan"), 1e-6, False, None),
}


@pytest.mark.parametrize("name", CASES)
def test_which_tables_are_told(name: str) -> None:
    optimizer, median, accumulated, learned, cause = CASES[name]
    found = watching.movement_warnings({"a": Movement(9, median, accumulated)}, of(optimizer, "a"), learned=learned)
    assert bool(found) == (cause is not None)
    if cause is not None:
        assert found[0].startswith(
            f"tables.a: trained rows hardly moved (median distance: {median:.2g} of the initial norm)"
        )
        assert ("is far above the squared gradients" in found[0]) == (cause == "accumulator")
        assert (".learning_rate, which is " in found[0]) == (cause == "steps")


@pytest.mark.parametrize(("left", "told"), [(0.95, True), (None, True), (0.02, False)])
def test_small_gradients_of_small_errors_are_no_fault_of_the_accumulator(left: float | None, told: bool) -> None:
    """Where another column tells the label, nothing is left for the rows to learn."""
    optimizer = Adagrad(initial_accumulator_value=0.1)
    movements = {"a": Movement(9, 0.002, 1e-6)}
    lines = watching.movement_warnings(movements, of(optimizer, "a"), learned=True, loss_left=left)
    assert bool(lines) == told


def test_tables_with_the_same_cause_share_a_line_with_the_remedy() -> None:
    optimizer = Adagrad(learning_rate=0.001, initial_accumulator_value=0.1)
    movements = {name: Movement(9, 0.003, 2.5e-6) for name in ("user", "item", "own")}
    assert watching.movement_warnings(movements, of(optimizer, *movements), learned=True) == [
        "tables.user, tables.item: trained rows hardly moved (median distance: 0.003, 0.003 of the initial norm):"
        " optimizer.initial_accumulator_value = 0.1 is far above the squared gradients that were added to it, 2.5e-06,"
        " which makes every step small; set it to 1e-07 or less",
        "tables.own: trained rows hardly moved (median distance: 0.003 of the initial norm):"
        " tables.own.optimizer.initial_accumulator_value = 0.1 is far above the squared gradients that were added to"
        " it, 2.5e-06, which makes every step small; set it to 1e-07 or less",
    ]
