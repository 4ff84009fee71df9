"""Every strategy through the same trainings, against float64.

Within 2e-6 * (|w0| + sum of |dw|) of float64 after 20 steps, per element; frozen rows to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embexp.specs.freezing import FreezeRows, FreezeSchedule, FreezeTable, Phase, RowsRule
from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam
from embexp.specs.strategies import CPU, TPUSimulator
from embexp.specs.tables import Storage
from embexp.tables import optimizers
from tests import checkpoint_values, exact_training
from tests.contracts import experiments
from tests.contracts.experiments import RATE, ROWS, STEPS
from tests.contracts.strategies import NAMES, STRATEGIES, skip_unless_thorough
from tests.thoroughness import thorough

RULES = {
    "sgd": SGD(learning_rate=0.125, weight_decay_factor=0.0625),
    "adagrad": Adagrad(learning_rate=0.125),
    "adagrad_momentum": AdagradMomentum(learning_rate=0.0625, momentum=0.5),
    "adam": Adam(learning_rate=0.0625),
    "ftrl": FTRL(learning_rate=0.125, l2_regularization_strength=0.25),
    "adam, all rows": Adam(learning_rate=0.0625, lazy_adam=False),
    "adagrad, decayed and clipped": Adagrad(
        learning_rate=0.125, weight_decay_factor=0.0625, clip_weight_max=0.5, clipvalue=0.25
    ),
}
FROZEN = (2, 3, 4, 9)
ROWS_FROZEN = FreezeRows(rows=((2, 5), (9, 10)))
SCHEDULE = FreezeSchedule(
    phases=(
        Phase(rules=(RowsRule(rows=((2, 5), (9, 10))), RowsRule(rows=((10, 14),), multiplier=0.25))),
        Phase(step=10, rules=(RowsRule(rows=((2, 5), (9, 10))),)),
    )
)
BATCHES = experiments.examples()


@dataclass(frozen=True)
class Own:
    """A table's own settings: its rule, its freeze policy, and how it is stored."""

    rule: str
    freeze: Any = None
    storage: Storage = Storage.AUTO

    @property
    def still(self) -> bool:
        """Whether the whole table is frozen."""
        return isinstance(self.freeze, FreezeTable)

    @property
    def slots(self) -> dict[str, float]:
        """Slots with their initial values."""
        return {} if self.still else optimizers.slots_of(RULES[self.rule])

    def frozen(self, rows: int) -> np.ndarray:
        """Bool [rows]: those that never move."""
        return np.isin(np.arange(rows), () if self.freeze is None else range(rows) if self.still else FROZEN)

    def factor(self, rows: int, step: int) -> np.ndarray:
        """What the policy makes of the rows' learning rates."""
        factor = np.ones(rows)
        if self.freeze is SCHEDULE and step < 10:
            factor[10:14] = 0.25
        factor[self.frozen(rows)] = 0
        return factor


def compare(strategy: Any, directory: Path, *, item: Own, word: Own, combiner: str = "mean") -> None:
    own = {"item": item, "word": word}
    spec = experiments.spec_of(strategy, RULES["sgd"], combiner=combiner)
    settings = {
        name: {"optimizer": RULES[each.rule], "freeze": each.freeze, "storage": each.storage}
        for name, each in own.items()
    }
    tables = {name: table.model_copy(update=settings[name]) for name, table in spec.tables.items()}
    with experiments.making(spec.model_copy(update={"tables": tables})) as made:
        kernel, bias = (weight.numpy() for weight in made.model.trainable_weights)
        first = {name: rows.copy() for name, rows in made.first.items()}
        runtime = made.execution.runtime
        iterator = iter(made.execution.dataset(experiments.dataset(BATCHES)))
        losses = [runtime.train(iterator, 1) for _ in range(STEPS)]
        found = checkpoint_values.tables(experiments.saved(made, directory))

    expected = exact_training.train(
        BATCHES,
        experiments.looked(combiner),
        {name: RULES[each.rule] for name, each in own.items()},
        first,
        kernel,
        bias,
        rate=RATE,
        factors=lambda table, step: own[table].factor(ROWS[table], step),
    )
    np.testing.assert_allclose(losses, expected.losses, rtol=1e-5)
    for name, each in own.items():
        assert set(found[name]) == {None, *each.slots}
        errors = expected.tables[name].errors(found[name])
        assert all((error <= 1).all() for error in errors.values()), (name, errors)
        frozen = each.frozen(ROWS[name])
        assert found[name][None][frozen].tobytes() == first[name][frozen].tobytes()
        for slot, start in each.slots.items():
            assert (found[name][slot][frozen] == np.float32(start)).all()
        moved = (found[name][None] != first[name]).any(1)
        assert moved[:-2][~frozen[:-2]].all()
        assert not moved[-2:].any() or not getattr(RULES[each.rule], "lazy_adam", True)


