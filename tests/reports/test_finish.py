"""The end of a sweep."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from embexp.reports import report
from embexp.reports.collected import collect
from tests.reports.made_runs import ledger, sweep


def finished(directory: Path) -> list[str]:
    text = io.StringIO()
    report.write_reports(directory, Console(file=text, width=120), lambda _: [])
    return text.getvalue().removeprefix("\n").splitlines()  # an empty line sets it off from the run's lines


def test_table_files_and_page(tmp_path: Path) -> None:
    folder = sweep(tmp_path, optimizers={"sgd": [2.0], "adam": [1.0]})
    lines = finished(folder)
    assert lines[1].split()[:3] == ["*", "1", "adam"]
    assert lines[-1] == f"results in {folder / 'sweep.csv'} and {folder / 'report.html'}"
    with (folder / "sweep.csv").open(newline="") as file:
        assert [row["optimizer"] for row in csv.DictReader(file)] == ["sgd", "adam"]
    assert [job["number"] for job in json.loads((folder / "sweep.json").read_text())["jobs"]] == [0, 1]
    assert (folder / "report.html").stat().st_size > 1000


def test_a_terminal_says_what_is_done_before_and_after_the_table(tmp_path: Path) -> None:
    text = io.StringIO()
    folder = sweep(tmp_path, optimizers={"sgd": [2.0], "adam": [1.0]})
    console = Console(file=text, width=120, force_terminal=True)
    report.write_reports(folder, console, lambda _: [])
    words = ("comparing the runs", "validation rmse", "making maps of tables for report.html", "writing report.html")
    places = [text.getvalue().index(each) for each in words]
    assert places == sorted(places)


def test_what_sweep_json_says_is_what_was_read(tmp_path: Path) -> None:
    """The ledger may be lost: sweep.json then tells the same jobs, and is written again as it was."""
    folder = sweep(tmp_path, optimizers={"sgd": [2.0, 1.0], "adam": [1.5, 1.25]})
    finished(folder)
    before = collect([folder])
    content = (folder / "sweep.json").read_text()
    (folder / "sweep.sqlite").unlink()
    assert collect([folder]) == before
    finished(folder)
    assert (folder / "sweep.json").read_text() == content


def test_a_sweep_without_results(tmp_path: Path) -> None:
    ledger(tmp_path, [{"state": "failed", "reason": "no luck"}, {"state": "failed", "reason": "no luck"}])
    assert finished(tmp_path)[0] == "2 jobs (0, 1) failed: no luck"


def test_a_report_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sweep(tmp_path, optimizers={"sgd": [2.0]})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "write_page", full)
    lines = finished(folder)
    assert lines[-2] == f"warning: the report can't be written to {folder}: No space left on device"
    assert lines[-1] == f"results in {folder / 'sweep.csv'}"
