"""Weights of examples and classes: in the loss, the metrics and the baseline, and of any strategy and runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.data import examples
from embexp.errors import ConfigError, DataError
from embexp.fields.columns import metrics
from embexp.runs import run as single

ROWS = 600


def write(path: Path, weights: list[float], labels: list[str] | None = None) -> Path:
    generator = np.random.default_rng(5)
    shops = generator.integers(0, 20, len(weights))
    drawn = (generator.random(len(weights)) < 0.2 + 0.03 * shops).astype(int)
    found = list(map(str, drawn)) if labels is None else labels
    rows = (f"s{shop},{label},{weight}" for shop, label, weight in zip(shops, found, weights, strict=True))
    path.write_text("\n".join(["shop,label,w", *rows]) + "\n")
    return path


def weights_of(rows: int = ROWS) -> list[float]:
    return (np.random.default_rng(6).integers(0, 5, rows) / 2).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from embexp.cli import commands

    folder = tmp_path_factory.mktemp("weights")
    data = write(folder / "own.csv", weights_of())
    new = ["new", "--data", str(data), "--label", "label", "--ignore", "w", "--out", str(folder), "--name", "own"]
    assert commands.main(new) == 0
    return folder


def run(folder: Path, name: str, *overrides: str, data: str = "own.csv") -> Path:
    directory = folder / name
    settings = [
        *("experiment=own", f"data.path={folder / data}", f"output.cache={folder / 'cache'}", "train.steps=20"),
        *("train.epochs=null", "train.batch_size=60", "train.log_every=1", "train.evaluate_every=10"),
        *("output.plots=false", "output.tensorboard=false", *overrides),
    ]
    spec = embexp.compose(settings, config_dir=folder)
    directory.mkdir()
    single.run(spec, directory)
    return directory


def summary(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return found


def losses(directory: Path) -> list[float]:
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "log"]


def test_weights_reach_the_loss_the_metrics_and_the_baseline(folder: Path) -> None:
    weighted = run(folder, "weighted", "data.weight=w")
    found, plain = summary(weighted), summary(run(folder, "plain"))
    assert found["run_id"] != plain["run_id"]
    assert found["metrics"]["test"]["auc"] != plain["metrics"]["test"]["auc"]
    assert found["baselines"]["constant"]["test"]["log_loss"] != plain["baselines"]["constant"]["test"]["log_loss"]
    again = embexp.load_run(weighted)
    assert again.evaluate(split="test") == found["metrics"]["test"]
    # The same of the whole file, from its predictions.
    lines = (folder / "own.csv").read_text().splitlines()[1:]
    labels, weights = (np.array([float(line.split(",")[place]) for line in lines]) for place in (1, 2))
    probable = again.predict(folder / "own.csv").astype(np.float64)
    logits = np.log(probable / (1 - probable))
    expected = {
        "log_loss": metrics.log_loss(labels, logits, weights),
        "auc": metrics.auc(labels, probable, weights),
    }
    assert {name: again.evaluate(folder / "own.csv")[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_equal_weights_change_nothing_but_rounding(folder: Path) -> None:
    write(folder / "equal.csv", [2.5] * ROWS)
    plain, equal = run(folder, "unweighted"), run(folder, "equal", "data.weight=w", data="equal.csv")
    np.testing.assert_allclose(losses(equal), losses(plain), rtol=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        "runtime=session",
        "strategy=mirrored",
        "strategy=tpu_simulator",
        "strategy=tpu_simulator strategy.embedding_feature=V2 strategy.sparse_cores=2",
    ],
)
def test_sessions_and_replicas_weigh_alike(folder: Path, more: str) -> None:
    if not (folder / "alone").exists():
        run(folder, "alone", "data.weight=w", "train.class_weights=balanced")
    other = run(folder, more, "data.weight=w", "train.class_weights=balanced", *more.split())
    np.testing.assert_allclose(losses(other), losses(folder / "alone"), rtol=1e-4)


def test_class_weights_reach_the_loss_only(folder: Path) -> None:
    balanced, heavier = (
        run(folder, name, f"train.class_weights={value}") for name, value in (("b", "balanced"), ("h", "{1: 9}"))
    )
    predicted = {each.name: embexp.load_run(each).predict(folder / "own.csv").mean() for each in (balanced, heavier)}
    rate = summary(balanced)["baselines"]["constant"]["test"]
    assert predicted["h"] > predicted["b"]
    assert rate == summary(heavier)["baselines"]["constant"]["test"]
    assert "train" not in summary(balanced)["baselines"]["constant"]


def test_a_class_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.class_weights\.yes = 'yes': the classes of the data are 0, 1"):
        run(folder, "no_class", "train.class_weights={yes: 2}")


def test_a_negative_weight(folder: Path) -> None:
    write(folder / "negative.csv", [1.0, -1.0] * 300)
    with pytest.raises(DataError, match=r"negative\.csv.*found -1\S* in column 'w', expected a weight of at least 0"):
        run(folder, "negative", "data.weight=w", data="negative.csv")


def test_weights_that_are_all_0(folder: Path) -> None:
    write(folder / "zero.csv", [0.0] * ROWS)
    with pytest.raises(DataError, match=r"training examples are 0: see data\.weight"):
        run(folder, "zero", "data.weight=w", data="zero.csv")


@pytest.mark.parametrize(
    ("overrides", "path", "rule"),
    [
        (("experiment=movielens", "train.class_weights=balanced"), "train.class_weights", "task regression has none"),
        (("experiment=clicks", "train.class_weights={yes: -1}"), "train.class_weights", "at least 0"),
        (("experiment=recommendation", "data.path=x", "data.weight=w"), "data.weight", "compares items"),
    ],
)
def test_weights_that_do_not_fit(overrides: tuple[str, ...], path: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        embexp.compose(list(overrides))
    assert any(path in fault.path and rule in fault.rule for fault in caught.value.faults), caught.value.faults


def test_balanced_classes_count_the_same_in_total() -> None:
    """As compute_class_weight of scikit-learn has it, n / (C n_c), with the examples' weights counted."""
    labels, rows = np.float32([0, 0, 0, 1, 2, 2]), np.arange(6)
    plain = examples.weights_of_examples(labels, rows, None, "balanced", ["a", "b", "c"])
    assert plain is not None
    assert plain.of_class == pytest.approx([6 / 9, 6 / 3, 6 / 6])
    own = np.float32([1, 2, 3, 4, 0, 5])
    found = examples.weights_of_examples(labels, rows, own, "balanced", ["a", "b", "c"])
    assert found is not None
    each = own * found.of_class[labels.astype(int)]
    assert each.mean() == pytest.approx(1)
    assert [each[labels == label].sum() for label in range(3)] == pytest.approx([2, 2, 2])
    assert found.label_mean == pytest.approx(1)
    assert examples.weights_of_examples(labels, rows, None, None, ["a"]) is None
