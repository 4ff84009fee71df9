"""What is said of a sweep's outcomes."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from embexp.sweeps import outcomes, results
from embexp.sweeps.outcomes import Outcome, Status


def outcome(number: int, status: Status = Status.COMPLETED, **overrides: str) -> Outcome:
    metrics = {"test rmse": float(number), "test loss": number**2.0} if status.has_results else {}
    return Outcome(number, overrides, status, directory=Path(f"/s/{number}"), seconds=1.5, metrics=metrics)


def test_means_are_over_folds_and_seeds_and_never_over_settings() -> None:
    settings = [("sgd", "0"), ("sgd", "1"), ("sgd", "2"), ("adam", "0")]
    found = [outcome(n, optimizer=each, fixed="x", **{"data.fold": fold}) for n, (each, fold) in enumerate(settings)]
    found += [outcome(4, Status.FAILED, optimizer="adam", fixed="x", **{"data.fold": "1"})]
    averages = results.averages(found)
    assert averages == [
        (
            {"optimizer": "sgd"},
            3,
            {
                "test rmse": {"mean": 1.0, "std": 1.0},
                "test loss": {"mean": 5 / 3, "std": pytest.approx(math.sqrt(13 / 3))},
            },
        )
    ]
    assert results.averages([outcome(0, optimizer="sgd"), outcome(1, optimizer="adam")]) == []


def test_the_table() -> None:
    text = io.StringIO()
    found = [outcome(0, seed="0"), outcome(1, seed="1"), outcome(2, Status.SKIPPED, seed="1")]
    results.show(found, Path("/s"), Console(file=text, width=120))
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert lines[0] == ["job", "seed", "status", "test", "rmse", "seconds", "directory"]
    assert lines[1] == ["0", "0", "completed", "0.0000", "1.5", "0"]
    assert lines[4] == ["mean", "2", "values", "±", "std", "0.5000", "±", "0.7071"]
    assert lines[-1] == ["results", "in", "/s"]


def test_only_losses() -> None:
    text = io.StringIO()
    results.show([Outcome(0, {}, Status.COMPLETED, metrics={"test loss": 2.0})], Path("/s"), Console(file=text))
    assert "test loss" in text.getvalue()


@pytest.mark.parametrize(
    ("summary", "exit_status", "expected"),
    [
        ({"status": "completed"}, 0, Status.COMPLETED),
        ({"status": "stopped_early"}, 0, Status.STOPPED_EARLY),
        ({"status": "interrupted"}, 1, Status.INTERRUPTED),
        ({"status": "completed"}, 1, Status.FAILED),
        ({"status": "somehow"}, 0, Status.FAILED),
        (None, 0, Status.FAILED),
    ],
)
def test_status_of_a_job(summary: dict | None, exit_status: int, expected: Status, tmp_path: Path) -> None:
    if summary is not None:
        (tmp_path / "summary.json").write_text(json.dumps(summary))
    found = outcomes.of_directory(tmp_path, number=0, overrides={}, exit_status=exit_status, seconds=1.0)
    assert found.status is expected


def test_a_job_that_says_nothing(tmp_path: Path) -> None:
    found = outcomes.of_directory(tmp_path, number=0, overrides={}, exit_status=3, seconds=1.0)
    assert found.reason == "exit status 3 without a word"


def test_varying() -> None:
    assert outcomes.varying([{"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}]) == ["b", "c"]
    assert outcomes.varying([]) == []
