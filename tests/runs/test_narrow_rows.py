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
from embexp.runs import finished as exporting
from embexp.runs import run as single
from embexp.system import digests, native
from tests import checkpoint_values
from tests.thoroughness import chosen, thorough

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
            "output.baselines=false",
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


@pytest.mark.parametrize(
    "how",
    [
        ("init=variable_load", "runtime=function"),
        *((f"init={init}", "runtime=session") for init in ("assign", "placeholder_feed", "scaffold", "variable_load")),
    ],
    ids="-".join,
)
def test_every_runtime_and_init_method_ends_with_the_same_bits(run: Any, how: tuple[str, ...]) -> None:
    result = run(*NARROW, *how)
    assert digests_of(result) == digests_of(run(*NARROW))
    assert embexp.load_run(result.directory).evaluate()["log_loss"] == pytest.approx(
        result.summary["metrics"]["test"]["log_loss"], rel=1e-9
    )


def test_an_estimator_trains_rows_of_16_bits(run: Any) -> None:
    result = run(*NARROW, *FROZEN, "init=scaffold", "runtime=estimator")
    assert result.summary["freeze"]["user"]["frozen_rows_changed"] == 0
    assert 0 < result.summary["freeze"]["item"]["trainable_rows_moved"] <= 80
    assert [result.summary["tables"][name]["dtype"] for name in ("user", "item")] == ["bfloat16", "float16"]
    stored = checkpoint_values.every(result.directory / "checkpoints" / "final")
    assert [str(stored[f"embedding/{name}"].dtype) for name in ("user", "item")] == ["bfloat16", "float16"]
    read = [stored[f"embedding/{name}"].astype(np.float32) for name in ("user", "item")]
    assert digests_of(result) == [digests.of_rows([rows]) for rows in read]
    assert embexp.load_run(result.directory).evaluate()["log_loss"] == pytest.approx(
        result.summary["metrics"]["test"]["log_loss"], rel=1e-9
    )


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


