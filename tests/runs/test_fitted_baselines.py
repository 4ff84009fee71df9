"""Fitted baselines of runs: in the summary and the closing table, once per data, and not part of a verification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from embexp.fields.columns import baselines
from embexp.reports.results import fits, metric_rows
from embexp.runs import verification
from embexp.runs.verification import verify
from tests import short_runs

FITTED = "output.baselines=true"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> short_runs.Run:
    return short_runs.runner(tmp_path_factory)


def in_this_process(again: verification.Rerun, directory: Path) -> None:
    from embexp.runs import experiment

    assert not again.spec.output.baselines
    assert experiment.run(again.spec, directory, replay=again.replay).summary["baseline_fits"] == {}


def test_a_run_is_compared_with_logistic_regression(run: short_runs.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("seed=1", FITTED)
    fitted = result.summary["baselines"]["logistic_regression"]
    assert set(fitted) == {"validation", "test"}
    assert fitted["test"].keys() == result.summary["metrics"]["test"].keys()
    assert 0.5 < fitted["test"]["auc"] < 1
    assert result.summary["baseline_fits"]["logistic_regression"]["examples"] == result.summary["examples"]["train"]
    headings, rows = metric_rows(result.summary)
    column = headings.index("logistic regression on test")
    assert headings.index("constant on test") == column - 1
    assert next(row[column] for row in rows if row[0] == "auc") == f"{fitted['test']['auc']:.4f}"
    assert any(" is worse than logistic regression's " in line for line in result.summary["warnings"])

    monkeypatch.setattr(baselines, "predictions", None)  # not called again: seed changes no data
    assert run("seed=2", FITTED).summary["baselines"]["logistic_regression"] == fitted

    found = verify(result.directory, again=in_this_process)
    assert found.identical, found


def test_a_sample_is_stated() -> None:
    fit, whole = {"examples": 2_000, "of": 5_000}, {"examples": 3, "of": 3}
    summary = {"baseline_fits": {"logistic_regression": fit, "bias_only": whole}}
    [line] = fits(summary)
    assert line == "logistic regression: fitted to 2,000 of 5,000 training examples"


def test_a_failing_fit_loses_no_run(run: short_runs.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **settings: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(baselines, "predictions", fails)
    summary = run("data.items=70", FITTED).summary
    assert list(summary["baselines"]) == ["constant"]
    assert any(line.startswith("output.baselines: logistic regression could not be") for line in summary["warnings"])
