"""The ledger, and one job that is run by it in this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from embexp import compose
from embexp.cli import commands, job
from embexp.errors import DataError, RunError
from embexp.records.folder import RunFolder
from embexp.reports import jobs as reports_jobs
from embexp.reports.record import Status
from embexp.sweeps import jobs, ledger, progress
from embexp.sweeps.jobs import Outcome
from embexp.sweeps.ledger import Attempt, Ledger, LedgerJob
from embexp.sweeps.progress import ProgressFile, Reached
from tests.locked import held_elsewhere


def planned(number: int, **changes: Any) -> LedgerJob:
    spec = compose(["train.steps=3"]).model_dump_json()
    hydra = {".hydra/overrides.yaml": "- seed=1\n"}
    values = {"number": number, "overrides": ("seed=1",), "settings": {"seed": "1"}, "spec": spec, "hydra": hydra}
    return LedgerJob(**{**values, "identity": f"i{number}", "directory": str(number), **changes})


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A sweep of two jobs, the second the same as the first."""
    with Ledger(tmp_path, create=True) as made:
        made.add([planned(0), planned(1, same_as=0, directory="0")], {"command": {"folder": "here"}})
    return tmp_path


def test_what_is_written_is_read(two: Path) -> None:
    with Ledger(two) as opened:
        assert opened.jobs() == [planned(0), planned(1, same_as=0, directory="0")]
        assert opened.noted("command") == {"folder": "here"}
        assert opened.noted("nothing") is None
        opened.begin(0, 10.0)
        opened.end(0, Status.COMPLETED, 12.5, run_id="abc", inventory="def")
        first, second = opened.jobs()
    assert (first.state, first.attempts, first.seconds, first.run_id) == (Status.COMPLETED, 1, 2.5, "abc")
    assert first.inventory == "def"
    assert (second.state, second.attempts, second.seconds, second.run_id) == (Status.COMPLETED, 0, None, "abc")


def test_seconds_are_those_of_all_attempts(two: Path) -> None:
    with Ledger(two) as opened:
        opened.begin(0, 10.0)
        opened.end(0, Status.INTERRUPTED, 12.5)
        opened.begin(0, 100.0)
        assert (opened.job(0).state, opened.job(0).seconds) == (Status.RUNNING, 2.5)
        opened.end(0, Status.FAILED, 104.0)
        opened.queue([0], 200.0)
        opened.identify("slurm", {0: "17_0"})
        queued = opened.job(0)
        assert (queued.state, queued.scheduler, queued.scheduler_job) == (Status.QUEUED, "slurm", "17_0")
        opened.note_attempt(0, Attempt("node7", 300.0))
        assert (opened.job(0).state, opened.job(0).attempts) == (Status.RUNNING, 3)
        opened.note_attempt(0, Attempt("node7", 300.0, 301.5))
        opened.end(0, Status.COMPLETED, 999.0)
        job = opened.job(0)
        assert (job.seconds, job.attempts, job.started, job.ended) == (8.0, 3, 300.0, 301.5)
        assert [(each.ended or 0) - each.started for each in opened.attempts(0)] == [2.5, 4.0, 1.5]
    assert [job.seconds for job in reports_jobs.read(two)] == [8.0, None]


def test_jobs_are_added_all_or_none(two: Path) -> None:
    with Ledger(two) as opened:
        with pytest.raises(sqlite3.Error):
            opened.add([planned(2), planned(3, overrides=("x",), reason=object())])
        assert [job.number for job in opened.jobs()] == [0, 1]


def test_processes_wait_for_each_other(two: Path) -> None:
    def begin() -> None:
        with Ledger(two) as own:
            for _ in range(20):
                own.begin(0, time.time())

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with Ledger(two) as opened:
        assert opened.job(0).attempts == 80


def test_what_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not the directory of a sweep: there is no sweep.sqlite in it"):
        Ledger(tmp_path)
    (tmp_path / ledger.NAME).write_text("this is no database, but long enough to be looked at as one" * 20)
    with pytest.raises(RunError, match="is not the ledger of a sweep: file is not a database"):
        Ledger(tmp_path)
    (tmp_path / ledger.NAME).unlink()
    with contextlib.closing(sqlite3.connect(tmp_path / ledger.NAME)) as other:
        other.execute("PRAGMA user_version = 7")
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(
        RunError, match="has version 7, but this embexp reads version 2: finish it with the embexp that began it"
    ):
        Ledger(tmp_path)