@pytest.mark.parametrize(
    ("item", "word", "combiner"),
    [
        ("adagrad", "adam", "mean"),
        pytest.param("ftrl", "sgd", "sum", marks=pytest.mark.slow),
        pytest.param("adagrad_momentum", "adam, all rows", "sqrtn", marks=pytest.mark.slow),
        pytest.param("adam, all rows", "adagrad, decayed and clipped", "mean", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("strategy", NAMES)
def test_optimizers_and_combiners(strategy: str, item: str, word: str, combiner: str, tmp_path: Path) -> None:
    """Each table has a rule of its own; the features of `item` are combined, those of `word` are sequences."""
    skip_unless_thorough(strategy, item == "adagrad")
    beyond = [fault for rule in (item, word) for fault in RULES[rule].beyond_sparse_cores(rule)]
    if STRATEGIES[strategy].sparse_cores_wanted and beyond:
        pytest.skip("SparseCores do not do this: such a run is refused before it starts")
    if strategy != "cpu" and item in ("ftrl", "adagrad_momentum") and not thorough():
        pytest.skip("in every run, these rules on the CPU, two others in each place: see `make test-thorough`")
    compare(STRATEGIES[strategy], tmp_path / "saved", item=Own(item), word=Own(word), combiner=combiner)


VARIABLE, SPLIT, TABLE = (ROWS_FROZEN, Storage.VARIABLE), (ROWS_FROZEN, Storage.SPLIT), (FreezeTable(), Storage.AUTO)
SCHEDULED = (SCHEDULE, Storage.VARIABLE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("item", "word"),
    [
        pytest.param(VARIABLE, SPLIT, id="rows, and rows split"),
        pytest.param(SPLIT, VARIABLE, id="rows split, and rows"),
        pytest.param(TABLE, (None, Storage.AUTO), id="table"),
        pytest.param(SCHEDULED, TABLE, id="schedule, and table"),
        pytest.param(TABLE, SCHEDULED, id="table, and schedule"),
    ],
)
@pytest.mark.parametrize("strategy", NAMES)
def test_frozen_rows(strategy: str, item: Any, word: Any, tmp_path: Path) -> None:
    if SCHEDULED in (item, word) and isinstance(STRATEGIES[strategy], TPUSimulator):
        pytest.skip("a TPU keeps no schedule: such a run is refused before it starts")
    skip_unless_thorough(strategy, item is VARIABLE)
    if strategy != "cpu" and (item is SPLIT or word is SCHEDULED) and not thorough():
        pytest.skip("in every run, the same two with their places changed: see `make test-thorough`")
    other = "ftrl" if STRATEGIES[strategy].sparse_cores_wanted else "adagrad, decayed and clipped"
    compare(STRATEGIES[strategy], tmp_path / "saved", item=Own("adam", *item), word=Own(other, *word))


def predicted(strategy: Any) -> np.ndarray:
    with experiments.making(experiments.spec_of(strategy, RULES["sgd"])) as made:
        found = list(made.execution.runtime.predict(experiments.dataset(BATCHES[:3])))
    assert all((labels == batch.labels).all() for (labels, _), batch in zip(found, BATCHES, strict=False))
    return np.concatenate([logits for _, logits in found])


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    """What one device predicts."""
    return predicted(CPU())


@pytest.mark.parametrize("strategy", NAMES[1:])
def test_predictions_are_those_of_one_device(strategy: str, alone: np.ndarray) -> None:
    skip_unless_thorough(strategy, first=True)
    np.testing.assert_allclose(predicted(STRATEGIES[strategy]), alone, rtol=1e-6, atol=1e-6)
