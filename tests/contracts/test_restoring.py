"""What one strategy saved, each other restores: rows, slots and the dense part, under the same keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embexp.specs.optimizers import Adam
from tests import checkpoint_values
from tests.contracts import experiments
from tests.contracts.experiments import ROWS
from tests.contracts.strategies import STRATEGIES, kinds, marked

ADAM = Adam(learning_rate=0.0625)


@dataclass(frozen=True)
class Saved:
    """What a strategy saved after five steps, and the loss of the ten that followed."""

    directory: Path
    values: dict[str, np.ndarray]
    digests: list[str]
    loss: float


@dataclass(frozen=True)
class Restorer:
    """An experiment, and the batches of the ten steps after the checkpoints, again and again."""

    made: experiments.Made
    batches: Iterator[Any]


def digests(made: experiments.Made) -> list[str]:
    return [made.execution.tables[name].digest() for name in ROWS]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Saved]:
    """What each strategy saved."""
    found = {}
    for strategy in kinds():
        directory = tmp_path_factory.mktemp("saved") / "first"
        with experiments.making(experiments.spec_of(STRATEGIES[strategy], ADAM)) as made:
            batches = iter(made.execution.dataset(experiments.dataset(experiments.examples()[:15])))
            made.execution.runtime.train(batches, 5)
            values, first = checkpoint_values.every(experiments.saved(made, directory)), digests(made)
            found[strategy] = Saved(directory, values, first, made.execution.runtime.train(batches, 10))
    return found


@pytest.fixture(scope="module", params=marked(kinds()))
def restorer(request: pytest.FixtureRequest, saved: dict[str, Saved]) -> Iterator[Restorer]:
    """An experiment of another seed in each strategy; it has trained when it restores another time."""
    with experiments.making(experiments.spec_of(STRATEGIES[request.param], ADAM, seed=7)) as made:
        batches = experiments.dataset(experiments.examples()[5:15]).repeat()
        yield Restorer(made, iter(made.execution.dataset(batches)))


@pytest.mark.slow
@pytest.mark.parametrize("saver", kinds())
def test_each_restores_what_each_saved(saver: str, restorer: Restorer, saved: dict[str, Saved], tmp_path: Path) -> None:
    first, made = saved[saver], restorer.made
    made.execution.restore(first.directory)
    again = checkpoint_values.every(experiments.saved(made, tmp_path / "second"))
    assert first.values.keys() == again.keys()
    assert {key for key in again if first.values[key].tobytes() != again[key].tobytes()} == set()
    assert digests(made) == first.digests
    assert made.execution.runtime.train(restorer.batches, 10) == pytest.approx(first.loss, rel=1e-5)