def test_a_ledger_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ledger.NAME).touch()
    with Ledger(tmp_path) as opened:
        assert opened.jobs() == []


def trained(status: str = "completed") -> Any:
    """A training that only writes a summary."""

    def train(directory: Path, *_: object) -> None:
        print("training")
        summary = {"status": status, "run_id": "r", "metrics": {"validation": {"auc": 0.5}}}
        (directory / "summary.json").write_text(json.dumps(summary))

    return train


def run_recorded(sweep: Path, number: int) -> Outcome:
    """What a sweep and the process of a job do, in this process."""
    with Ledger(sweep) as opened:
        planned_job = opened.job(number)
        if planned_job.same_as is not None:
            planned_job = opened.job(planned_job.same_as)
        if planned_job.state.is_settled:
            return jobs.outcome(sweep, planned_job)
        opened.begin(planned_job.number, time.time())
        place = jobs.made_directory(sweep, planned_job)
        with (
            (place / "run.log").open("a", encoding="utf-8", buffering=1) as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            status = job.execute(sweep, planned_job)
        return jobs.settle(opened, planned_job.number, status)


def test_a_job_is_run_as_planned(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_train", trained())
    outcome = run_recorded(two, 1)  # a duplicate: the job that it repeats is run
    assert (outcome.number, outcome.status, outcome.metrics) == (0, Status.COMPLETED, {"validation auc": 0.5})
    assert (two / "0" / "run.log").read_text() == "training\n"
    assert (two / "0" / ".hydra" / "overrides.yaml").read_text() == "- seed=1\n"
    monkeypatch.setattr(job, "_train", lambda *_: pytest.fail("it is done"))
    assert run_recorded(two, 0).status is Status.COMPLETED
    with Ledger(two) as opened:
        assert [(each.state, each.attempts) for each in opened.jobs()] == [(Status.COMPLETED, 1), (Status.COMPLETED, 0)]


def test_a_failure_is_an_outcome(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DataError("a.csv: line 3\n  is empty")

    monkeypatch.setattr(job, "_train", fail)
    outcome = run_recorded(two, 0)
    assert (outcome.status, outcome.reason) == (Status.FAILED, "a.csv: line 3 is empty")
    assert (two / "0" / "run.log").read_text() == "error: a.csv: line 3\n  is empty\n"
    monkeypatch.setattr(job, "_train", trained("interrupted"))
    assert run_recorded(two, 0).status is Status.INTERRUPTED
    assert not (two / "0" / "failure.json").exists()
    with Ledger(two) as opened:
        assert [each.reason for each in opened.jobs()] == ["", ""]
        assert opened.job(0).attempts == 2


def test_a_job_that_was_interrupted_before_it_trained(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)

    monkeypatch.setattr(job, "_train", interrupted)
    assert run_recorded(two, 0).status is Status.INTERRUPTED


def test_no_two_processes_work_in_one_directory(
    two: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_train", trained())
    monkeypatch.setattr(job, "_PATIENCE", 0.1)
    (two / "0").mkdir()
    RunFolder(two / "0").write_spec(compose(["train.steps=3"]))
    with Ledger(two) as opened, held_elsewhere(two / "0") as process:
        assert job.execute(two, opened.job(0)) == jobs.BUSY
        assert f"job 0 in {two / '0'} is in use: process {process.pid} on " in capsys.readouterr().err
        assert not (two / "0" / "failure.json").exists()
        assert commands.main(["resume", str(two / "0")]) == 1
    assert f"the run in {two / '0'} is in use" in capsys.readouterr().err
    assert run_recorded(two, 0).status is Status.COMPLETED


def test_progress_is_read_while_it_is_written(tmp_path: Path) -> None:
    assert progress.read_progress(tmp_path) is None
    writer = ProgressFile(tmp_path)
    writer("reading the data", 0.5)
    assert progress.read_progress(tmp_path) == Reached("reading the data")
    writer.started(200, 1000)
    writer.resumed(50)
    writer.progressed(200)
    found = progress.read_progress(tmp_path)
    assert found is not None
    assert (found.stage, found.step, found.total) == ("training", 200, 200)
    assert found.rate > 0
    (tmp_path / progress.PROGRESS_FILE).write_text("{")
    assert progress.read_progress(tmp_path) is None
