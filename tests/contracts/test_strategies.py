"""Every strategy through the same trainings, against float64.

Within 2e-6 * (|w0| + sum of |dw|) of float64 after 20 steps, per element; frozen rows to the bit.
"""

from __future__ import annotations

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
from tests.contracts.strategies import NAMES, STRATEGIES

RULES = {
    "sgd": SGD(learning_rate=0.125),
    "adagrad": Adagrad(learning_rate=0.125),
    "adagrad_momentum": AdagradMomentum(learning_rate=0.0625, momentum=0.5),
    "adam": Adam(learning_rate=0.0625),
    "ftrl": FTRL(learning_rate=0.125, l2_regularization_strength=0.25),
    "adam, all rows": Adam(learning_rate=0.0625, lazy_adam=False),
    "adagrad, decayed and clipped": Adagrad(
        learning_rate=0.125, weight_decay_factor=0.0625, clip_weight_max=0.5, clipvalue=0.25
    ),
}
FROZEN = np.isin(np.arange(ROWS["item"]), [2, 3, 4, 9])
ROWS_FROZEN = FreezeRows(rows=((2, 5), (9, 10)))
SCHEDULE = FreezeSchedule(
    phases=(
        Phase(rules=(RowsRule(rows=((2, 5), (9, 10))), RowsRule(rows=((10, 14),), multiplier=0.25))),
        Phase(step=10, rules=(RowsRule(rows=((2, 5), (9, 10))),)),
    )
)
FREEZES: dict[str, tuple[Any, Storage]] = {
    "rows": (ROWS_FROZEN, Storage.VARIABLE),
    "rows, split": (ROWS_FROZEN, Storage.SPLIT),
    "schedule": (SCHEDULE, Storage.VARIABLE),
    "table": (FreezeTable(), Storage.AUTO),
}
BATCHES = experiments.examples()


def factors(freeze: Any) -> exact_training.Factors:
    """What a freeze policy of the item table makes of its rows' learning rates."""

    def of(table: str, step: int) -> np.ndarray:
        factor = np.ones(ROWS[table])
        if table == "item" and freeze is not None:
            if freeze is SCHEDULE and step < 10:
                factor[10:14] = 0.25
            factor[FROZEN if freeze.kind != "table" else slice(None)] = 0
        return factor

    return of


def compare(strategy: Any, rule: Any, directory: Path, *, combiner: str = "mean", freeze: Any = None) -> None:
    settings = {} if freeze is None else {"freeze": freeze[0], "storage": freeze[1]}
    with experiments.making(experiments.spec_of(strategy, rule, combiner=combiner, **settings)) as made:
        kernel, bias = (weight.numpy() for weight in made.model.trainable_weights)
        first = {name: rows.copy() for name, rows in made.first.items()}
        runtime = made.execution.runtime
        iterator = iter(made.execution.dataset(experiments.dataset(BATCHES)))
        losses = [runtime.train(iterator, 1) for _ in range(STEPS)]
        found = checkpoint_values.tables(experiments.saved(made, directory))

    slots = optimizers.slots_of(rule)
    expected = exact_training.train(
        BATCHES,
        experiments.looked(combiner),
        dict.fromkeys(ROWS, rule),
        first,
        kernel,
        bias,
        rate=RATE,
        factors=factors(freeze and freeze[0]),
    )
    np.testing.assert_allclose(losses, expected.losses, rtol=1e-5)
    still = freeze is not None and freeze[0].kind == "table"
    for name in ROWS:
        assert set(found[name]) == {None} | (set(slots) if name != "item" or not still else set())
        errors = expected.tables[name].errors(found[name])
        assert all((error <= 1).all() for error in errors.values()), (name, errors)
    if freeze is not None:
        frozen = np.ones(ROWS["item"], bool) if still else FROZEN
        assert found["item"][None][frozen].tobytes() == first["item"][frozen].tobytes()
        for slot, start in slots.items():
            if not still:
                assert (found["item"][slot][frozen] == np.float32(start)).all()
    moved = (found["word"][None] != first["word"]).any(1)
    assert moved[:-2].all()
    assert not moved[-2:].any() or not getattr(rule, "lazy_adam", True)


@pytest.mark.parametrize(
    "rule", [pytest.param(name, marks=[] if name == "adagrad" else pytest.mark.slow) for name in RULES]
)
@pytest.mark.parametrize("strategy", NAMES)
def test_optimizers(strategy: str, rule: str, tmp_path: Path) -> None:
    compare(STRATEGIES[strategy], RULES[rule], tmp_path / "saved")


@pytest.mark.slow
@pytest.mark.parametrize("combiner", ["sum", "sqrtn"])
@pytest.mark.parametrize("strategy", NAMES)
def test_combiners(strategy: str, combiner: str, tmp_path: Path) -> None:
    compare(STRATEGIES[strategy], RULES["adagrad"], tmp_path / "saved", combiner=combiner)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["adam", "adagrad, decayed and clipped"])
@pytest.mark.parametrize("freeze", FREEZES)
@pytest.mark.parametrize("strategy", NAMES)
def test_frozen_rows(strategy: str, freeze: str, rule: str, tmp_path: Path) -> None:
    if freeze == "schedule" and isinstance(STRATEGIES[strategy], TPUSimulator):
        pytest.skip("a TPU keeps no schedule: such a run is refused before it starts")
    compare(STRATEGIES[strategy], RULES[rule], tmp_path / "saved", freeze=FREEZES[freeze])


@pytest.mark.parametrize("strategy", NAMES[1:])
def test_predictions_are_those_of_one_device(strategy: str) -> None:
    predicted = []
    for each in (CPU(), STRATEGIES[strategy]):
        with experiments.making(experiments.spec_of(each, RULES["sgd"])) as made:
            found = list(made.execution.runtime.predict(experiments.dataset(BATCHES[:3])))
        assert all((labels == batch.labels).all() for (labels, _), batch in zip(found, BATCHES, strict=False))
        predicted.append(np.concatenate([logits for _, logits in found]))
    np.testing.assert_allclose(predicted[1], predicted[0], rtol=1e-6, atol=1e-6)
