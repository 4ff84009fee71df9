"""`embexp check`: experiments are run, finished runs are taken as they are, and their claims are checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embexp.cli import commands
from embexp.cli.commands import run
from embexp.records.folder import RunFolder
from embexp.reports import claims
from embexp.reports.record import Record, Status
from embexp.runs import verification
from embexp.specs.claims import Expected
from tests.reports import made_runs

EXPERIMENT = """\
# @package _global_
defaults: [clicks]
name: mine
data: {{examples: 2000, users: 60, items: 80}}
train: {{batch_size: 64, epochs: null, steps: 6, log_every: 2}}
output: {{plots: false, baselines: false, tensorboard: false}}
expect:
  test.auc: {{value: {value}, within: 0.2, source: "Table 2"}}
  validation.auc: {{at_least: 0.1}}
"""
Check = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the experiment `mine`, and `checked`, in which it has been run and its claims are met."""
    folder = tmp_path_factory.mktemp("check")
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "mine.yaml").write_text(EXPERIMENT.format(value=0.7))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        assert commands.main(["check", "mine", "--config-dir", "conf", "--out", "checked"]) == 0
        yield folder


@pytest.fixture
def check(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """The status and the output of a check in which nothing is trained."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(run, "main", None)
    capsys.readouterr()

    def check(*words: str) -> tuple[int, str]:
        return commands.main(["check", *words, "--config-dir", "conf"]), capsys.readouterr().out

    return check


def experiment(made: Path, text: str) -> None:
    (made / "conf" / "experiment" / "mine.yaml").write_text(text)


def test_the_run_says_whether_its_claims_are_met_and_records_it(made: Path) -> None:
    folder = RunFolder(made / "checked" / "mine")
    summary = folder.read_summary()
    first, second = summary["claims"]
    assert first == {
        "value": 0.7,
        "within": 0.2,
        "source": "Table 2",
        "split": "test",
        "metric": "auc",
        "found": summary["metrics"]["test"]["auc"],
        "met": True,
    }
    assert (second["split"], second["at_least"], second["met"]) == ("validation", 0.1, True)
    assert "expected 0.7 ± 0.2: met (Table 2)" in (folder.path / "run.log").read_text()
    assert verification.planned(folder, summary).spec.expect == folder.read_spec().expect


def test_a_folder_of_runs_is_checked_by_what_they_have_recorded(check: Check, made: Path) -> None:
    experiment(made, EXPERIMENT.format(value=9))
    status, shown = check("checked")
    assert (status, shown.splitlines()[-1]) == (0, "2 of 2 claims are met")
    row = next(line for line in shown.splitlines() if "Table 2" in line)
    assert row.split()[:3] == ["mine", "test", "auc"]
    assert row.split()[4:8] == ["0.7", "±", "0.2", "yes"]
    status, shown = check("checked/mine", "--json")
    content = json.loads(shown)
    assert content["met"] is True
    assert [(row["experiment"], row["metric"], row["met"], row["runs"]) for row in content["claims"]] == 2 * [
        ("mine", "auc", True, 1)
    ]


def test_a_complete_run_of_an_experiment_is_kept_and_checked_by_its_claims_as_they_are_now(
    check: Check, made: Path
) -> None:
    experiment(made, EXPERIMENT.format(value=9))
    status, shown = check("mine", "--out", "checked")
    assert (status, shown.splitlines()[-1]) == (1, "1 of 2 claims are met")


def test_a_run_without_claims_is_checked_by_those_of_its_experiment(check: Check, made: Path) -> None:
    shutil.copytree(made / "checked" / "mine", made / "copied")
    spec = json.loads((made / "copied" / "spec.json").read_text())
    del spec["expect"]
    (made / "copied" / "spec.json").write_text(json.dumps(spec))
    assert "its files have changed since it wrote them: changed: spec.json" in check("copied")[1]
    (made / "copied" / "inventory.json").unlink()
    experiment(made, EXPERIMENT.format(value=9))
    assert check("copied")[0] == 1
    experiment(made, EXPERIMENT.format(value=0.7))
    assert check("copied")[0] == 0
    shutil.rmtree(made / "copied")


def test_what_has_no_data_is_not_checked(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setenv("EMBEXP_DATA", str(made / "nowhere"))
    assert commands.main(["check", "published/[nt]*", "--out", "none", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["claims"]
    assert [row["experiment"] for row in found] == ["published/nations", "published/trec"]
    assert all(row["met"] is None and "there is no such file or folder" in row["why"] for row in found)
    assert not (made / "none").exists()


def test_of_a_sweep_the_mean_over_seeds_counts_for_each_setting(tmp_path: Path, capsys: Any) -> None:
    optimizers, expect = {"sgd": [0.8, 0.9, 1.0], "adam": [0.9, 1.0, 1.1]}, {"test": {"rmse": {"at_most": 1.0}}}
    sweep = made_runs.sweep(tmp_path / "sweep", optimizers=optimizers, expect=expect)
    assert commands.main(["check", str(sweep), "--json"]) == 1
    sgd, adam = json.loads(capsys.readouterr().out)["claims"]
    assert (sgd["experiment"], sgd["found"], sgd["met"], sgd["runs"]) == ("ratings optimizer=sgd", 1.0, True, 3)
    assert (adam["experiment"], round(adam["found"], 6), adam["met"]) == ("ratings optimizer=adam", 1.1, False)
    assert commands.main(["report", str(sweep)]) == 0
    shown = capsys.readouterr().out
    assert "ratings optimizer=adam: test rmse 1.1000, expected at most 1: NOT MET" in shown
    assert "1 of 2 claims are met" in shown
    (sweep / "4" / "summary.json").unlink()
    assert commands.main(["check", str(sweep)]) == 1
    assert "ratings optimizer=adam: not checked: 1 of 3 runs have no results" in capsys.readouterr().out


def test_seeds_that_draw_the_split_too_repeat_a_setting(tmp_path: Path) -> None:
    expected = {"test": {"rmse": Expected(value=0.9, within=0.01)}}
    jobs = [
        Record(
            tmp_path / str(seed),
            str(seed),
            seed,
            Status.COMPLETED,
            settings={"name": "mine", "task": "regression", "seed": seed, "data.split.seed": seed},
            overrides=(f"seed={seed}", f"data.split.seed={seed}"),
            summary={"metrics": {"test": {"rmse": 0.8 + 0.2 * seed}}},
            seconds=2.0,
        )
        for seed in (0, 1)
    ]
    [both] = claims.checked(jobs, expected)
    assert (both.name, both.met, both.seconds, len(both.directories)) == ("mine", True, 4.0, 2)
    apart = [replace(job, number=None) for job in jobs]
    assert [each.met for each in claims.checked(apart, expected)] == [False, False]
