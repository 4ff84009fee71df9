"""The table: the best by validation, the order, settings over seeds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

import embexp
from embexp.errors import CommandLineError, NotARunError, RunError
from embexp.reports.collected import collect
from embexp.reports.page import of_runs
from embexp.reports.report import report, setting_columns, tabulate
from tests.reports.made_runs import ledger, run, spec, sweep

SGD, ADAM, ADAGRAD = [1.0, 1.2, 1.1], [0.9, 1.0, 1.05], [0.95, 1.01, 1.0]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep(tmp_path_factory.mktemp("swept"), optimizers={"sgd": SGD, "adam": ADAM, "adagrad": ADAGRAD})


def test_the_best_by_validation_comes_first(swept: Path) -> None:
    found = report(swept)
    assert found.metric == "rmse"
    values = [row["validation rmse"] for row in found]
    assert values == sorted(SGD + ADAM + ADAGRAD)
    assert [row["best"] for row in found] == [True] + [False] * 8
    assert found[0]["optimizer"] == "adam"
    assert found.keys == ("optimizer", "seed")
    assert len(found) == 9


def test_test_values_choose_nothing(tmp_path: Path) -> None:
    run(tmp_path / "a", spec(seed=0), validation={"rmse": 1.0}, test={"rmse": 9.0})
    run(tmp_path / "b", spec(seed=1), validation={"rmse": 2.0}, test={"rmse": 1.0})
    best = report(tmp_path).best
    assert best is not None
    assert best.name == "a"


def test_higher_may_be_better_and_nan_is_never_the_best(tmp_path: Path) -> None:
    for name, value in (("a", None), ("b", 0.6), ("c", 0.8), ("d", None)):
        content = spec(task="classification", optimizer__learning_rate=ord(name))
        run(tmp_path / name, content, validation={"accuracy": value})
    found = report(tmp_path)
    assert [row["run"] for row in found] == ["c", "b", "a", "d"]
    assert [row["best"] for row in found] == [True, False, False, False]
    alone = tabulate([record for record in collect([tmp_path]) if record.name == "a"])
    assert alone.best is None


def test_sorting_and_filtering(swept: Path) -> None:
    found = report(swept, sort="test rmse:desc", filters=["optimizer=sgd,adam", "seed>=1"])
    assert [(row["optimizer"], row["seed"]) for row in found] == [("sgd", 1), ("sgd", 2), ("adam", 2), ("adam", 1)]
    assert [row["best"] for row in found] == [False, False, False, True]
    with pytest.raises(CommandLineError, match="none of the 9 runs satisfies seed>7"):
        report(swept, filters=["seed>7"])
    with pytest.raises(CommandLineError, match="no run has a value of 'speed'"):
        report(swept, sort="speed")


class TestGroups:
    """Settings that differ in the seed only."""

    def test_their_figures(self, swept: Path) -> None:
        found = report(swept)
        assert {group.first.value("optimizer"): len(group.runs) for group in found.groups} == {
            "adam": 3,
            "adagrad": 3,
            "sgd": 3,
        }
        [best] = [group for group in found.groups if group.best]
        assert best.first.value("optimizer") == "adam"
        assert best.values["validation rmse"].mean == pytest.approx(sum(ADAM) / 3)
        assert best.values["test mae"].std == pytest.approx(
            math.sqrt(sum((a - sum(ADAM) / 3) ** 2 for a in ADAM) / 2) / 2
        )

    def test_they_are_sorted_by_their_means(self, tmp_path: Path) -> None:
        sweep(tmp_path, optimizers={"one": [0.1, 9.0], "two": [1.0, 1.1], "none": [math.nan, 1.0], "three": [2.0, 2.0]})
        found = report(tmp_path)
        names = [group.first.value("optimizer") for group in found.groups]
        assert names == ["two", "three", "one", "none"]
        assert [group.best for group in found.groups] == [True, False, False, False]
        by_job = report(tmp_path, sort="job").groups
        assert [group.first.value("optimizer") for group in by_job] == ["one", "two", "none", "three"]

    def test_they_are_compared_with_the_best_on_the_test_split(self, swept: Path) -> None:
        found = report(swept)
        assert found.tested == "test rmse"
        results = {group.first.value("optimizer"): group.comparison for group in found.groups}
        assert results["adam"] is None
        ps = {name: stats.ttest_rel(values, ADAM).pvalue for name, values in (("sgd", SGD), ("adagrad", ADAGRAD))}
        assert results["sgd"].p == pytest.approx(ps["sgd"], rel=1e-6)
        assert results["adagrad"].p == pytest.approx(ps["adagrad"], rel=1e-6)
        assert results["sgd"].difference == pytest.approx((sum(SGD) - sum(ADAM)) / 3)
        assert ps["sgd"] < ps["adagrad"]
        assert results["sgd"].adjusted == pytest.approx(2 * ps["sgd"])
        assert results["adagrad"].adjusted == pytest.approx(max(2 * ps["sgd"], ps["adagrad"]))

    def test_or_with_a_baseline(self, swept: Path) -> None:
        results = {
            group.first.value("optimizer"): group.comparison for group in report(swept, baseline="optimizer=sgd").groups
        }
        assert results["sgd"] is None
        assert results["adam"].p == pytest.approx(stats.ttest_rel(ADAM, SGD).pvalue, rel=1e-6)

    @pytest.mark.parametrize(
        ("baseline", "words"),
        [
            ("optimizer=sgd,adam", "must name one setting, and 2 of 3 satisfy it"),
            ("optimizer=ftrl", "must name one setting, and 0 of 3 satisfy it"),
        ],
    )
    def test_a_baseline_is_one_setting(self, swept: Path, baseline: str, words: str) -> None:
        with pytest.raises(CommandLineError, match=words):
            report(swept, baseline=baseline)

    def test_pairs_are_of_the_same_seed(self, tmp_path: Path) -> None:
        """Seed 1 of adam failed, and the folders are in another order: seeds 0 and 2 are the pairs."""
        for optimizer, seed, value in (
            ("sgd", 2, 3.0),
            ("adam", 0, 1.0),
            ("sgd", 0, 1.5),
            ("adam", 2, 2.0),
            ("sgd", 1, 9.0),
        ):
            content = spec(seed=seed, optimizer__kind=optimizer)
            run(tmp_path / f"{optimizer}{seed}", content, validation={"rmse": value}, test={"rmse": value})
        found = report(tmp_path)
        [sgd] = [group for group in found.groups if group.first.value("optimizer.kind") == "sgd"]
        assert (len(sgd.runs), sgd.comparison.pairs, sgd.comparison.difference) == (3, 2, pytest.approx(0.75))
        assert sgd.comparison.p == pytest.approx(stats.ttest_rel([1.5, 3.0], [1.0, 2.0]).pvalue)
        assert any("only 2 repetitions" in note for note in found.notes)

    def test_what_changes_no_result_splits_no_setting(self, tmp_path: Path) -> None:
        """Threads, output and tracking tell runs apart, and neither settings nor their table."""
        for seed, (threads, plots, tracking) in enumerate(
            [(1, True, "none"), (2, False, "none"), (1, False, "mlflow")]
        ):
            for rate in (0.1, 0.2):
                overrides = [f"seed={seed}", f"optimizer.learning_rate={rate}", f"strategy.intra_op_threads={threads}"]
                content = spec(
                    seed=seed,
                    optimizer__learning_rate=rate,
                    strategy__kind="cpu",
                    strategy__intra_op_threads=threads,
                    strategy__inter_op_threads=seed,
                    output__plots=plots,
                    tracking__kind=tracking,
                )
                overrides += [f"output.plots={plots}", f"tracking={tracking}", f"hydra.job.id={seed}"]
                run(
                    tmp_path / f"{seed}{rate}",
                    content,
                    overrides=overrides,
                    validation={"rmse": seed + rate},
                    test={"rmse": 1 + seed + rate},
                )
        found = report(tmp_path)
        assert [len(group.runs) for group in found.groups] == [3, 3]
        assert [column.heading for column in setting_columns(found)][:2] == ["optimizer.learning_rate", "runs"]
        assert "strategy.intra_op_threads" in found.keys  # was asked for, so the table of runs has it
        assert "strategy.inter_op_threads" not in found.keys
        page = of_runs(found.records)
        assert len(page["groups"]) == 2
        assert not any("threads" in group or "plots" in group for group in page["groups"])

    def test_two_repetitions_have_no_interval_and_a_line_says_why(self, tmp_path: Path) -> None:
        two = report(sweep(tmp_path / "two", optimizers={"sgd": SGD[:2], "adam": ADAM[:2]}))
        assert "95% interval" not in [column.heading for column in setting_columns(two)]
        assert "only 2 repetitions: fewer than 3 say almost nothing about a difference, and get no interval" in str(two)
        three = report(sweep(tmp_path / "three", optimizers={"sgd": SGD, "adam": ADAM}))
        assert "95% interval" in [column.heading for column in setting_columns(three)]
        assert "interval (Student's t)" in str(three)

    def test_the_same_run_twice_counts_once(self, tmp_path: Path) -> None:
        sweep(tmp_path / "a", optimizers={"sgd": SGD})
        sweep(tmp_path / "b", optimizers={"sgd": SGD})
        [group] = report(tmp_path).groups
        assert len(group.runs) == 3

    def test_folds_are_repetitions_too(self, tmp_path: Path) -> None:
        for fold in range(3):
            run(tmp_path / f"{fold}", spec(data__fold=fold), validation={"rmse": 1.0 + fold}, test={"rmse": 1.0})
        found = report(tmp_path)
        assert found.groups[0].values["validation rmse"].mean == 2.0
        assert any("folds share training examples" in note for note in found.notes)

    def test_there_are_none_without_repetitions(self, tmp_path: Path) -> None:
        run(tmp_path / "a", spec(), validation={"rmse": 1.0})
        run(tmp_path / "b", spec(seed=1, train__steps=20), validation={"rmse": 1.0})
        assert report(tmp_path).groups == ()
        with pytest.raises(CommandLineError, match="no setting here was run with several"):
            report(tmp_path, baseline="train.steps=10")

    def test_without_test_values_the_reader_is_warned(self, tmp_path: Path) -> None:
        for seed in range(3):
            for steps in (1, 2):
                run(
                    tmp_path / f"{steps}{seed}",
                    spec(seed=seed, train__steps=steps),
                    validation={"rmse": seed * steps + 1},
                )
        found = report(tmp_path)
        assert found.tested == "validation rmse"
        assert any("p is too small" in note for note in found.notes)

    def test_a_seed_that_diverged_is_not_averaged_away(self, tmp_path: Path) -> None:
        for seed, value in enumerate((1.0, None)):
            run(tmp_path / f"{seed}", spec(seed=seed), validation={"rmse": value}, test={"rmse": value})
        [group] = report(tmp_path).groups
        assert math.isnan(group.values["test rmse"].mean)
        assert not group.best

    def test_compared_keys_are_averaged(self, tmp_path: Path) -> None:
        for seed in range(2):
            summary = {"initialization": {"seconds": 1.0 + seed}, "freeze": {}}
            content = spec(seed=seed, output__compare=["initialization.seconds", "freeze"])
            run(tmp_path / f"{seed}", content, validation={"rmse": 1.0}, summary=summary)
        [group] = report(tmp_path).groups
        assert group.values["initialization.seconds"].mean == 1.5
        assert "freeze" not in group.values


def test_different_metrics_have_no_best(tmp_path: Path) -> None:
    run(tmp_path / "a", spec(), validation={"rmse": 1.0})
    run(tmp_path / "b", spec(task="binary"), validation={"log_loss": 0.1, "auc": 0.6})
    found = report(tmp_path)
    assert (found.best, found.metric) == (None, "")
    assert found.headlines[:2] == ("validation rmse", "validation log_loss")
    assert any("different metrics (rmse, log_loss)" in note for note in found.notes)


class TestFromPython:
    """`embexp.report`."""

    def test_it_is_public_and_a_sequence_of_rows(self, swept: Path) -> None:
        found = embexp.report([swept], sort="job")
        assert [row["job"] for row in found] == list(range(9))
        assert found[2]["seed"] == 2
        assert [row["job"] for row in found[7:]] == [7, 8]
        assert found.rows[0]["test rmse"] == pytest.approx(1.1)
        assert list(found.rows[0]) == list(found.columns)

    def test_misuse_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(NotARunError, match="there is no directory"):
            embexp.report(str(tmp_path / "nowhere"))
        with pytest.raises(NotARunError, match="no directory"):
            embexp.report([])

    def test_one_filter_may_be_a_text(self, swept: Path) -> None:
        assert len(embexp.report(swept, filters="seed=0")) == 3

    def test_pandas(self, swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pandas = pytest.importorskip("pandas")
        found = embexp.report(swept)
        frame = found.to_pandas()
        assert list(frame.columns) == list(found.columns)
        assert list(frame["validation rmse"]) == [row["validation rmse"] for row in found]
        monkeypatch.setitem(__import__("sys").modules, "pandas", None)
        assert pandas is not None
        with pytest.raises(RunError, match="pip install pandas"):
            found.to_pandas()

    def test_text_and_notebook(self, tmp_path: Path) -> None:
        run(tmp_path / "a", spec(init__kind="<script>alert(1)</script>"), validation={"rmse": 1.0})
        run(tmp_path / "b", spec(init__kind="[bold]b[/bold]"), validation={"rmse": 2.0})
        failed = run(tmp_path / "c", spec(init__kind="c"))
        (failed / "run.log").write_text("error: <b>\x1b[31mred</b> [red]x[/red]\n")
        found = embexp.report(tmp_path)
        html = found._repr_html_()
        assert "<script>" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        assert "&lt;b&gt;" in html
        assert "[bold]b[/bold]" in str(found)
        assert "[red]x[/red]" in str(found)
        assert "\x1b" not in str(found) + html


def test_in_a_notebook(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`print` gives the text there, too, where rich would rather display HTML; without seconds nothing changes."""
    here, without = embexp.report(swept), embexp.report(swept, seconds=False)
    text = str(here)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(here) == repr(here) == text
    assert text.splitlines()[0].split()[-1] == "seconds"
    assert "seconds" not in str(without) + without._repr_html_()
    assert '<th style="text-align: right">seconds</th>' in here._repr_html_()
    assert without.rows == here.rows
    assert "<p>best by " in here._repr_html_()


