"""Every strategy and runtime tells which rows its steps looked up, and can go on with those of a checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embexp.specs.optimizers import Adagrad
from embexp.specs.running import RuntimeKind
from embexp.specs.strategies import CPU
from tests.contracts import experiments
from tests.contracts.experiments import ROWS
from tests.contracts.strategies import STRATEGIES, kinds, marked
from tests.exact_training import Examples


def moved(batch: Examples, step: int) -> Examples:
    """The same batch, with ids among three rows of each table, which are others in other steps."""
    given = {
        feature: [[(place, row % 3 + 2 * step, weight) for place, row, weight in example] for example in lists]
        for feature, lists in batch.given.items()
    }
    return dataclasses.replace(batch, given=given)


BATCHES = [moved(batch, step) for step, batch in enumerate(experiments.examples(5))]


def looked_up(batches: list[Examples]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {name: set() for name in ROWS}
    for feature, how in experiments.looked("mean").items():
        for batch in batches:
            for example in batch.given[feature]:
                found[how.table] |= {row for place, row, _ in example if not how.length or place < how.length}
    return found


def rows_in(masks: dict[str, Any]) -> dict[str, set[int]]:
    assert {name: len(mask) for name, mask in masks.items()} == ROWS
    return {name: set(np.flatnonzero(mask).tolist()) for name, mask in masks.items()}


def check(strategy: Any, runtime: RuntimeKind, folder: Path) -> None:
    with experiments.making(experiments.spec_of(strategy, Adagrad()), runtime, folder) as made:
        tables = made.execution.tables
        batches = iter(made.execution.dataset(experiments.dataset(BATCHES)))

        def train(start: int, stop: int) -> None:
            made.execution.runtime.train(batches, stop - start)

        def taken() -> dict[str, set[int]]:
            return rows_in({name: table.take_touched() for name, table in tables.items()})

        def ever() -> dict[str, set[int]]:
            return rows_in({name: table.looked_up() for name, table in tables.items()})

        train(0, 1)
        assert ever() == looked_up(BATCHES[:1])
        assert taken() == looked_up(BATCHES[:1])
        train(1, 2)
        train(2, 3)
        assert ever() == looked_up(BATCHES[:3])
        assert taken() == looked_up(BATCHES[1:3]) != looked_up(BATCHES[:3])
        assert ever() == looked_up(BATCHES[:3])
        train(3, 4)
        for name, table in tables.items():
            table.restore_touched(np.arange(ROWS[name]) == 7)
        assert ever() == {name: {7} for name in ROWS}
        train(4, 5)
        assert ever() == {name: {7} | rows for name, rows in looked_up(BATCHES[4:5]).items()}
        assert taken() == looked_up(BATCHES[4:5])
        assert taken() == {name: set() for name in ROWS}


@pytest.mark.parametrize("strategy", marked(kinds()))
def test_strategies(strategy: str, tmp_path: Path) -> None:
    check(STRATEGIES[strategy], RuntimeKind.FUNCTION, tmp_path)


@pytest.mark.parametrize("runtime", [RuntimeKind.SESSION, RuntimeKind.ESTIMATOR])
def test_runtimes(runtime: RuntimeKind, tmp_path: Path) -> None:
    check(CPU(), runtime, tmp_path)
