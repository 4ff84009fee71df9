"""Ratings in units of their standard deviation: the unit of a file changes nothing but the unit of the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.records import manifest
from embexp.runs import finished as exporting
from embexp.runs import run as single
from embexp.specs.run import inert_settings
from embexp.training import models
from tests import planted_data

Run = Callable[..., single.RunResult]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs of experiment=ratings on ratings of 1 to 5, and on the same ratings times 16 plus 32."""
    folder = tmp_path_factory.mktemp("ratings")
    few = planted_data.ratings(
        folder / "few.csv", examples=1500, users=40, items=30, scale=(1, 5), step=0.5, seed=0
    ).read_text()
    head, *lines = few.splitlines()
    scaled = (f"{line.rsplit(',', 1)[0]},{16 * float(line.rsplit(',', 1)[1]) + 32:g}" for line in lines)
    (folder / "many.csv").write_text("\n".join([head, *scaled]) + "\n")
    made: dict[tuple[str, ...], single.RunResult] = {}

    def run(scale: str, *overrides: str) -> single.RunResult:
        if (scale, *overrides) not in made:
            spec = embexp.compose(
                [
                    "experiment=ratings",
                    f"data.path={folder / scale}.csv",
                    "data.label=rating",
                    "train.batch_size=64",
                    "optimizer.learning_rate=1.5",
                    "train.epochs=4",
                    "output.plots=false",
                    "output.tensorboard=false",
                    f"output.cache={folder / 'cache'}",
                    *overrides,
                ]
            )
            made[scale, *overrides] = single.run(spec, tmp_path_factory.mktemp("run"))
        return made[scale, *overrides]

    return run


@pytest.mark.parametrize("model", [(), ("model=mlp",)], ids=["dot", "mlp"])
def test_another_unit_gives_the_same_training(run: Run, model: tuple[str, ...]) -> None:
    """All numbers in the unit are those of the other times 16 (plus 32), up to rounding in float32."""
    few, many = (run(scale, *model).summary for scale in ("few", "many"))
    for split in ("validation", "test"):
        assert many["metrics"][split]["rmse"] == pytest.approx(16 * few["metrics"][split]["rmse"], rel=1e-4)
        assert many["metrics"][split]["loss"] == pytest.approx(256 * few["metrics"][split]["loss"], rel=2e-4)
        assert many["baselines"]["constant"][split]["mae"] == pytest.approx(
            16 * few["baselines"]["constant"][split]["mae"], rel=1e-6
        )
    assert many["metrics"]["train"]["loss"] == pytest.approx(256 * few["metrics"]["train"]["loss"], rel=2e-4)
    assert few["metrics"]["test"]["rmse"] < 0.85 * few["baselines"]["constant"]["test"]["rmse"]
    for name in ("user", "item"):
        first, second = (embexp.load_run(run(scale, *model).directory).table(name) for scale in ("few", "many"))
        np.testing.assert_allclose(first, second, atol=2e-4)


def test_predictions_and_exports_have_the_unit_of_the_labels(run: Run, tmp_path: Path) -> None:
    result = run("many")
    finished = embexp.load_run(result.directory)
    assert finished.evaluate() == result.summary["metrics"]["test"]
    file = tmp_path / "new.csv"
    file.write_text("user,item\nu1,i1\nu2,i7\nu3,i0\n")
    predicted = finished.predict(file)
    assert 32 < predicted.min() < predicted.max() < 132
    exporting.export(result.directory, tmp_path / "served")
    serve = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    fed = {"user": ["u1", "u2", "u3"], "item": ["i1", "i7", "i0"]}
    # Keyword arguments, as a program without embexp calls it.
    served = next(iter(serve(**{name: tf.constant(values) for name, values in fed.items()}).values()))
    np.testing.assert_allclose(np.ravel(served), predicted, rtol=1e-6)


def test_without_it_the_model_is_the_plain_one(run: Run) -> None:
    result = run("few", "train.standardize_labels=false", "train.epochs=1")
    names = [layer.name for layer in embexp.load_run(result.directory).model.layers]
    assert "head.dot" in names
    assert "head.rescaled" not in names


def test_the_formula() -> None:
    model = models.standardized(
        models.build_model(
            embexp.compose(["model=mlp"]).model, shapes={"user": (3,)}, dense_width=0, output_bias=0.0, seed=0
        ),
        shapes={"user": (3,)},
        dense_width=0,
        mean=50.0,
        deviation=20.0,
    )
    inner = next(layer for layer in model.layers if layer.name == "mlp")
    x = {"user": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)}
    np.testing.assert_allclose(model(x), 50 + 20 * np.asarray(inner(x), np.float64), rtol=1e-6)
    assert [weight.shape for weight in model.trainable_weights] == [w.shape for w in inner.trainable_weights]


def test_other_tasks_say_that_it_has_no_effect() -> None:
    spec = embexp.compose(["experiment=clicks", "train.standardize_labels=true"])
    assert not spec.standardizes_labels
    assert "train.standardize_labels: labels of task binary have no unit" in inert_settings(spec)


def test_the_key_is_no_part_of_older_ids() -> None:
    plain, standardized = (embexp.compose([f"train.standardize_labels={value}"]) for value in ("false", "true"))
    older = plain.model_dump(mode="json")
    del older["train"]["standardize_labels"]  # as an earlier version recorded it
    read = embexp.RunSpec.model_validate(older)
    assert read == plain
    assert manifest.content_id(plain, "data") != manifest.content_id(standardized, "data")