def test_a_key_that_is_named_like_a_fact(tmp_path: Path) -> None:
    """An override that was once added with a key of the table's own."""
    jobs = [{"state": "planned", "overrides": [f"status={value}"], "spec": spec()} for value in "ab"]
    ledger(tmp_path, jobs)
    found = report(tmp_path)
    assert [row["status"] for row in found] == ["planned", "planned"]
    assert len(set(found.columns)) == len(found.columns)


def test_records_of_other_origin(swept: Path) -> None:
    records = [replace(record, metrics={}, metric="", direction=None) for record in collect([swept])]
    found = tabulate(records)
    assert (found.best, found.groups[0].values, found.headlines) == (None, {}, ())
    assert str(found)


def test_a_line_names_runs_that_are_worse_than_a_constant(tmp_path: Path) -> None:
    """By each split and the metric that runs are judged by; those of all runs that are alike are in one line."""
    constant = {"train": {"loss": 0.1}, "validation": {"rmse": 1.5, "mae": 0.5}, "test": {"rmse": 1.0, "mae": 0.5}}
    for place, (own, popular) in enumerate([(1.2, 0.1), (1.2, 0.1), (0.9, 0.1), (0.9, None)]):
        baselines = {"constant": constant, "popularity": {"test": {"ndcg_at_10": popular}}, "other": constant}
        values = {"rmse": own, "mae": 0.6 if place == 0 else 0.4, "ndcg_at_10": 0.05}
        run(
            tmp_path / f"{place}",
            spec(seed=place),
            validation=values,
            test=values,
            summary={"baselines": baselines if place != 2 else "damaged"},
        )
    lines = str(report(tmp_path)).splitlines()
    assert "warning: 2 runs (0, 1) are worse than a constant prediction: test rmse" in lines
    assert "warning: 2 runs (0, 1) are worse than popularity: test ndcg_at_10" in lines
    assert not any("run 2" in line or "run 3" in line for line in lines if line.startswith("warning"))


