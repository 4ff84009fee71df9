"""Every way of filling tables, in every runtime that allows it: the same rows, the same training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import RunError
from embexp.runs import run as single
from embexp.runs.prepare import prepare
from embexp.specs.inits import METHODS
from embexp.system import digests
from tests.thoroughness import thorough

ITEMS, DIM, STEPS = 80, 16, 40
PAIRS = [(init, runtime.value) for init, method in METHODS.items() for runtime in method.runtimes]
TRAINABLE = [pair for pair in PAIRS if pair[0] != "memory_map"]
IN_EVERY_RUN = (
    ("constant", "session"),
    ("variable_load", "function"),
    ("scaffold", "estimator"),
    ("memory_map", "function"),
    ("placeholder_feed", "session"),
)
"""Each runtime, and each method but `assign`, which the references have."""
LIKE_ANOTHER = [pair for pair in PAIRS if pair not in IN_EVERY_RUN]
FROZEN = ("freeze@tables.item.freeze=table",)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("matrix") / "item.npy"
    np.save(path, np.random.default_rng(0).normal(0, 0.3, (ITEMS, DIM)).astype(np.float32))
    return path


def run(matrix: Path, directory: Path, *overrides: str) -> single.RunResult:
    spec = embexp.compose(
        [
            "experiment=clicks",
            "optimizer=adagrad",
            "data.examples=4000",
            "data.users=60",
            f"data.items={ITEMS}",
            "train.batch_size=128",
            f"train.steps={STEPS}",
            "train.epochs=null",
            "train.log_every=1",
            "output.plots=false",
            "output.baselines=false",
            "output.tensorboard=false",
            f"output.cache={matrix.parent / 'cache'}",
            "pretrained@tables.item.pretrained=file",
            f"tables.item.pretrained.path={matrix}",
            *overrides,
        ]
    )
    directory.mkdir()
    return single.run(spec, directory)


def losses(result: single.RunResult) -> np.ndarray:
    lines = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    return np.array([line["loss"] for line in lines if line["event"] == "log"])


def initial(matrix: Path, directory: Path, init: str, runtime: str) -> Mapping[str, str]:
    """Digests after a step whose learning rates are so small that no row is moved by it."""
    small = ["optimizer.learning_rate=1e-30", "train.steps=1", "train.log_every=null", "checkpoint.save=never"]
    small += ["data.split.validation=0", "data.split.test=0"]
    result = run(matrix, directory, f"init={init}", f"runtime={runtime}", *small)
    return {name: table["digest"] for name, table in result.summary["tables"].items()}


@pytest.fixture(scope="module")
def reference(matrix: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    return run(matrix, tmp_path_factory.mktemp("runs") / "reference", "init=assign")


@pytest.fixture(scope="module")
def frozen_reference(matrix: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    return run(matrix, tmp_path_factory.mktemp("runs") / "frozen", "init=assign", *FROZEN)


def test_all_ways_leave_the_same_rows(matrix: Path, tmp_path: Path) -> None:
    """In most runs, each method and each runtime once."""
    pairs = TRAINABLE if thorough() else [("assign", "function"), *(each for each in IN_EVERY_RUN if each in TRAINABLE)]
    found = {pair: initial(matrix, tmp_path / "_".join(pair), *pair) for pair in pairs}
    expected = digests.of_rows([np.load(matrix)])
    assert {pair: each["item"] for pair, each in found.items()} == dict.fromkeys(pairs, expected)
    assert len({each["user"] for each in found.values()}) == 1


@pytest.mark.parametrize(("init", "runtime"), TRAINABLE)
def test_all_train_alike(init: str, runtime: str, matrix: Path, reference: single.RunResult, tmp_path: Path) -> None:
    if (init, runtime) in LIKE_ANOTHER and not thorough():
        pytest.skip("in every run, another pair: see `make test-thorough`")
    result = run(matrix, tmp_path / "run", f"init={init}", f"runtime={runtime}")
    assert (result.summary["runtime"], result.summary["initialization"]["method"]) == (runtime, init)
    np.testing.assert_allclose(losses(result), losses(reference), rtol=2e-6)
    assert len(losses(result)) == STEPS
    ours, theirs = embexp.load_run(result.directory), embexp.load_run(reference.directory)
    _close_as_float32_allows(ours.table("item"), theirs.table("item"), np.load(matrix))
    assert ours.evaluate() == pytest.approx(result.summary["metrics"]["test"], rel=1e-6)
    touched = [each.summary["freeze"]["item"]["trainable_rows_touched"] for each in (result, reference)]
    assert touched[0] == touched[1] > 0


def _close_as_float32_allows(found: np.ndarray, expected: np.ndarray, start: np.ndarray) -> None:
    # |error| ≤ 2e-6 · (|w₀| + Σ|Δw|); what a row has moved in the end is less than the sum of its moves.
    assert np.all(np.abs(found - expected) <= 2e-6 * (np.abs(start) + np.abs(expected - start)) + 1e-9)


@pytest.mark.parametrize(("init", "runtime"), PAIRS)
def test_a_frozen_table_is_kept_by_reference(
    init: str, runtime: str, matrix: Path, frozen_reference: single.RunResult, tmp_path: Path
) -> None:
    if (init, runtime) in LIKE_ANOTHER and not thorough():
        pytest.skip("in every run, a session with another init method: see `make test-thorough`")
    result = run(matrix, tmp_path / "run", f"init={init}", f"runtime={runtime}", *FROZEN)
    assert result.summary["freeze"]["item"] == {
        "frozen_rows": ITEMS,
        "frozen_rows_changed": 0,
        "trainable_rows": 0,
        "trainable_rows_touched": 0,
        "trainable_rows_moved": 0,
        "trainable_rows_never_moved": 0,
        "never_moved_because": {"learning_rate_zero": 0, "no_gradient": 0, "never_met": 0},
        "special_rows_never_met": 0,
        "rules": [{"phase": 0, "kind": "table", "multiplier": 0.0, "rows_named": ITEMS, "rows_taken": ITEMS}],
    }
    np.testing.assert_allclose(losses(result), losses(frozen_reference), rtol=2e-6)
    # The matrix is in no checkpoint, the Estimator's own included; a finished run finds it all the same.
    checkpoints = sorted((result.directory / "checkpoints").rglob("*.index"))
    assert checkpoints
    for path in checkpoints:
        names = [name for name, _ in tf.train.list_variables(str(path).removesuffix(".index"))]
        assert any(name.startswith("embedding/user/") for name in names)
        assert not any("embedding/item" in name for name in names)
    finished = embexp.load_run(result.directory)
    np.testing.assert_array_equal(finished.table("item"), np.load(matrix))
    assert finished.evaluate() == pytest.approx(result.summary["metrics"]["test"], rel=1e-6)


def test_a_file_that_has_changed_since_is_noticed(matrix: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.npy"
    np.save(mine, np.load(matrix))
    result = run(matrix, tmp_path / "run", f"tables.item.pretrained.path={mine}", *FROZEN, "train.steps=1")
    np.save(mine, np.load(matrix) + 1)
    with pytest.raises(RunError, match=r"mine\.npy has changed since the run .*frozen table 'item'.*restore the file"):
        embexp.load_run(result.directory).table("item")


def test_early_stopping_goes_back_to_the_best_values(matrix: Path, tmp_path: Path) -> None:
    stopping = ("train.early_stopping.patience=1", "train.evaluate_every=20", "train.steps=300")
    results = {
        runtime: run(matrix, tmp_path / runtime, f"runtime={runtime}", *stopping, "optimizer.learning_rate=1.0").summary
        for runtime in ("function", "session", "estimator")
    }
    assert results["function"]["status"] == "stopped_early"
    assert results["function"]["best_step"] < results["function"]["steps"]
    for each in results.values():
        assert (each["best_step"], each["steps"]) == (
            results["function"]["best_step"],
            results["function"]["steps"],
        )
        assert each["metrics"]["validation"] == pytest.approx(results["function"]["metrics"]["validation"], rel=1e-4)


def test_what_the_graph_holds(tmp_path: Path) -> None:
    """A matrix of 1000 × 1000: only `constant` puts it into the graph; to the others 10 rows make the same graph."""
    ways = ("constant", "placeholder_feed", "scaffold", "variable_load", "assign")[:: 1 if thorough() else 2]
    tables: dict[tuple[str, int], int] = {}
    whole: dict[tuple[str, int], int] = {}
    for rows in (10, 1000):
        path = tmp_path / f"{rows}.npy"
        np.save(path, np.ones((rows, 1000), np.float32))
        for init in ways:
            words = ["experiment=initialization", f"init={init}", f"pretrained.path={path}", "train.steps=1"]
            small = ["data.examples=500", "checkpoint.save=never", f"output.cache={tmp_path / 'cache'}"]
            spec = embexp.compose([*words, *small])
            (tmp_path / f"{init}{rows}").mkdir()
            result = single.run(spec, tmp_path / f"{init}{rows}")
            assert result.summary["tables"]["item"]["vocabulary_size"] == rows
            tables[init, rows] = result.summary["initialization"]["graph_def_bytes"]
            whole[init, rows] = result.summary["initialization"]["total_graph_def_bytes"]
    for init in ways[1:]:
        assert tables["constant", 1000] - tables[init, 1000] >= 4_000_000
        for size in (tables, whole):
            assert abs(size[init, 1000] - size[init, 10]) < 990  # not even a byte per row
            assert size["constant", 1000] - size["constant", 10] >= 3_960_000


def test_constants_that_fit_no_graph_are_refused_before_a_file_is_read(tmp_path: Path) -> None:
    """The file has 2 GiB by its header, and takes no space on the disk."""
    np.lib.format.open_memmap(tmp_path / "glove.npy", "w+", np.float32, (2**23, 64)).flush()
    overrides = [
        *("data.examples=500", "model=mlp", "init=constant", "pretrained@tables.item.pretrained=file"),
        f"tables.item.pretrained.path={tmp_path}/glove.npy",
        *("tables.item.dim=64", f"output.cache={tmp_path}/cache"),
    ]
    said: list[str] = []
    with pytest.raises(RunError, match=r"init=constant: .* item 8388608 × 64"):
        prepare(embexp.compose(overrides), lambda text, part: said.append(text))
    assert not [text for text in said if "glove.npy" in text]
    assert not (tmp_path / "cache" / "finite").exists()
