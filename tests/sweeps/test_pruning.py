"""A job asks after each evaluation whether to go on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import embexp
from embexp.runs import run as single
from embexp.runs.run import Observer
from embexp.sweeps import progress


def test_a_job_that_is_not_asked_for_has_no_listener(tmp_path: Path) -> None:
    assert progress.listeners(tmp_path, 0) == []


def test_answers_end_the_training_of_the_job_that_is_worse(tmp_path: Path) -> None:
    asked: list[tuple[int, int, float]] = []

    def decide(number: int, step: int, value: float) -> bool:
        asked.append((number, step, value))
        return number == 1 and step == 20

    with progress.answered(tmp_path, [0, 1], "auc", decide):
        [good], [bad] = progress.listeners(tmp_path, 0), progress.listeners(tmp_path, 1)
        for each in (good, bad):
            each.started(100, 1000)
        good.evaluated(10, "validation", {"auc": 0.7, "log_loss": 0.5})
        bad.evaluated(10, "validation", {"auc": 0.6, "log_loss": 0.6})
        assert (good.stop_status, bad.stop_status) == (None, None)
        good.evaluated(20, "validation", {"auc": 0.8})
        bad.evaluated(20, "validation", {"auc": 0.5})
        assert (good.stop_status, bad.stop_status) == (None, "pruned")
    assert asked == [(0, 10, 0.7), (1, 10, 0.6), (0, 20, 0.8), (1, 20, 0.5)]


def test_what_a_job_does_not_ask_about(tmp_path: Path) -> None:
    def decide(number: int, step: int, value: float) -> bool:
        raise AssertionError((number, step, value))

    with progress.answered(tmp_path, [0], "auc", decide):
        [job] = progress.listeners(tmp_path, 0)
        job.started(100, 1000)
        job.evaluated(100, "validation", {"auc": 0.5})  # its last step
        job.evaluated(50, "train", {"auc": 0.5})
        job.evaluated(50, "validation", {"log_loss": 0.5})  # one class only: no AUC
        job.evaluated(50, "validation", {"auc": float("nan")})
        assert job.stop_status is None


def test_a_resumed_job_that_evaluates_again_gets_the_same_answer(tmp_path: Path) -> None:
    answers = iter([True])
    with progress.answered(tmp_path, [0], "auc", lambda number, step, value: next(answers)):
        for _ in range(2):
            [job] = progress.listeners(tmp_path, 0)
            job.started(100, 1000)
            job.evaluated(10, "validation", {"auc": 0.5})
            assert job.stop_status == "pruned"


def test_a_job_whose_search_is_gone_trains_on(tmp_path: Path) -> None:
    with progress.answered(tmp_path, [0], "auc", lambda number, step, value: True):
        pass
    job = progress.AskedAfterEvaluations(tmp_path / ".pruning" / "0", "auc", patience=0.1)
    job.started(100, 1000)
    began = time.monotonic()
    for step in range(10, 100, 10):
        job.evaluated(step, "validation", {"auc": 0.5})
    assert job.stop_status is None
    assert time.monotonic() - began < 5  # it waits once


def test_an_error_of_the_search_is_raised_by_it(tmp_path: Path) -> None:
    def decide(number: int, step: int, value: float) -> bool:
        raise OSError("no space left")

    def ask() -> None:
        job = progress.AskedAfterEvaluations(tmp_path / ".pruning" / "0", "auc", patience=0.3)
        job.started(100, 1000)
        job.evaluated(10, "validation", {"auc": 0.5})

    with pytest.raises(OSError, match="no space"), progress.answered(tmp_path, [0], "auc", decide):
        ask()


@pytest.mark.slow
def test_a_run_that_is_pruned_ends_tidily(tmp_path: Path) -> None:
    words = ["train.steps=40", "train.epochs=null", "train.batch_size=64", "train.evaluate_every=10"]
    spec = embexp.compose(
        [
            *words,
            "data.examples=2000",
            "output.plots=false",
            "output.baselines=false",
            f"output.cache={tmp_path / 'cache'}",
        ]
    )
    (tmp_path / "0").mkdir()
    with progress.answered(tmp_path, [0], "log_loss", lambda number, step, value: step == 20):
        result = single.run(spec, tmp_path / "0", Observer(lambda: progress.listeners(tmp_path, 0)))
    assert (result.status, result.summary["steps"]) == ("pruned", 20)
    assert set(result.summary["metrics"]) == {"train", "validation", "test"}
    assert json.loads((tmp_path / "0" / "summary.json").read_text())["status"] == "pruned"
    assert (tmp_path / "0" / "checkpoints" / "final").is_dir()