def test_one_of_several_equal_metrics_is_shown(tmp_path: Path) -> None:
    for seed, value in enumerate((0.3, 0.4)):
        test = {"rmse": 1.0 - value, "recall": value, "hit_rate": value, "mae": 0.1 * (seed == 0) + value}
        run(tmp_path / str(seed), spec(seed=seed), validation={"rmse": 1.0 - value}, test=test)
    assert report(tmp_path).headlines == ("validation rmse", "test rmse", "test recall", "test mae")
    assert "test hit_rate" in report(tmp_path).columns


def _on(place: Path, digest: str, examples: str | None = None) -> None:
    """Notes in the manifest of a run what it read."""
    data = {"digest": digest} | ({} if examples is None else {"examples_digest": examples})
    (place / "manifest.json").write_text(json.dumps({"data": data}))


def test_runs_on_other_data_are_ranked_apart_and_not_averaged(tmp_path: Path) -> None:
    """The file at `data.path` was replaced before the last two runs: nothing in their settings shows it."""
    for number, (rate, seed, digest) in enumerate(
        [(r, s, "a" * 64) for r in (1, 2) for s in (0, 1)] + [(r, s, "b" * 64) for r in (1, 2) for s in (0, 1)]
    ):
        value = 1.0 + number + 0.1 * seed * rate
        content = spec(seed=seed, optimizer__learning_rate=rate)
        _on(run(tmp_path / str(number), content, validation={"rmse": value}, test={"rmse": value}), digest)
    found = report(tmp_path)
    [note] = [note for note in found.notes if "different data" in note]
    assert note == (
        "4 runs (4, 5, 6, 7) were evaluated on different data from 4 runs (0, 1, 2, 3), and not ranked with them:"
        " the content of the data (digest bbbbbbbb, not aaaaaaaa)"
    )
    assert [row["run"] for row in found if row["best"]] == ["0", "4"]
    assert (found.best and found.best.name) == "0"
    assert [[each.name for each in group.runs] for group in found.groups] == [
        ["0", "1"],
        ["2", "3"],
        ["4", "5"],
        ["6", "7"],
    ]
    assert [(group.best, group.reference, group.comparison is None) for group in found.groups] == [
        (True, True, True), (False, False, False), (True, True, True), (False, False, False),
    ]  # fmt: skip
    assert str(found).count("reference") == 3  # one of each data, and the line that says what it is
    assert "for each data set" in str(found)
    assert [row["data_digest"][:2] for row in found] == ["aa"] * 4 + ["bb"] * 4
    page = of_runs(found.records, notes=found.notes)
    assert [each["data"] for each in page["runs"]] == [0] * 4 + [1] * 4
    assert len(page["groups"]) == 4
    assert note in page["notes"]
    named = report(tmp_path, baseline="optimizer.learning_rate=2", filters=["run=0,1,2,3"])
    assert [group.reference for group in named.groups] == [False, True]


