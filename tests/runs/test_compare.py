"""Runs on the same examples: what is compared, what is refused, and what the command writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import embexp
from embexp.cli import commands
from embexp.errors import RunError, UsageError
from embexp.reports.comparison import Comparison
from embexp.runs import compare, experiment
from embexp.runs.compare import Judged, Measured, compare_metric, contenders
from embexp.runs.finished import Run, load_run
from embexp.training.intervals import RESAMPLES, Resampled, resampled
from tests import planted_data
from tests.reports import made_runs

TEST = 120
"""Test examples of the runs."""
SMALL = (
    *("experiment=clicks", "data=csv", "data.label=click", "data.list_columns=[history]", "data.split.kind=random"),
    *("tables.user.dim=4", "tables.item.dim=4", "model=mlp", "model.hidden=[8]"),
    *("train.batch_size=64", "train.epochs=null", "train.steps=20", "train.evaluate_every=null"),
    *("output.plots=false", "output.baselines=false", "output.tensorboard=false"),
    "+metrics.accuracy={}",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs a and b on the same file, other on a part of it, copy on the same rows with one more column."""
    made = tmp_path_factory.mktemp("runs")
    data = planted_data.clicks(made / "clicks.csv", examples=10 * TEST, users=40, items=25, rate=0.4, seed=1)
    head, *lines = data.read_text().splitlines()
    (made / "copy.csv").write_text("\n".join([f"{head},more", *(f"{line},1" for line in lines), ""]))
    (made / "fewer.csv").write_text("\n".join([head, *lines[: 5 * TEST], ""]))
    changed = [line.replace("u7,", "new,", 1) for line in lines]
    (made / "changed.csv").write_text("\n".join([head, *changed, ""]))
    runs = {
        "a": ("clicks", ()),
        "b": ("clicks", ("optimizer.learning_rate=0.5",)),
        "copy": ("copy", ()),
        "fewer": ("fewer", ()),
        "changed": ("changed", ()),
    }
    for name, (file, settings) in runs.items():
        (made / name).mkdir()
        places = (f"data.path={made / file}.csv", f"output.cache={made / 'cache'}")
        experiment.run(embexp.compose([*SMALL, *places, *settings]), made / name)
    return made


def compared(folder: Path, *names: str, **options: Any) -> Comparison:
    return embexp.compare([folder / name for name in names], **options)


@pytest.fixture(scope="module")
def pair(folder: Path) -> Comparison:
    return compared(folder, "a", "b", rows=2)


def test_values_are_those_of_the_runs_and_tests_are_the_right_ones(folder: Path, pair: Comparison) -> None:
    before, after = (json.loads((folder / name / "summary.json").read_text())["metrics"]["test"] for name in "ab")
    assert {each.name: each.test for each in pair.pairs[0].metrics} == {
        "log_loss": "bootstrap",
        "auc": "DeLong",
        "accuracy": "McNemar",
    }
    for each in pair.pairs[0].metrics:
        assert (each.before, each.after) == (before[each.name], after[each.name])
        assert each.interval is not None
        assert each.interval[0] < each.difference < each.interval[1]
    assert (pair["auc"].rows, pair["auc"].unit) == (TEST, "examples")
    assert compare.ONE_SEED in pair.notes


def test_the_other_way_round_it_is_the_same_with_the_other_sign(folder: Path, pair: Comparison) -> None:
    turned = compared(folder, "b", "a", rows=2)
    assert turned.digest == pair.digest
    opposite = {"better": "worse", "worse": "better"}
    for one, other in zip(pair.pairs[0].metrics, turned.pairs[0].metrics, strict=True):
        assert one.interval is not None
        assert other.interval == pytest.approx((-one.interval[1], -one.interval[0]))
        assert (other.difference, other.p) == (-one.difference, pytest.approx(one.p))
        assert opposite.get(one.verdict, one.verdict) == other.verdict
    assert [each.example for each in turned.pairs[0].most_different] == [
        each.example for each in pair.pairs[0].most_different
    ]


