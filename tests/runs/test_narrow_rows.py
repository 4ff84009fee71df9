"""Whole runs whose rows, or slots, have 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import embexp
from embexp.errors import ConfigError
from embexp.runs import run as single
from embexp.system import native
from tests import checkpoint_values

NARROW = ("tables.user.dtype=bfloat16", "tables.item.dtype=float16", "tables.item.slot_dtype=bfloat16")
FROZEN = ("freeze@tables.user.freeze=rows", "tables.user.freeze.rows=[[3,40]]", "optimizer.weight_decay_factor=0.01")
LAYOUTS = {
    "variable": ("tables.user.storage=variable",),
    "split": ("tables.user.storage=split",),
    "mirrored": ("strategy=mirrored", "tables.user.storage=variable"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., single.RunResult]:
    made: dict[tuple[str, ...], single.RunResult] = {}
    cache = tmp_path_factory.mktemp("cache")

    def run(*overrides: str) -> single.RunResult:
        if overrides not in made:
            made[overrides] = single.run(spec_of(cache, *overrides), tmp_path_factory.mktemp("run") / "run")
        return made[overrides]

    return run


def spec_of(cache: Path, *overrides: str) -> embexp.RunSpec:
    return embexp.compose(
        [
            "experiment=clicks",
            "model=mlp",
            "optimizer=adam",
            "data.examples=4000",
            "data.users=60",
            "data.items=80",
            "train.batch_size=64",
            "train.epochs=null",
            "train.steps=60",
            "output.plots=false",
            "output.tensorboard=false",
            f"output.cache={cache}",
            *overrides,
        ]
    )


def digests_of(result: single.RunResult) -> list[str]:
    return [table["digest"] for table in result.summary["tables"].values()]


def rows_at_first(cache: Path, name: str) -> np.ndarray:
    """Initial rows of a table, float32."""
    from embexp.runs.execute import initial_rows
    from embexp.runs.prepare import prepare

    source = initial_rows(prepare(spec_of(cache)).tables)[name]
    return np.asarray(source.read(0, source.rows))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_stored_in_16_bits_and_frozen_ones_keep_theirs(run: Any, layout: str, tmp_path: Path) -> None:
    result = run(*NARROW, *FROZEN, *LAYOUTS[layout])
    stored = checkpoint_values.every(result.directory / "checkpoints" / "final")
    kinds = {key: str(value.dtype) for key, value in stored.items() if key.startswith("embedding/")}
    assert kinds == {
        "embedding/user": "bfloat16",
        "embedding/user.Smomenta": "float32",
        "embedding/user.Svelocities": "float32",
        "embedding/item": "float16",
        "embedding/item.Smomenta": "bfloat16",
        "embedding/item.Svelocities": "bfloat16",
    }
    first = rows_at_first(tmp_path, "user").astype(ml_dtypes.bfloat16)
    after = stored["embedding/user"]
    np.testing.assert_array_equal(after[3:40].view(np.uint16), first[3:40].view(np.uint16))
    assert (after.view(np.uint16) != first.view(np.uint16)).any()
    assert {name: (table["dtype"], table["slot_dtype"]) for name, table in result.summary["tables"].items()} == {
        "user": ("bfloat16", "float32"),
        "item": ("float16", "bfloat16"),
    }


def test_layouts_end_with_the_same_bits(run: Any) -> None:
    variable, split = (run(*NARROW, *FROZEN, *LAYOUTS[name]) for name in ("variable", "split"))
    assert digests_of(variable) == digests_of(split)


@pytest.mark.skipif(native.library("moves") is None, reason="the library was not built: no C++ compiler")
def test_tensorflows_operations_end_with_the_same_bits(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = run(*NARROW, *FROZEN, *LAYOUTS["variable"])
    monkeypatch.setattr(native, "library", lambda _: None)
    plain = run(*NARROW, *FROZEN, *LAYOUTS["variable"], "name=plain")
    assert digests_of(plain) == digests_of(fused)


def test_the_saved_run_predicts_as_the_trained_one(run: Any) -> None:
    result = run(*NARROW)
    loaded = embexp.load_run(result.directory)
    metrics = loaded.evaluate()
    assert metrics["log_loss"] == pytest.approx(result.summary["metrics"]["test"]["log_loss"], rel=1e-9)
    stored = checkpoint_values.every(result.directory / "checkpoints" / "final")
    np.testing.assert_array_equal(loaded.table("user"), stored["embedding/user"].astype(np.float32))


def test_another_seed_or_rounding_to_the_nearest_is_another_run(run: Any) -> None:
    results = [run(*NARROW), run(*NARROW, *(f"tables.{each}.stochastic_rounding=false" for each in ("user", "item")))]
    assert digests_of(results[0]) != digests_of(results[1])
    assert results[0].summary["run_id"] != results[1].summary["run_id"]


def test_a_run_starts_from_rows_of_another_type(run: Any) -> None:
    result = run(*NARROW)
    start = ("pretrained=checkpoint", f"pretrained.path={result.directory}", "train.steps=1", "optimizer=sgd")
    wide, stored = run(*start), checkpoint_values.every(result.directory / "checkpoints" / "final")
    moved = checkpoint_values.every(wide.directory / "checkpoints" / "final")["embedding/user"]
    unmoved = (moved == stored["embedding/user"].astype(np.float32)).all(axis=1)
    assert moved.dtype == np.float32
    assert 0 < np.count_nonzero(unmoved) < len(unmoved)


@pytest.mark.parametrize(
    ("choice", "rule"),
    [
        ("runtime=session", "the runtime session keeps rows in float32"),
        ("runtime=estimator", "the runtime estimator keeps rows in float32"),
        ("strategy=tpu_simulator", "a TPU keeps rows in float32"),
        ("init=variable_load", "init method assign"),
    ],
)
def test_what_keeps_rows_in_float32_says_so(choice: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rule) as caught:
        embexp.run(spec_of(tmp_path, choice, "tables.user.dtype=bfloat16"), directory=tmp_path / "run")
    assert "tables.user.dtype" in str(caught.value)
    assert "leave it float32" in str(caught.value)
