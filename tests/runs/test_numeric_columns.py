"""Numeric columns of a run, from its files to predictions and to the exported model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import DataError
from embexp.records import inventory
from embexp.runs import finished
from embexp.runs import run as single
from embexp.runs.prepare import prepare, read_data
from embexp.specs.data import Transform
from embexp.system.parallel import quiet

EXAMPLES = 300
DENSE: dict[str, Any] = {
    "views": ["log1p", "standardize"],
    "age": {"transform": "standardize", "missing": "mean", "indicator": True},
    "size": "quantile",
    "rate": {"missing": -1.5},
}


def write(path: Path, seed: int) -> Path:
    """Views are counts; ages and rates are missing at times, in the words of several programs."""
    draw = np.random.default_rng(seed)
    lines = ["user,views,age,size,rate,bought"]
    for _ in range(EXAMPLES):
        age = ["", "NaN", "null", *map(str, draw.integers(18, 80, 9))][draw.integers(12)]
        rate = "" if draw.random() < 0.2 else f"{draw.normal():.3f}"
        views, size = int(draw.lognormal(2, 2)), round(draw.normal(0, 2), 1)
        lines.append(f"u{draw.integers(9)},{views},{age},{size},{rate},{int(draw.random() < 0.5)}")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def spec_of(path: Path, dense: Any = DENSE) -> embexp.RunSpec:
    return embexp.RunSpec.model_validate(
        {
            "name": "log",
            "task": "binary",
            "data": {"kind": "csv", "path": str(path), "label": "bought", "dense_features": dense},
            "tables": {"user": {"dim": 4}},
            "features": {"user": {"table": "user"}},
            "model": {"kind": "mlp", "hidden": [8]},
            "optimizer": {"kind": "adagrad", "learning_rate": 0.1},
            "dense_optimizer": {"kind": "adam", "learning_rate": 0.01},
            "train": {"steps": 10, "epochs": None, "batch_size": 32},
            "output": {"plots": False, "tensorboard": False, "baselines": False, "cache": str(path.parent / "cache")},
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("numbers")


@pytest.fixture(scope="module")
def log(folder: Path) -> Path:
    return write(folder / "log.csv", 0)


@pytest.fixture(scope="module")
def run(folder: Path, log: Path) -> Path:
    (folder / "run").mkdir()
    return single.run(spec_of(log), folder / "run").directory


def columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a file, float32, NaN where a value is missing."""
    names, *lines = (line.split(",") for line in path.read_text().splitlines())
    taken = [name for name in names if name != "user"]
    values = [[line[names.index(name)] for line in lines] for name in taken]
    numbers = [[np.nan if text in ("", "null") else float(text) for text in each] for each in values]
    return dict(zip(taken, np.array(numbers, np.float32), strict=True)) | {
        "user": np.array([line[0] for line in lines])
    }