class FlippedRun(Run):
    """A run that gives one test example the opposite logit."""

    PLACE = 17

    @property
    def runtime(self) -> Any:
        found = super().runtime

        class Flipped:
            def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
                start = 0
                for labels, logits in found.predict(batches):
                    here = np.arange(start, start + len(labels)) == FlippedRun.PLACE
                    yield labels, np.where(here, -logits, logits)
                    start += len(labels)

        return Flipped()


def test_of_a_copy_with_one_row_flipped_the_row_is_found(folder: Path) -> None:
    models = contenders([folder / "a", folder / "a"])
    second = str(folder / "flipped")
    models[1] = replace(models[1], directories=dict.fromkeys(models[1].directories, second))

    def load(directory: str) -> Run:
        run = load_run(folder / "a")
        return FlippedRun(**vars(run)) if directory == second else run

    [found] = compare.compare(models, load).pairs
    assert (found.differing, found.rows) == (1, TEST)
    [row] = found.most_different
    test = load_run(folder / "a").evaluation().rows
    assert row.example == test[FlippedRun.PLACE]
    line = (folder / "clicks.csv").read_text().splitlines()[1 + row.example].split(",")
    assert (row.named, row.label) == ({"user": line[0], "item": line[1]}, line[3])
    assert float(row.before) + float(row.after) == pytest.approx(1)
    assert {each.name: each.p for each in found.metrics}["accuracy"] == 1
    assert all(each.verdict in ("undecided", "the same") for each in found.metrics)


def test_all_pairs_are_corrected_for_their_number(folder: Path, pair: Comparison) -> None:
    found = compared(folder, "a", "b", "copy", all_pairs=True, rows=0)
    assert [(each.before, each.after) for each in found.pairs] == [("A", "B"), ("A", "C"), ("B", "C")]
    first, same, last = (next(each for each in one.metrics if each.name == "log_loss") for one in found.pairs)
    assert (first.p, same.p, last.p) == (pair["log_loss"].p, 1, pytest.approx(pair["log_loss"].p))
    assert first.p is not None
    assert first.adjusted == pytest.approx(min(1, 3 * first.p))
    assert [each.after for each in compared(folder, "a", "a", "a", rows=0).pairs] == ["B", "C"]


