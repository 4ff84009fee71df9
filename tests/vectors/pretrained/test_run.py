"""Whole runs that start from a file."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import embexp
from embexp.cli import commands
from embexp.reports.results import Results
from embexp.runs import run as single
from embexp.system import digests
from tests.vectors.pretrained.conftest import DIM, World

STILL = ("optimizer=sgd", "optimizer.learning_rate=1e-30")
"""Steps that are too small to change a float32."""


@pytest.fixture(scope="module")
def result(world: World, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    spec = world.spec("pretrained=file", f"pretrained.path={world.glove}", *STILL)
    return single.run(spec, tmp_path_factory.mktemp("run"))


def test_the_table_holds_the_rows_of_the_file(world: World, result: single.RunResult) -> None:
    run = embexp.load_run(result.directory)
    table, tokens = run.table("item"), run.vocabulary("item").tokens()
    found = {token: table[row] for row, token in enumerate(tokens) if token in world.vectors}
    assert sorted(found) == ["Item-0", "Item-2", "Item-3", "Item-5", "Item-7", "Item-8"]
    for token, row in found.items():
        np.testing.assert_array_equal(row, np.array(world.vectors[token], np.float32))


def test_the_summary_counts_rows_and_names_the_file(world: World, result: single.RunResult) -> None:
    tables = result.summary["initialization"]["tables"]
    digest = digests.of_file(world.glove)
    assert tables["item"] == {
        "method": "assign",
        "rows_pretrained": 6,
        "rows_missing": 6,
        "rows_special": 1,
        "rows_dropped": None,  # of a file, rows that no table takes are nothing trained
        "pretrained": {"path": str(world.glove), "digest": digest},
        "bytes": 13 * DIM * 4,
    }
    assert (tables["user"]["rows_pretrained"], tables["user"]["rows_missing"]) == (0, 0)
    assert "pretrained has no effect on user, user_bias, item_bias; see coverage.json" in result.summary["warnings"]
    content = json.loads((result.directory / "coverage.json").read_text())
    assert content["tables"]["item"]["digest"] == digest


def test_the_report_shows_what_was_found(result: single.RunResult) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(Results(result.summary, result.directory))
    lines = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    [line] = [words for words in lines if words[-1:] == ["glove.txt"]]
    assert line[:4] == ["item", "6", "(50.0%)", "6"]
    content = json.loads((result.directory / "coverage.json").read_text())
    assert line[5] == content["tables"]["item"]["commonest_missing"][0]["token"]


def test_chunks_make_no_difference(world: World, result: single.RunResult, tmp_path: Path) -> None:
    spec = world.spec("pretrained=file", f"pretrained.path={world.glove}", *STILL, "init.chunk_bytes=50")
    again = single.run(spec, tmp_path)
    assert again.summary["tables"]["item"]["digest"] == result.summary["tables"]["item"]["digest"]


def test_a_finished_run_needs_its_file_no_more(world: World, tmp_path: Path) -> None:
    path = tmp_path / "passing.txt"
    path.write_text(world.glove.read_text())
    (tmp_path / "run").mkdir()
    made = single.run(world.spec("pretrained=file", f"pretrained.path={path}", "train.steps=2"), tmp_path / "run")
    path.unlink()
    assert embexp.load_run(made.directory).evaluate() == made.summary["metrics"]["test"]


def test_more_rows_than_ids_by_the_file(world: World, tmp_path: Path) -> None:
    np.save(tmp_path / "items.npy", np.random.default_rng(0).normal(size=(50, 16)))
    spec = embexp.compose(
        [
            "experiment=clicks", "data.examples=500", "data.users=60", "data.items=40", "train.steps=1",
            f"output.cache={world.folder / 'cache'}", "output.plots=false",
            "output.baselines=false", "output.tensorboard=false", *STILL,
            "pretrained@tables.item.pretrained=file", f"tables.item.pretrained.path={tmp_path / 'items.npy'}",
        ]
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    made = single.run(spec, tmp_path / "run")
    assert made.summary["tables"]["item"]["vocabulary_size"] == 50
    table = embexp.load_run(made.directory).table("item")
    np.testing.assert_array_equal(table, np.load(tmp_path / "items.npy").astype(np.float32))


def test_plan_shows_coverage_with_a_look_at_the_data(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "experiment=ratings", f"data.path={world.folder / 'ratings.csv'}", "data.label=rating",
        f"tables.user.dim={DIM}", f"output.cache={world.folder / 'cache'}",
        "pretrained=file", f"pretrained.path={world.glove}",
    ]  # fmt: skip
    assert commands.main(["plan", *words]) == 0
    assert f"{world.glove} (match exact, missing initializer, transform none)" in capsys.readouterr().out
    assert commands.main(["plan", *words, "--scan"]) == 0
    shown = capsys.readouterr().out
    assert "6 (50.0%)" in shown
    assert (
        "no effect: pretrained on tables.item_bias: the file's rows have 5 numbers, but those of the table "
        "have 1" in shown
    )
