from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from embexp.training.listeners import MetricsFile


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path: Path) -> list[dict[str, Any]]:
    file = MetricsFile(path)
    file.started(100, 1000)
    file.progressed(5)
    file.logged(10, 0.75, None)
    file.logged(20, 0.5, 12345.6)
    file.evaluated(20, "validation", {"auc": 0.75, "loss": 0.6})
    file.ended("completed")
    return lines(path)


def test_lines(tmp_path: Path) -> None:
    found = written(tmp_path / "run" / "metrics.jsonl")
    timings = [line.pop("timing") for line in found]
    assert found == [
        {"event": "log", "step": 10, "loss": 0.75},
        {"event": "log", "step": 20, "loss": 0.5},
        {"event": "evaluation", "step": 20, "split": "validation", "metrics": {"auc": 0.75, "loss": 0.6}},
    ]
    assert [timing.get("examples_per_second", "absent") for timing in timings] == [None, 12345.6, "absent"]
    seconds = [timing["seconds"] for timing in timings]
    assert seconds == sorted(seconds)


def test_equal_runs_leave_equal_lines_but_for_the_timing(tmp_path: Path) -> None:
    one, other = written(tmp_path / "one.jsonl"), written(tmp_path / "other.jsonl")
    assert one != other
    for line in (*one, *other):
        del line["timing"]
    assert one == other


def test_each_line_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.started(100, 1000)
    for step in range(3):
        file.logged(step, 0.5, None)
        assert [line["step"] for line in lines(path)] == list(range(step + 1))


def test_a_half_written_line_is_cut_off_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "log", "step": 1}\n{"event": "lo')
    file = MetricsFile(path)
    file.started(100, 1000)
    file.logged(2, 0.5, None)
    assert [line["step"] for line in lines(path)] == [1, 2]


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")], ids=["nan", "inf", "-inf"]
)
def test_numbers_that_json_lacks_survive(tmp_path: Path, value: float, text: str) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.started(1, 1)
    file.logged(1, value, None)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    loss = json.loads(path.read_text(), parse_constant=refuse)["loss"]
    assert loss == text
    assert str(float(loss)) == str(value)