def test_other_examples_are_refused_with_what_differs(folder: Path) -> None:
    with pytest.raises(RunError, match=r"A .*a\) has 120 of 1,200 examples, and B .*fewer\) has 60 of 600 examples"):
        compared(folder, "a", "fewer")
    with pytest.raises(RunError, match=r"the test splits differ.*clicks\.csv.*changed\.csv"):
        compared(folder, "a", "changed")
    file = folder / "clicks.csv"
    assert compared(folder, "a", "fewer", data=file)["auc"].rows == 10 * TEST
    with pytest.raises(UsageError, match="at least two models"):
        compared(folder, "a")
    with pytest.raises(UsageError, match="none of the runs names it"):
        embexp.compare([folder / "a", folder / "b"], allow_code=["os:remove"])


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], pair: Comparison) -> None:
    words = ["compare", str(folder / "a"), str(folder / "b"), "--rows", "2"]
    page, file = tmp_path / "page.html", tmp_path / "figures.json"
    assert commands.main([*words, "--html", str(page), "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert str(pair) in shown
    assert re.search(r"^auc +0\.\d{4} .* DeLong ", shown, re.MULTILINE)
    content = json.loads(file.read_text())
    assert [each["directory"] for model in content["models"] for each in model["runs"]] == [
        str(folder / "a"),
        str(folder / "b"),
    ]
    assert {each["name"]: each["p"] for each in content["pairs"][0]["metrics"]}["auc"] == pair["auc"].p
    assert '"comparison":{"head":' in page.read_text()
    assert commands.main([*words, "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == content
    assert "DeLong" in captured.err
    assert commands.main([*words, "--split", "test", "--data", "x", "--rows", "-1"]) == 2
    assert "--rows -1: it must be at least 0" in capsys.readouterr().err
    assert "<td" in pair._repr_html_()


def runs_of(before: np.ndarray, after: np.ndarray, error: float) -> tuple[list[Measured], list[Measured]]:
    """Runs with these values of AUC, whose resamples have a standard error in the difference of all means."""
    noise = np.random.default_rng(0).normal(size=RESAMPLES)
    noise *= error / noise.std(ddof=1)

    def run(value: float, deviation: np.ndarray) -> Measured:
        return Measured({"auc": value}, (Resampled({"auc": value + deviation}, 9_999, 1.0, "examples", 1),), None)

    return [run(each, 0 * noise) for each in before], [run(each, noise) for each in after]


def test_seeds_are_blocks(folder: Path) -> None:
    """Without chance of the examples, the paired t-test, or that of Welch; with it, the variances are added."""
    spec, random = load_run(folder / "a").spec, np.random.default_rng(5)
    before, after = random.normal(0.8, 0.01, (2, 5))
    judged = Judged.of(spec.task, (), spec.listed_metrics, spec.further_metrics)
    runs = runs_of(before, after, 0.0)
    found = compare_metric("auc", *runs, judged, paired=True)
    expected = stats.ttest_rel(after, before)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval()))
    assert found.seeds_needed is not None
    apart = compare_metric("auc", *runs_of(before, after[:3], 0.0), judged, paired=False)
    assert apart.p == pytest.approx(stats.ttest_ind(after[:3], before, equal_var=False).pvalue)
    assert apart.seeds_needed is None
    error = float(np.std(after - before, ddof=1) / np.sqrt(5))
    both = compare_metric("auc", *runs_of(before, after, error), judged, paired=True)
    assert both.test == compare.BOTH
    assert both.interval is not None
    half = (both.interval[1] - both.interval[0]) / 2
    freedom = 4 / (1 / 4 + 1 / (RESAMPLES - 1))
    assert half == pytest.approx(float(stats.t.ppf(0.975, freedom)) * error * np.sqrt(2), rel=1e-3)
    alone = compare_metric("auc", *runs_of(before, after, error), judged, paired=True, joint=False)
    assert (alone.test, alone.p) == (compare.SEEDS, pytest.approx(expected.pvalue))


def test_blocks_of_examples_stand_for_what_is_known_of_none() -> None:
    """A stranger's evaluation returns metrics, and nothing of each example: here, the mean of the rows' numbers."""
    values = np.random.default_rng(0).normal(size=405)

    def prepared(own: np.ndarray) -> Any:
        def of_rows(rows: np.ndarray) -> Any:
            return lambda *_: {"mean": float(own[rows].mean())}

        return SimpleNamespace(rows=np.arange(1, 405), of_rows=of_rows)

    run: Any = SimpleNamespace(runtime=None)
    drawn = compare.in_blocks(run, prepared(values), ["mean"])
    assert drawn is not None
    assert (drawn.count, drawn.unit, drawn.per_row) == (20, "blocks of 21 examples", 21)
    error = resampled(drawn, 0).errors()["mean"]
    assert error == pytest.approx(values.std() / np.sqrt(404), rel=0.4)
    few: Any = SimpleNamespace(rows=np.arange(19), of_rows=prepared(values).of_rows)
    assert compare.in_blocks(run, few, ["mean"]) is None
    whole: Any = SimpleNamespace(rows=np.arange(400), of_rows=None)
    assert compare.in_blocks(run, whole, ["mean"]) is None


def test_settings_of_a_sweep_are_models(tmp_path: Path) -> None:
    """With their seeds; jobs without results are left out."""
    jobs = [("sgd", 0), ("sgd", 1), ("adam", 0), ("adam", 1)]
    for number, (kind, seed) in enumerate(jobs):
        content = made_runs.spec(optimizer__kind=kind, seed=seed)
        made_runs.run(tmp_path / "sweep" / str(number), content, test={"rmse": 1.0})
    made_runs.run(tmp_path / "sweep" / "4", made_runs.spec(optimizer__kind="adam", seed=2))
    first, second = contenders([tmp_path / "sweep"])
    assert [(each.letter, each.name.rpartition(": ")[2]) for each in (first, second)] == [
        ("A", "optimizer=sgd"),
        ("B", "optimizer=adam"),
    ]
    assert [Path(each).name for each in second.directories.values()] == ["2", "3"]
    assert [run["seed"] for run in second.runs()] == [0, 1]
    whole = contenders([tmp_path / "sweep" / "0", tmp_path / "sweep"])
    assert [each.letter for each in whole] == ["A", "B", "C"]
