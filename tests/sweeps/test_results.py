"""How jobs of a sweep ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from embexp.records import inventory
from embexp.reports.record import Status
from embexp.sweeps import jobs, planning


@pytest.mark.parametrize(
    ("summary", "exit_status", "expected"),
    [
        ({"status": "completed"}, 0, Status.COMPLETED),
        ({"status": "stopped_early"}, 0, Status.STOPPED_EARLY),
        ({"status": "interrupted"}, 130, Status.INTERRUPTED),
        ({"status": "completed"}, 1, Status.FAILED),
        ({"status": "somehow"}, 0, Status.FAILED),
        (None, 0, Status.FAILED),
    ],
)
def test_status_of_a_job(summary: dict | None, exit_status: int, expected: Status, tmp_path: Path) -> None:
    if summary is not None:
        (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert jobs.ending(tmp_path, exit_status)[0] is expected


def test_the_last_file_tells_whether_a_job_has_ended_whose_process_is_gone(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"status": "completed"}))
    assert jobs.ending(tmp_path, None) == (Status.INTERRUPTED, "")
    inventory.seal(tmp_path)
    assert jobs.ending(tmp_path, None) == (Status.COMPLETED, "")


def test_a_job_that_says_nothing(tmp_path: Path) -> None:
    assert jobs.ending(tmp_path, 3) == (Status.FAILED, "exit status 3")


def test_varying() -> None:
    assert planning.varying([{"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}]) == ["b", "c"]
    assert planning.varying([]) == []
