"""The figures and our formulas agree, so that each can stand for the other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategies.tpu_fixtures import goldens, world

TABLES = {"video": world.VIDEO, "user": world.USER}


@pytest.mark.parametrize("feature", world.IDS)
def test_activations_follow_from_the_ids(feature: str) -> None:
    np.testing.assert_allclose(goldens.combined(feature), goldens.ACTIVATIONS[feature], rtol=1e-15)


def test_loss_of_each_core() -> None:
    for core in range(world.CORES):
        share = slice(core * world.PER_CORE, (core + 1) * world.PER_CORE)
        assert goldens.loss_of([value[share] for value in goldens.ACTIVATIONS.values()]) == goldens.LOSS
    assert goldens.loss_of(list(goldens.ACTIVATIONS.values())) == goldens.LOSS


@pytest.mark.parametrize("table", TABLES)
def test_gradients_and_sgd(table: str) -> None:
    expected, moved = np.zeros_like(TABLES[table]), TABLES[table].copy()
    for row, gradient in goldens.GRADIENTS[table].items():
        expected[row], moved[row] = gradient, goldens.AFTER_SGD[table][row]
    np.testing.assert_allclose(goldens.table_gradient(table), expected, rtol=1e-14)
    after = goldens.after_one_step("sgd", TABLES[table], goldens.table_gradient(table))
    np.testing.assert_allclose(after["parameters"], moved, rtol=1e-14, atol=1e-14)


def test_ftrl_solves_its_own_minimum() -> None:
    """The FTRL row minimises linears·w + w²√accumulators/(2·rate) (no regularisation), so the slope there is zero."""
    gradient = goldens.table_gradient("video")
    after = goldens.after_one_step("ftrl", world.VIDEO, gradient)
    slope = after["linears"] + after["parameters"] * np.sqrt(after["accumulators"]) / world.RATE
    np.testing.assert_allclose(slope[:2], 0, atol=1e-12)
    np.testing.assert_array_equal(after["parameters"][2:], world.VIDEO[2:])
