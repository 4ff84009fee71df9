"""Metrics that a config lists, in a run: watched, with intervals, evaluated again, and verified."""

from __future__ import annotations

import json
from typing import Any

import pytest

import embexp
from embexp.errors import ConfigError
from embexp.reports import results
from tests import short_runs

LISTED = "metrics=[pr_auc,brier,accuracy,{grouped_auc: {by: user}}]"
NAMES = ["log_loss", "auc", "loss", "pr_auc", "brier", "accuracy", "grouped_auc"]
run = pytest.fixture(scope="module")(short_runs.runner)


def summary_of(run: short_runs.Run, *overrides: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run(*overrides).directory / "summary.json").read_text())
    return found


def test_they_are_measured_watched_and_evaluated_again(run: short_runs.Run) -> None:
    watched = ("train.early_stopping.metric=brier", "train.early_stopping.patience=1", "train.evaluate_every=10")
    result = run(LISTED, *watched)
    summary = json.loads((result.directory / "summary.json").read_text())
    assert list(summary["metrics"]["test"]) == NAMES
    lines = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    seen = [line["metrics"]["brier"] for line in lines if line["event"] == "evaluation"]
    assert summary["metrics"]["validation"]["brier"] == min(seen)
    assert embexp.load_run(result.directory).evaluate(split="test") == summary["metrics"]["test"]
    assert set(NAMES) - set(summary["baselines"]["constant"]["test"]) == {"grouped_auc"}


def test_the_final_evaluation_has_intervals_and_the_confusion(run: short_runs.Run) -> None:
    summary = summary_of(run, LISTED)
    found, test = summary["evaluation"]["test"], summary["metrics"]["test"]
    assert list(found["intervals"]) == NAMES
    assert all(low < test[name] < high for name, (low, high) in found["intervals"].items())
    assert sum(map(sum, found["confusion"])) == summary["examples"]["test"]
    right = found["confusion"][0][0] + found["confusion"][1][1]
    assert right / summary["examples"]["test"] == pytest.approx(test["accuracy"])
    headings, rows = results.metric_rows(summary)
    assert headings[4] == "95% on test"
    assert rows[1][4].startswith("±0.")


def test_an_evaluation_of_a_finished_run_has_the_same_intervals(run: short_runs.Run) -> None:
    result, details = run(LISTED), dict[str, Any]()
    assert embexp.load_run(result.directory).evaluate(details=details) == result.summary["metrics"]["test"]
    assert details == result.summary["evaluation"]["test"]


def test_nothing_listed_has_the_bits_of_before(run: short_runs.Run) -> None:
    plain, listed = (summary_of(run, *more) for more in ((), (LISTED,)))
    assert list(plain["metrics"]["test"]) == NAMES[:3]
    assert plain["metrics"]["test"] == {name: listed["metrics"]["test"][name] for name in NAMES[:3]}
    assert {name: each["digest"] for name, each in plain["tables"].items()} == {
        name: each["digest"] for name, each in listed["tables"].items()
    }


@pytest.mark.parametrize(
    ("metrics", "path", "rule", "remedy"),
    [
        ("[accurcy]", "metrics.accurcy", "the metrics of task binary are log_loss,", "did you mean 'accuracy'?"),
        ("[r2]", "metrics.r2", "this is a metric of regression", "leave it out"),
        (
            "grouped_auc",
            "metrics.grouped_auc.by",
            "the metric is a mean over groups",
            "name the column of the groups: user",
        ),
        ("[{grouped_auc: {by: usr}}]", "metrics.grouped_auc.by", "a column that a feature reads", "mean 'user'?"),
        ("[{brier: {by: user}}]", "metrics.brier.by", "only grouped_auc has groups", "remove it"),
        ("[brier,brier]", "metrics", "brier is listed twice", ""),
        ("[3]", "metrics", "3 is no metric", ""),
    ],
)
def test_metrics_that_do_not_fit(metrics: str, path: str, rule: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        embexp.compose(["experiment=clicks", f"metrics={metrics}"])
    [fault] = caught.value.faults
    assert (fault.path, rule in fault.rule, remedy in fault.remedy) == (path, True, True), fault


def test_groups_of_a_column_with_several_values(run: short_runs.Run) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.grouped_auc\.by = 'history': .* has several"):
        run("metrics=[{grouped_auc: {by: history}}]", "train.steps=1")
