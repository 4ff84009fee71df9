"""What one strategy saved, each other restores: rows, slots and the dense part, under the same keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from embexp.specs.optimizers import Adam
from tests import checkpoint_values
from tests.contracts import experiments
from tests.contracts.experiments import ROWS
from tests.contracts.strategies import STRATEGIES, kinds
from tests.thoroughness import thorough

ADAM = Adam(learning_rate=0.0625)


@dataclass(frozen=True)
class Saved:
    """What a strategy saved after five steps, and the loss of the ten that followed."""

    directory: Path
    values: dict[str, np.ndarray]
    digests: list[str]
    loss: float


def digests(made: experiments.Made) -> list[str]:
    return [made.execution.tables[name].digest() for name in ROWS]


@pytest.fixture(scope="module")
def saved() -> dict[str, Saved]:
    """What each strategy has saved so far."""
    return {}


TURNS = [*kinds(), *(f"{name}, once more" for name in (kinds() if thorough() else ["cpu"]))]
"""Each saves, and restores what it and those before it have saved; the processor restores what all have saved."""


@pytest.mark.slow
@pytest.mark.parametrize("turn", TURNS)
def test_each_restores_what_others_saved(
    turn: str, saved: dict[str, Saved], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In an experiment of another seed, which has trained before it restores."""
    strategy, folder = turn.removesuffix(", once more"), tmp_path_factory.mktemp("saved")
    with experiments.making(experiments.spec_of(STRATEGIES[strategy], ADAM, seed=TURNS.index(turn))) as made:
        train, steps = made.execution.runtime.train, experiments.examples()
        data = experiments.dataset(steps[5:15]).repeat()
        if strategy not in saved:
            batches = iter(made.execution.dataset(experiments.dataset(steps[:5]).concatenate(data)))
            train(batches, 5)
            directory = folder / "first"
            values, first = checkpoint_values.every(experiments.saved(made, directory)), digests(made)
            saved[strategy] = Saved(directory, values, first, train(batches, 10))
        else:
            batches = iter(made.execution.dataset(data))
            train(batches, 10)
        for saver, own in saved.items():
            made.execution.restore(own.directory)
            again = checkpoint_values.every(experiments.saved(made, folder / f"of {saver}"))
            assert own.values.keys() == again.keys(), saver
            assert {key for key in again if own.values[key].tobytes() != again[key].tobytes()} == set(), saver
            assert digests(made) == own.digests, saver
            assert train(batches, 10) == pytest.approx(own.loss, rel=1e-5), saver