def test_a_run_alone_on_its_data_is_the_best_of_none(tmp_path: Path) -> None:
    for number, digest in enumerate("abb"):
        content = spec(seed=0, optimizer__learning_rate=number, data__path=f"{digest}.csv")
        _on(run(tmp_path / str(number), content, validation={"rmse": 1.0 + number}), digest * 64)
    found = report(tmp_path)
    assert [(row["run"], row["best"]) for row in found] == [("1", True), ("2", False), ("0", False)]
    [note] = [note for note in found.notes if "different data" in note]
    assert "the content of the data of a.csv, not b.csv (digest aaaaaaaa, not bbbbbbbb)" in note
    assert report([tmp_path / "0", tmp_path / "1"]).best is None


def test_runs_on_the_same_data_are_ranked_together(tmp_path: Path) -> None:
    """Files that are joined to the examples, as features of users, are no other data."""
    for number in range(2):
        place = run(tmp_path / str(number), spec(optimizer__learning_rate=number), validation={"rmse": 1.0})
        _on(place, f"{number}" * 64, "a" * 64)
    found = report(tmp_path)
    assert not [note for note in found.notes if "different data" in note]
    assert [row["best"] for row in found] == [True, False]


@pytest.mark.parametrize(
    ("settings", "summary", "words"),
    [
        ({"data__split": {"seed": 7}}, {}, "data.split.seed 7, not 0"),
        ({"data__split": {"test": 0.2}}, {}, "data.split.test 0.2, not unset"),
        ({}, {"examples": {"validation": 11}}, "validation examples 11, not 9"),
        ({"data__label_threshold": 4}, {}, "data.label_threshold 4, not unset"),
    ],
)
def test_another_split_is_other_data(
    tmp_path: Path, settings: dict[str, Any], summary: dict[str, Any], words: str
) -> None:
    for number in range(3):
        own = {"data__split": {"seed": 0}} | (settings if number == 2 else {})
        content = spec(**own, optimizer__learning_rate=number)
        run(tmp_path / str(number), content, validation={"rmse": 3.0 - number}, summary=summary if number == 2 else {})
    found = report(tmp_path)
    [note] = [note for note in found.notes if "different data" in note]
    assert words in note
    assert [row["run"] for row in found if row["best"]] == ["1"]


def test_a_seed_that_draws_the_split_too_repeats_the_setting(tmp_path: Path) -> None:
    """`data.split.seed=${seed}`: each seed has its own split, and the settings are compared seed by seed."""
    for rate in (1, 2):
        for seed in (1, 2, 3):
            content = spec(seed=seed, optimizer__learning_rate=rate, data__split={"seed": seed})
            values = {"rmse": rate + 0.01 * seed * rate}
            run(tmp_path / f"{rate}{seed}", content, validation=values, test=values)
    found = report(tmp_path)
    assert [len(group.runs) for group in found.groups] == [3, 3]
    assert found.groups[1].comparison is not None
    assert found.groups[1].comparison.pairs == 3
    assert not [note for note in found.notes if "different data" in note]
    assert len(of_runs(found.records)["groups"]) == 2