def test_the_model_gets_what_numpy_makes_of_the_files(log: Path) -> None:
    data = read_data(spec_of(log), quiet)
    train, raw = (
        data.scan.splits["train"],
        {name: each.astype(float) for name, each in columns(log).items() if name != "user"},
    )
    logs = np.log1p(raw["views"])
    ages = raw["age"][train][~np.isnan(raw["age"][train])]
    marks = np.sort(raw["size"][train])  # as there are fewer than 1,000
    middle = (np.searchsorted(marks, raw["size"], "left") + np.searchsorted(marks, raw["size"], "right") - 1) / 2
    expected = [
        (logs - logs[train].mean()) / logs[train].std(),
        np.where(np.isnan(raw["age"]), 0.0, (raw["age"] - ages.mean()) / ages.std()),
        np.isnan(raw["age"]),
        middle / (len(train) - 1),
        np.where(np.isnan(raw["rate"]), -1.5, raw["rate"]),
    ]
    inside = train[(raw["size"][train] > marks[0]) & (raw["size"][train] < marks[-1])]
    found = data.scan.examples.dense
    assert data.dense_width == found.shape[1] == 5
    for number, column in enumerate(expected):
        rows = inside if number == 3 else np.arange(EXAMPLES)
        np.testing.assert_allclose(found[rows, number], column[rows], rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def model(run: Path, folder: Path) -> Any:
    return tf.saved_model.load(str(finished.export(run, folder / "model").path))


def test_the_exported_model_takes_the_files_values(run: Path, model: Any, folder: Path) -> None:
    other = write(folder / "other.csv", 7)
    given = columns(other)
    del given["bought"]
    found = model.signatures["serving_default"](**{name: tf.constant(each) for name, each in given.items()})
    np.testing.assert_allclose(found["predictions"].numpy(), embexp.load_run(run).predict(other), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("signature", ["serving_default", "serving_ids"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_exported_model_refuses_what_the_data_may_not_have(model: Any, signature: str, value: float) -> None:
    users = tf.constant(["u1", "u2"]) if signature == "serving_default" else tf.constant([1, 2], tf.int64)
    serve, good = model.signatures[signature], dict.fromkeys(DENSE, tf.constant([1.0, 2.0]))
    assert np.isfinite(serve(user=users, **good)["predictions"].numpy()).all()
    for name in DENSE:
        given = {**good, name: tf.constant([1.0, value])}
        if np.isnan(value) and name in ("age", "rate"):  # they have something that stands for missing numbers
            assert np.isfinite(serve(user=users, **given)["predictions"].numpy()).all()
            continue
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"column {name}: expected finite numbers.*{value}"):
            serve(user=users, **given)


def test_transforms_in_a_graph_are_those_of_numpy() -> None:
    from embexp.data.numbers import FittedColumn
    from embexp.runs import serving as serving_inputs

    draw = np.random.default_rng(3)
    marks = tuple(np.sort(np.concatenate([draw.normal(size=50), np.zeros(9), [2.0] * 3])).tolist())
    values = np.concatenate([draw.normal(size=500), marks, [np.nan, 1e30, -1e30, 0, -0.0]]).astype(np.float32)
    marks = tuple(float(np.float32(mark)) for mark in marks)
    for transforms in ([], *([each] for each in Transform), [Transform.LOG1P, Transform.STANDARDIZE]):
        column = FittedColumn("x", tuple(transforms), 0.25, True, 1 / 3, 0.7, marks)
        found = np.stack(
            [each.numpy() for each in serving_inputs.transformed_numbers(column, tf.constant(values))], axis=1
        )
        np.testing.assert_array_max_ulp(found, column.apply(values), 1)


def test_an_evaluation_of_the_same_examples_is_the_runs_own(run: Path, log: Path, folder: Path) -> None:
    loaded = embexp.load_run(run)
    rows = read_data(loaded.spec, quiet).scan.splits["test"]
    header, *lines = log.read_text().splitlines()
    test = folder / "test.csv"
    test.write_text("\n".join([header, *(lines[row] for row in rows)]) + "\n")
    assert loaded.evaluate(test) == loaded.summary["metrics"]["test"] == loaded.evaluate()


def test_what_was_fitted_is_needed_as_it_was(run: Path, log: Path, folder: Path) -> None:
    copy = shutil.copytree(run, folder / "copy")
    path = copy / "numeric_columns.json"
    content = json.loads(path.read_text())
    assert [each["name"] for each in content["columns"]] == list(DENSE)
    path.unlink()
    inventory.unseal(copy)
    with pytest.raises(DataError, match=r"numeric_columns\.json: there is no such file"):
        embexp.load_run(copy).predict(log)
    path.write_text(json.dumps(content).replace('"views"', '"clicks"'))
    with pytest.raises(DataError, match="was changed"):
        finished.export(copy, folder / "refused")
    from embexp.data import numbers

    numbers.write(numbers.read(run / "numeric_columns.json")[:2], path)
    with pytest.raises(DataError, match=r"has other numeric columns than data\.dense_features"):
        embexp.load_run(copy).predict(log)


def test_settings_share_what_was_read_and_divided(log: Path) -> None:
    prepare(spec_of(log))
    before = {path.name for path in (log.parent / "cache").iterdir()}
    assert prepare(spec_of(log, DENSE | {"views": "log1p"})).data.dense_width == 5
    [made] = {path.name for path in (log.parent / "cache").iterdir()} - before
    assert made.startswith("numbers-")


def test_a_column_that_may_not_miss_a_value_is_a_fault(log: Path) -> None:
    for dense in (["age"], DENSE | {"age": "standardize"}):
        with pytest.raises(DataError, match="in column 'age', expected a finite number"):
            prepare(spec_of(log, dense))


def test_raw_counts_are_warned_of(log: Path) -> None:
    raw = prepare(spec_of(log, {"views": {}, "age": {"missing": "zero"}}))
    heavy, large = raw.warnings
    assert heavy.startswith("numeric columns with heavy tails: views (median ")
    assert large.startswith("numeric columns with a large scale: age (mean ")
    assert prepare(spec_of(log)).warnings == []
