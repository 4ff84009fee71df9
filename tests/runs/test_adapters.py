"""A matrix between a table's rows and the model: its gradient, and runs with wide frozen rows behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import ConfigError
from embexp.fields.columns.specs import Dot
from embexp.runs import run as single
from embexp.runs import verification
from embexp.specs.models import MLP
from embexp.training import models
from embexp.training.loop import Replay
from tests.runs import test_histories as histories

ITEMS, WIDE, DIM = 60, 24, 16
MATRIX = "adapter.item"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("adapters")
    np.save(made / "item.npy", np.random.default_rng(0).normal(0, 0.3, (ITEMS, WIDE)).astype(np.float32))
    return made


def overrides(folder: Path, *more: str) -> list[str]:
    return [
        "experiment=clicks",
        "data.examples=1500",
        "data.users=40",
        f"data.items={ITEMS}",
        "train.batch_size=100",
        "train.epochs=2",
        f"tables.item.dim={WIDE}",
        f"tables.item.adapter={DIM}",
        "pretrained@tables.item.pretrained=file",
        f"tables.item.pretrained.path={folder / 'item.npy'}",
        "freeze@tables.item.freeze=table",
        f"output.cache={folder / 'cache'}",
        "output.plots=false",
        "output.tensorboard=false",
        "output.baselines=false",
        *more,
    ]


def weights(model: keras.Model) -> dict[str, Any]:
    return {variable.path.split("/")[-2]: variable for variable in model.trainable_variables}


def with_adapter(model: Any, outputs: int = 1) -> keras.Model:
    """Of two features that share a matrix, one of them a sequence, and one without."""
    inner = {"user": (3,), "item": (3,)} if isinstance(model, Dot) else {"user": (3,), "item": (3,), "seen": (4, 3)}
    outer = {name: (*shape[:-1], 5) if name != "user" else shape for name, shape in inner.items()}
    made = models.build_model(model, shapes=inner, dense_width=0, output_bias=0.0, seed=0, outputs=outputs)
    adapters = {name: ("item", 3) for name in outer if name != "user"}
    return models.adapted(made, shapes=outer, dense_width=0, adapters=adapters, seed=0)


def test_rows_are_multiplied_by_the_matrix_of_their_table() -> None:
    model = with_adapter(Dot(left=("user",), right=("item",), biases=()))
    random = np.random.default_rng(0)
    user, item = random.normal(size=(7, 3)).astype(np.float32), random.normal(size=(7, 5)).astype(np.float32)
    matrix = weights(model)[MATRIX].numpy()
    assert matrix.shape == (5, 3)
    expected = np.sum(user.astype(np.float64) * (item.astype(np.float64) @ matrix), axis=1)
    np.testing.assert_allclose(np.ravel(model({"user": user, "item": item})), expected, rtol=1e-5, atol=1e-6)


def test_the_gradient_is_that_of_finite_differences() -> None:
    """Of all features of the table. The loss is linear in the matrix, so differences have no error but rounding."""
    model = with_adapter(MLP(hidden=()))
    random = np.random.default_rng(1)
    shapes = {"user": (9, 3), "item": (9, 5), "seen": (9, 4, 5)}
    inputs = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    factors = random.normal(size=(9, 1)).astype(np.float32)
    matrix = weights(model)[MATRIX]

    def loss() -> Any:
        return tf.reduce_sum(model(inputs) * factors)

    with tf.GradientTape() as tape:
        value = loss()
    found, start = tape.gradient(value, matrix.value).numpy(), matrix.numpy()
    expected = np.zeros_like(found)
    for place in np.ndindex(*start.shape):
        sides = []
        for sign in (1, -1):
            moved = start.copy()
            moved[place] += sign
            matrix.assign(moved)
            sides.append(float(loss()))
        expected[place] = (sides[0] - sides[1]) / 2
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected).min() > 1e-3


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    spec = embexp.compose(overrides(folder, "init@tables.item.init=memory_map"))
    return single.run(spec, tmp_path_factory.mktemp("run"))


def test_wide_rows_stay_in_their_file_and_the_matrix_learns(finished: single.RunResult, folder: Path) -> None:
    summary = finished.summary
    assert summary["tables"]["item"]["storage"] == "memory_map"
    assert summary["freeze"]["item"]["frozen_rows_changed"] == 0
    np.testing.assert_array_equal(embexp.load_run(finished.directory).table("item"), np.load(folder / "item.npy"))
    start = models.glorot(0, MATRIX)((WIDE, DIM)).numpy()
    learned = weights(embexp.load_run(finished.directory).model)[MATRIX].numpy()
    assert (np.abs(learned - start) > 1e-6).mean() > 0.9
    assert verification.verify(finished.directory).identical


class Multiplied:
    """A loaded run whose tables are those that its model gets."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded
        self._matrices = {name.removeprefix("adapter."): each.numpy() for name, each in weights(loaded.model).items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded, name)

    def table(self, name: str) -> np.ndarray:
        rows = self._loaded.table(name).astype(np.float64)
        return rows @ self._matrices[name] if name in self._matrices else rows


