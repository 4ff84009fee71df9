"""Every shipped experiment, at its defaults, beats a constant on data that no default was chosen on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embexp
from embexp.runs import run as single
from embexp.specs.models import Task
from embexp.training import verdict
from tests import planted_data
from tests.thoroughness import chosen

Make = Callable[[Path], list[str]]


def ratings(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        file = planted_data.ratings(folder / "ratings.csv", **form)
        return ["experiment=ratings", f"data.path={file}", "data.label=rating"]

    return make


def clicks(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        file = planted_data.clicks(folder / "clicks.csv", **form)
        return ["experiment=clicks", "data=csv", f"data.path={file}", "data.label=click", "data.list_columns=[history]"]

    return make


def texts(**form: Any) -> Make:
    def make(folder: Path) -> list[str]:
        return ["experiment=text_classification", "data=text", f"data.path={planted_data.texts(folder / 't', **form)}"]

    return make


def corpus(**form: Any) -> Make:
    return lambda folder: ["experiment=skipgram", f"data.path={planted_data.corpus(folder / 'lines', **form)}"]


def graph(**form: Any) -> Make:
    return lambda folder: ["experiment=knowledge_graph", f"data.path={planted_data.graph(folder / 'graph', **form)}"]


CASES = {
    "0 to 100 points": ratings(examples=4000, users=60, items=40, scale=(0, 100), step=1, seed=0),
    "eight items": ratings(examples=6000, users=500, items=8, scale=(1, 10), step=1, seed=1),
    "five stars": ratings(examples=20000, users=2000, items=400, scale=(1, 5), step=1, seed=2),
    "clicks of a half": clicks(examples=10000, users=100, items=100, rate=0.5, seed=0),
    "clicks of a tenth": clicks(examples=50000, users=1000, items=200, rate=0.1, seed=1),
    "clicks of a hundredth": clicks(examples=100000, users=1000, items=300, rate=0.01, seed=2),
    "two classes": texts(examples=1000, classes=2, words=1000, length=12, share=0.2, seed=0),
    "twenty classes": texts(examples=4000, classes=20, words=8000, length=40, share=0.15, seed=1),
    "short texts": texts(examples=5000, classes=3, words=3000, length=5, share=0.3, seed=2),
    "few sentences": corpus(sentences=1000, topics=5, words=300, length=12, seed=0),
    "many sentences": corpus(sentences=6000, topics=20, words=2000, length=14, seed=1),
    "rare words": corpus(sentences=6000, topics=60, words=6000, length=10, seed=2),
    "a small graph": graph(entities=60, groups=6, triples=1500, seed=0),
    "a graph of few triples": graph(entities=150, groups=10, triples=1500, seed=1),
    "a graph of many triples": graph(entities=100, groups=4, triples=4000, seed=2),
}
QUIET = ("output.plots=false", "output.tensorboard=false", "checkpoint.save=never", "output.digests=false")


@pytest.mark.parametrize("name", chosen(CASES, always=["0 to 100 points"]))
def test_a_shipped_experiment_learns_at_its_defaults(name: str, tmp_path: Path) -> None:
    overrides = CASES[name](tmp_path)
    (tmp_path / "run").mkdir()
    spec = embexp.compose([*overrides, *QUIET, f"output.cache={tmp_path / 'cache'}"])
    summary = single.run(spec, tmp_path / "run").summary
    for split in ("validation", "test"):
        assert verdict.beaten(Task(summary["task"]), summary["metrics"][split], summary["baselines"]["constant"][split])
    assert not [warning for warning in summary["warnings"] if "constant" in warning]
    if name == "0 to 100 points":  # the noise alone is 12 points
        assert summary["metrics"]["test"]["rmse"] < 0.85 * summary["baselines"]["constant"]["test"]["rmse"]


def test_a_run_that_does_not_learn_says_so(tmp_path: Path) -> None:
    """The defaults of TensorFlow's Adagrad, by which ratings move a hundredth of the learning rate."""
    overrides = CASES["0 to 100 points"](tmp_path)
    stuck = ["optimizer=adagrad", "optimizer.learning_rate=0.001", "optimizer.initial_accumulator_value=0.1"]
    (tmp_path / "run").mkdir()
    spec = embexp.compose([*overrides, *stuck, *QUIET, "train.epochs=2", f"output.cache={tmp_path / 'cache'}"])
    summary = single.run(spec, tmp_path / "run").summary
    [warning] = [each for each in summary["warnings"] if "no better than a constant" in each]
    assert "the model has not learned" in warning
    assert "optimizer.learning_rate, now 0.001 and optimizer.initial_accumulator_value, now 0.1" in warning
    found, constant = summary["metrics"]["validation"]["rmse"], summary["baselines"]["constant"]["validation"]["rmse"]
    assert f"rmse {found:.4f} ({constant:.4f})" in warning
    moved = summary["freeze"]["user"]["movement"]
    assert 0 < moved["median"] < 0.01
    assert 0 < moved["accumulated"] < 0.01
    [warning] = [each for each in summary["warnings"] if "hardly moved" in each]
    assert warning.startswith("tables.user, tables.item: trained rows hardly moved")
    assert "optimizer.initial_accumulator_value = 0.1 is far above the squared gradients" in warning
