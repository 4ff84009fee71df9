"""Runs that restore variables from a checkpoint of any program before their first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp import checkpoints
from embexp.errors import CheckpointError, ConfigError, DataError
from embexp.records import manifest
from embexp.runs import run as single
from embexp.specs.running import Restoring
from tests import checkpoint_values, short_runs
from tests.short_runs import DIM, Run
from tests.thoroughness import thorough

RUNTIMES = {
    "function": (),
    "mirrored": ("strategy=mirrored", "strategy.replicas=2"),
    "tpu_simulator": ("strategy=tpu_simulator",),
    "SparseCores": ("strategy=tpu_simulator", "strategy.embedding_feature=V2"),
    "session": ("runtime=session",),
    "monitored session": ("runtime=session", "init=scaffold"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return short_runs.runner(tmp_path_factory)


@pytest.fixture(scope="module")
def first(run: Run) -> single.RunResult:
    return run("seed=5")


def final(result: single.RunResult) -> dict[str, np.ndarray]:
    return checkpoint_values.every(result.directory / "checkpoints" / "final")


def untrained(*overrides: str) -> tuple[str, ...]:
    """A step whose learning rates are so small that no float32 changes."""
    return ("train.steps=1", "optimizer.learning_rate=1e-30", "dense_optimizer.learning_rate=1e-30", *overrides)


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
def test_what_is_named_is_restored_in_every_runtime(
    run: Run, first: single.RunResult, runtime: tuple[str, ...], tmp_path: Path
) -> None:
    path = first.directory / "checkpoints" / "final"
    values = final(first)
    rows = len(values["embedding/item"])
    by_name = checkpoints.save(tmp_path / "v1", {"net/table": tf.Variable(tf.fill([rows, DIM], 3.0))}, kind="name")
    model = run(*untrained(*runtime, f"restore.path={path}", "restore.only=[model,embedding/user]"))
    found = final(model)
    weights = [key for key in values if key.startswith("optimizer/_trainable_variables")]
    for key in ["embedding/user", *weights]:
        np.testing.assert_array_equal(found[key], values[key], err_msg=key)
    assert (found["embedding/item"] != values["embedding/item"]).any()
    restored = model.summary["restored"]
    assert restored["checkpoint"] == str(path / "checkpoint")
    assert len(restored["restored"]) == 1 + len(weights)
    assert any(each.startswith("embedding/item ") for each in restored["left_out"])
    renamed = run(
        *untrained(
            *runtime,
            f"restore.path={by_name}",
            "+restore.rename={net/table:embedding/item}",
            "restore.only=[embedding/item]",
        )
    )
    assert (final(renamed)["embedding/item"] == 3).all()
    assert model.summary["run_id"] != renamed.summary["run_id"] != first.summary["run_id"]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras, as it saves
def test_weights_of_keras(run: Run, tmp_path: Path) -> None:
    layer = keras.layers.Dense(32, name="dense")
    model = keras.Sequential([keras.Input((64,)), layer])
    model.save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5") as file:
        assert list(file["layers/dense/vars"]) == ["0", "1"]
    rename = "+restore.rename={layers/dense/vars/0:top.1/kernel,layers/dense/vars/1:top.1/bias}"
    for overrides in ((), ("runtime=session",))[0 if thorough() else 1 :]:
        result = run(
            *untrained(f"restore.path={tmp_path / 'm.weights.h5'}", rename, "restore.only=[top.1]", *overrides)
        )
        values = checkpoint_values.every(result.directory / "checkpoints" / "final")
        np.testing.assert_array_equal(values["optimizer/_trainable_variables/2"], layer.kernel.numpy())
        names = [each.split("(")[1].split(")")[0] for each in result.summary["restored"]["restored"]]
        assert names == ["top.1/kernel", "top.1/bias"]


def test_all_of_another_run_of_either_kind(run: Run, first: single.RunResult) -> None:
    named = run("seed=5", "checkpoint.kind=name")
    for source in (first, named):
        found, values = final(run(*untrained(f"restore.path={source.directory}"))), final(source)
        assert found.keys() == values.keys()
        for key in values:
            if key in ("step", "optimizer/_iterations"):
                assert found[key] == values[key] + 1
            elif "Svelocities" not in key and "Smomenta" not in key and "/_variables/" not in key:
                np.testing.assert_array_equal(found[key], values[key], err_msg=key)


def test_what_does_not_fit_stops_the_run(run: Run, first: single.RunResult, tmp_path: Path) -> None:
    path = first.directory / "checkpoints" / "final"
    with pytest.raises(
        CheckpointError, match=r"(?s)with a different shape or type:\n.*embedding/item.*Use restore\.only"
    ):
        run(f"restore.path={path}", "data.items=40")
    with pytest.raises(CheckpointError, match="has nothing named embedding/itme"):
        run(f"restore.path={path}", "restore.only=[embedding/itme]")
    with pytest.raises(ConfigError, match=r"restore\.path = .*/none': there is no such file or folder"):
        run(f"restore.path={tmp_path / 'none'}")
    with pytest.raises(DataError, match="no checkpoint"):
        run(f"restore.path={tmp_path}")


def test_settings_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    with pytest.raises(ConfigError, match=r"(?s)restore\.only = .*no effect because restore\.path is null"):
        embexp.compose(["restore.only=[x]"])
    composed = embexp.compose(["restore.path=x", "+restore.rename={net/table:embedding/item}"])
    assert composed.restore.rename == {"net/table": "embedding/item"}
    assert composed.restore.path == str(Path("x").absolute())
    assert embexp.compose(["restore.path=x", "restore.rename={net/table:embedding/item}"]) == composed
    with pytest.raises(ConfigError, match=r"an Estimator restores only its own checkpoints"):
        embexp.compose(["restore.path=x", "runtime=estimator"])


def test_frozen_rows_are_compared_with_what_was_restored(run: Run, first: single.RunResult) -> None:
    path = first.directory / "checkpoints" / "final"
    result = run(f"restore.path={path}", "restore.only=[embedding/item]", "freeze@tables.item.freeze=random_table")
    assert result.summary["freeze"]["item"]["frozen_rows_changed"] == 0
    np.testing.assert_array_equal(final(result)["embedding/item"], final(first)["embedding/item"])


def test_ids_are_of_what_is_restored() -> None:
    spec: Any = embexp.compose([])
    restoring = spec.model_copy(update={"restore": Restoring(path="x")})
    one, other = (manifest.content_id(restoring, "data", restored_digest=each) for each in ("a", "b"))
    assert len({one, other, manifest.content_id(spec, "data")}) == 3
    assert one == manifest.content_id(
        spec.model_copy(update={"restore": Restoring(path="elsewhere")}), "data", restored_digest="a"
    )