def test_a_loaded_and_an_exported_run_have_the_matrices(tmp_path: Path) -> None:
    """With a history, whose rows an export sums up before they are multiplied."""
    random = np.random.default_rng(0)
    for name, count in (("train", 600), ("validation", 60), ("test", 60)):
        rows = [(f"u{random.integers(30)}", f"i{random.integers(25)}", random.integers(1, 6)) for _ in range(count)]
        histories.write(tmp_path / f"{name}.csv", rows)
    paths = ",".join(f"{name}:{tmp_path / name}.csv" for name in ("train", "validation", "test"))
    words = ["experiment=ratings", "model=svd_plus_plus", f"data.path={{{paths}}}", "data.label=rating"]
    words += ["train.epochs=3", "train.batch_size=32", "tables.user.dim=4", *histories.QUIET]
    words += ["tables.item.dim=9", "tables.item.adapter=4", "tables.rated.dim=7", "tables.rated.adapter={dim: 4}"]
    result = single.run(embexp.compose(words), made(tmp_path, "run"))
    loaded, pairs = embexp.load_run(result.directory), histories.read(tmp_path / "test.csv")
    predicted = loaded.predict(tmp_path / "test.csv")
    rated = histories.histories(tmp_path / "train.csv")
    np.testing.assert_allclose(predicted, histories.formula(Multiplied(loaded), rated, pairs), atol=2e-5)
    loaded.export(tmp_path / "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    given = {"user": tf.constant([user for user, *_ in pairs]), "item": tf.constant([item for _, item, _ in pairs])}
    np.testing.assert_allclose(model.signatures["serving_default"](**given)["predictions"], predicted, atol=2e-5)


def made(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def digests(directory: Path) -> Any:
    summary = json.loads((directory / "summary.json").read_text())
    return summary["tables"], summary["metrics"]


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(folder: Path, tmp_path: Path) -> None:
    spec = embexp.compose(overrides(folder))
    single.run(spec, whole := made(tmp_path, "whole"))
    single.run(spec, stopped := made(tmp_path, "stopped"), replay=Replay(save_at=[9], stop_after=9))
    embexp.resume(stopped)
    assert digests(stopped) == digests(whole)


@pytest.mark.parametrize("more", [["strategy=tpu_simulator"], ["runtime=session"], ["freeze@tables.item.freeze=none"]])
def test_other_strategies_and_runtimes(folder: Path, more: list[str], tmp_path: Path) -> None:
    """Sums in another order; and rows that move, too."""
    here = single.run(embexp.compose(overrides(folder, *(more if "none" in more[0] else []))), made(tmp_path, "cpu"))
    there = single.run(embexp.compose(overrides(folder, *more)), made(tmp_path, "there"))
    for name, value in here.summary["metrics"]["test"].items():
        assert there.summary["metrics"]["test"][name] == pytest.approx(value, rel=2e-4)


def test_an_adapter_of_a_knowledge_graph_is_a_fault() -> None:
    with pytest.raises(ConfigError, match="scores the rows of entities themselves") as caught:
        embexp.compose(["experiment=knowledge_graph", "data.path=graph", "tables.entity.adapter=8"])
    assert "tables.entity.adapter" in [fault.path for fault in caught.value.faults]


def test_dims_are_those_behind_the_matrix(folder: Path) -> None:
    with pytest.raises(ConfigError, match="item 8") as caught:
        embexp.compose(overrides(folder, "tables.item.adapter=8"))
    assert [fault.path for fault in caught.value.faults] == ["model"]