KINDS = ("float16", "bfloat16")
FROZEN_ROWS = ("freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[3,40]]")
MAPPED = ("freeze@tables.item.freeze=table", "init@tables.item.init=memory_map")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files for the table of items, by the type of their numbers."""
    folder, values = tmp_path_factory.mktemp("files"), np.random.default_rng(0).normal(0, 0.3, (80, 16))
    found = {kind: folder / f"{kind}.npy" for kind in ("float32", *KINDS)}
    for kind, path in found.items():
        np.save(path, values.astype(kind))
    return found


def item(path: Path, dtype: str) -> tuple[str, ...]:
    return (
        "pretrained@tables.item.pretrained=file",
        f"tables.item.pretrained.path={path}",
        f"tables.item.dtype={dtype}",
    )


@pytest.mark.parametrize("dtype", chosen(KINDS, ["bfloat16"]))
def test_frozen_rows_stay_in_a_file_of_16_bits(run: Any, files: dict[str, Path], dtype: str) -> None:
    ways = [
        ("memory_map", "float32", "init@tables.item.init=memory_map"),
        ("split", dtype, "tables.item.storage=split"),
        ("memory_map", dtype, "init@tables.item.init=memory_map"),
        ("memory_map", dtype, "init@tables.item.init=memory_map", "runtime=session"),
        ("variable", dtype, "tables.item.storage=variable"),
    ][: None if thorough() else 3]
    results = [run(*item(files[stored], dtype), *FROZEN_ROWS, *where) for _, stored, *where in ways]
    tables = [result.summary["tables"]["item"] for result in results]
    assert [table["storage"] for table in tables] == [storage for storage, *_ in ways]
    assert len({(table["digest"], table["dtype"]) for table in tables}) == 1
    rows = checkpoint_values.every(results[0].directory / "checkpoints" / "final")["embedding/item"]
    in_file = np.load(files[dtype]).view(dtype)
    np.testing.assert_array_equal(rows[3:40].view(np.uint16), in_file[3:40].view(np.uint16))
    assert (rows.view(np.uint16) != in_file.view(np.uint16)).any()
    np.testing.assert_array_equal(embexp.load_run(results[0].directory).table("item"), rows.astype(np.float32))


def rounded(files: dict[str, Path], dtype: str) -> np.ndarray:
    values = np.load(files["float32"])
    if dtype != "int8":
        return values.astype(dtype).astype(np.float32)
    scales = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    return np.rint(values / scales.astype(np.float64)).astype(np.int8).astype(np.float32) * scales


@pytest.mark.parametrize("dtype", [*KINDS, "int8"])
def test_a_frozen_table_stays_in_its_file(run: Any, files: dict[str, Path], dtype: str, tmp_path: Path) -> None:
    result = run(*item(files["float32"], dtype), *MAPPED)
    summary, expected = result.summary, rounded(files, dtype)
    table = summary["tables"]["item"]
    assert (table["storage"], table["dtype"]) == ("memory_map", dtype)
    assert table["digest"] == digests.of_rows([expected])
    assert summary["initialization"]["tables"]["item"]["bytes"] == 80 * (16 + 4 if dtype == "int8" else 32)
    keys = checkpoint_values.every(result.directory / "checkpoints" / "final")
    assert not [key for key in keys if "embedding/item" in key]
    finished = embexp.load_run(result.directory)
    assert finished.evaluate()["log_loss"] == pytest.approx(summary["metrics"]["test"]["log_loss"], rel=1e-9)
    np.testing.assert_array_equal(finished.table("item"), expected)
    exporting.export(result.directory, tmp_path / "export", kind="npy")
    np.testing.assert_array_equal(np.load(tmp_path / "export" / "item.npy"), expected)


def test_rows_of_8_bits_that_another_run_takes_over(run: Any, files: dict[str, Path]) -> None:
    first = run(*item(files["float32"], "int8"), *MAPPED)
    start = ("pretrained=checkpoint", f"pretrained.path={first.directory}", "freeze@tables.item.freeze=table")
    digest = first.summary["tables"]["item"]["digest"]
    assert run(*start).summary["tables"]["item"]["digest"] == digest
    with pytest.raises(ConfigError, match=r"tables\.item\.dtype = int8: .*it has no pretrained file"):
        run(*start, "tables.item.dtype=int8", "init@tables.item.init=memory_map")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
@pytest.mark.parametrize("dtype", chosen([*KINDS, "int8"], ["bfloat16", "int8"]))
def test_a_mapped_table_takes_no_memory(tmp_path: Path, dtype: str) -> None:
    path, rows, dim = tmp_path / "m.npy", 200_000, 256
    made = np.lib.format.open_memmap(path, "w+", np.float32 if dtype == "int8" else dtype, (rows, dim))
    made[:] = np.random.default_rng(0).standard_normal((rows, dim), np.float32)
    made.flush()
    sizes = (f"data.items={rows}", f"tables.item.dim={dim}", "train.steps=5", "checkpoint.save=never")
    result = single.run(spec_of(tmp_path / "cache", *item(path, dtype), *MAPPED, *sizes), tmp_path / "run")
    initialization = result.summary["initialization"]
    assert initialization["peak_anonymous_bytes"] < initialization["tables"]["item"]["bytes"] / 2


@pytest.mark.parametrize(
    ("overrides", "rule", "remedy"),
    [
        ((), "some of its rows may move; it has no pretrained file; it is not mapped", "freeze@tables.item.freeze"),
        ((*MAPPED[:1], "FILE"), "but it is not mapped", "choose init@tables.item.init=memory_map, or set bfloat16"),
        ((*FROZEN_ROWS, "FILE", *MAPPED[1:]), "but some of its rows may move", "choose freeze@tables.item.freeze=tab"),
        ((*MAPPED, "FILE", "tables.item.pretrained.non_finite=keep"), "int8 has no NaN", "set non_finite to error"),
        ((*MAPPED, "FILE", "strategy=tpu_simulator"), "a TPU keeps rows in float32", "choose another strategy"),
    ],
)
def test_what_can_not_have_8_bits_says_so(
    overrides: tuple[str, ...], rule: str, remedy: str, files: dict[str, Path], tmp_path: Path
) -> None:
    file = item(files["float32"], "int8")
    words = [word for each in overrides for word in (file if each == "FILE" else (each,))]
    with pytest.raises(ConfigError) as caught:
        embexp.run(spec_of(tmp_path, *words, "++tables.item.dtype=int8"), directory=tmp_path / "run")
    assert "tables.item.dtype = int8" in str(caught.value)
    assert rule in str(caught.value)
    assert remedy in str(caught.value)


def test_slots_have_no_8_bits(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"tables\.user\.slot_dtype = int8: int8 works only for values that " r"never change"
    ):
        embexp.run(spec_of(tmp_path, "tables.user.slot_dtype=int8"), directory=tmp_path / "run")


@pytest.mark.parametrize(
    ("choice", "rule"),
    [
        ("strategy=tpu_simulator", "a TPU keeps rows in float32"),
        ("init=constant", "init method constant fills float32 rows only"),
    ],
)
def test_what_keeps_rows_in_float32_says_so(choice: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rule) as caught:
        embexp.run(spec_of(tmp_path, choice, "tables.user.dtype=bfloat16"), directory=tmp_path / "run")
    assert "tables.user.dtype" in str(caught.value)
    assert "leave it float32" in str(caught.value)
