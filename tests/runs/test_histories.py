"""Histories of users in training, evaluation, prediction and export (SVD++), against float64 NumPy."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.runs.finished import export

QUIET = ["output.plots=false", "output.tensorboard=false", "output.baselines=false", "output.digests=false"]
Pairs = list[tuple[str, str, float]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run on given files, so that it is known who rated what in training."""
    folder = tmp_path_factory.mktemp("histories")
    random = np.random.default_rng(0)
    for name, count in (("train", 600), ("validation", 60), ("test", 60)):
        rows = [
            (f"u{random.integers(30)}", f"i{random.integers(25)}", int(random.integers(1, 6))) for _ in range(count)
        ]
        # A user and an item that training does not have.
        rows += [("new", "i1", 3), ("u1", "never", 3)] if name == "test" else []
        write(folder / f"{name}.csv", rows)
    paths = ",".join(f"{name}:{folder / name}.csv" for name in ("train", "validation", "test"))
    overrides = ["experiment=ratings", "model=svd_plus_plus", f"data.path={{{paths}}}", "data.label=rating"]
    overrides += ["train.epochs=3", "train.batch_size=32", "tables.user.dim=4", *QUIET]
    return embexp.run(embexp.compose(overrides), folder / "run")


def write(path: Path, rows: Any) -> None:
    with path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "rating"])
        writer.writerows(rows)


def read(path: Path) -> Pairs:
    with path.open() as file:
        return [(row["user"], row["item"], float(row["rating"])) for row in csv.DictReader(file)]


def formula(loaded: Any, rated: dict[str, set[str]], pairs: Pairs) -> np.ndarray:
    """Koren (2008), eq. 15, in units of the file, in float64."""
    tables = {name: loaded.table(name).astype(np.float64) for name in loaded.spec.tables}
    rows = {}
    for side in ("user", "item"):
        tokens = loaded.vocabulary(side).tokens()
        rows[side] = {token: row for row, token in enumerate(tokens)}
    assert loaded.vocabulary("rated").tokens() == loaded.vocabulary("item").tokens()
    labels = [rating for *_, rating in read(loaded.folder.path.parent / "train.csv")]
    bias = float(next(value for value in loaded.model.weights if value.name == "bias").numpy()[0])
    found = []
    for user, item, _ in pairs:
        u, i = rows["user"].get(user, 0), rows["item"].get(item, 0)
        vector = tables["user"][u].copy()
        if mine := rated.get(user):
            vector += sum(tables["rated"][rows["item"][each]] for each in mine) / np.sqrt(len(mine))
        logit = bias + tables["user_bias"][u, 0] + tables["item_bias"][i, 0] + vector @ tables["item"][i]
        found.append(np.mean(labels) + np.std(labels) * logit)
    return np.asarray(found)


def histories(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for user, item, _ in read(path):
        found.setdefault(user, set()).add(item)
    return found


def test_predictions_are_those_of_the_formula_with_items_of_the_training_split_only(run: Any) -> None:
    loaded, path = embexp.load_run(run.directory), run.directory.parent
    pairs = read(path / "test.csv")
    expected = formula(loaded, histories(path / "train.csv"), pairs)
    np.testing.assert_allclose(loaded.predict(path / "test.csv"), expected, atol=2e-5)
    given = {"user": [user for user, *_ in pairs], "item": [item for _, item, _ in pairs]}
    np.testing.assert_allclose(loaded.predict(given), expected, atol=2e-5)
    rmse = np.sqrt(np.mean((expected - [rating for *_, rating in pairs]) ** 2))
    assert run.summary["metrics"]["test"]["rmse"] == pytest.approx(rmse, abs=1e-5)
    assert loaded.evaluate(path / "test.csv")["rmse"] == pytest.approx(rmse, abs=1e-5)
    # With the ratings of the test split in the histories, it would be another.
    leaked = histories(path / "train.csv")
    for user, item, _ in pairs:
        leaked.setdefault(user, set()).add("i0" if item == "never" else item)
    assert np.abs(formula(loaded, leaked, pairs) - expected).max() > 1e-3


def test_an_export_predicts_the_same(run: Any, tmp_path: Path) -> None:
    loaded, path = embexp.load_run(run.directory), run.directory.parent
    export(run.directory, tmp_path / "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    pairs = read(path / "test.csv")
    given = {"user": tf.constant([user for user, *_ in pairs]), "item": tf.constant([item for _, item, _ in pairs])}
    found = model.signatures["serving_default"](**given)["predictions"]
    np.testing.assert_allclose(found, loaded.predict(path / "test.csv"), atol=2e-5)


@pytest.mark.parametrize(
    ("overrides", "path", "value"),
    [
        (["features.rated.history_of=usr"], "features.rated.history_of", "'usr'"),
        (["features.rated.history_of=rated"], "features.rated.history_of", "'rated'"),
        (["features.rated.weights=w"], "features.rated.weights", "'w'"),
        (["features.rated.max_sequence_length=3"], "features.rated.max_sequence_length", "3"),
    ],
)
def test_what_has_no_history(overrides: list[str], path: str, value: str) -> None:
    config = ["experiment=ratings", "model=svd_plus_plus", "data.path=x.csv", "data.label=rating", *overrides]
    with pytest.raises(embexp.ConfigError) as caught:
        embexp.compose(config)
    assert (path, value) in [(fault.path, fault.value) for fault in caught.value.faults]
