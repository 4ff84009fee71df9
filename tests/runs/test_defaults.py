"""Every shipped experiment, at its defaults, beats a constant on data that no default was chosen on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import embexp
from embexp.runs import run as single
from embexp.specs import tasks
from embexp.training.baseline import beaten
from tests.planted_experiments import CASES
from tests.thoroughness import chosen

QUIET = ("output.plots=false", "output.tensorboard=false", "checkpoint.save=never", "output.digests=false")


@pytest.mark.parametrize("name", chosen(CASES, always=["0 to 100 points"]))
def test_a_shipped_experiment_learns_at_its_defaults(name: str, tmp_path: Path) -> None:
    overrides = CASES[name](tmp_path)
    (tmp_path / "run").mkdir()
    spec = embexp.compose([*overrides, *QUIET, f"output.cache={tmp_path / 'cache'}"])
    summary = single.run(spec, tmp_path / "run").summary
    for split in ("validation", "test"):
        assert_better(summary, split)
    assert not [warning for warning in summary["warnings"] if "no better" in warning]
    if name == "0 to 100 points":  # the noise alone is 12 points
        assert summary["metrics"]["test"]["rmse"] < 0.85 * summary["baselines"]["constant"]["test"]["rmse"]


def assert_better(summary: Mapping[str, Any], split: str) -> None:
    """Whether a split's metrics are better than those of a constant, or of popularity, which is harder to beat."""
    name, baseline = next(iter(summary["baselines"].items()))
    if name == "popularity":
        assert summary["metrics"][split]["ndcg_at_10"] > 1.1 * baseline[split]["ndcg_at_10"]
    else:
        assert beaten(tasks.named(summary["task"]), summary["metrics"][split], baseline[split])


def test_a_run_that_does_not_learn_says_so(tmp_path: Path) -> None:
    """The defaults of TensorFlow's Adagrad, by which ratings move a hundredth of the learning rate."""
    overrides = CASES["0 to 100 points"](tmp_path)
    stuck = ["optimizer=adagrad", "optimizer.learning_rate=0.001", "optimizer.initial_accumulator_value=0.1"]
    (tmp_path / "run").mkdir()
    spec = embexp.compose([*overrides, *stuck, *QUIET, "train.epochs=2", f"output.cache={tmp_path / 'cache'}"])
    summary = single.run(spec, tmp_path / "run").summary
    warning, of_test = [each for each in summary["warnings"] if "no better than a constant" in each]
    assert of_test.startswith("no better than a constant: test rmse")
    assert "the model has hardly learned" in warning
    assert "optimizer.learning_rate, now 0.001 and optimizer.initial_accumulator_value, now 0.1" in warning
    found, constant = summary["metrics"]["validation"]["rmse"], summary["baselines"]["constant"]["validation"]["rmse"]
    assert f"rmse {found:.4f} ({constant:.4f})" in warning
    moved = summary["movement"]["user"]
    assert 0 < moved["median"] < 0.01
    assert 0 < moved["accumulated"] < 0.01
    [warning] = [each for each in summary["warnings"] if "hardly moved" in each]
    assert warning.startswith("tables.user, tables.item: trained rows hardly moved")
    assert "optimizer.initial_accumulator_value = 0.1 is far above the squared gradients" in warning
