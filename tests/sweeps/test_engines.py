"""Launchers of others run the jobs of a ledger: the process of the sweep records what they leave in their folders."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from embexp.cli import commands
from embexp.config import composition
from embexp.config.composition import compose_config
from embexp.config.named_code import OWN_MODULES
from embexp.errors import ConfigError
from embexp.reports.record import Status
from embexp.sweeps import engines
from embexp.sweeps.engines import Engine
from embexp.sweeps.jobs import CANCEL, NOT_RUN, Outcome, RunElsewhere, outcome, submit, withdraw
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.progress import Shown
from embexp.sweeps.sweep import sweep
from embexp.sweeps.watching import Watch
from tests.sweeps.engine_jobs import engine, finish, ledger, log

# Of workers of submitit that are waited for by other means than their process.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
LAUNCHERS = ["basic", "submitit_local"]


def run(made: Engine, jobs: Ledger, numbers: list[int]) -> list[Outcome]:
    made.run(jobs, numbers)
    return [outcome(jobs.directory, jobs.job(number)) for number in numbers]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_jobs_run_each_in_a_process_and_are_recorded(launcher: str, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    with ledger(sweep, "works", "fails", "dies", "works", "works") as jobs:
        outcomes = run(engine(launcher, tmp_path), jobs, [0, 1, 2, 4])
        assert [(each.number, each.status, each.reason) for each in outcomes] == [
            (0, Status.COMPLETED, ""),
            (1, Status.FAILED, "ratings.csv: line 5: what is this?"),
            (2, Status.FAILED, "ended by signal 9 (out of memory?)"),
            (4, Status.COMPLETED, ""),
        ]
        assert outcomes[3].metrics == {"validation auc": 0.4}
        assert [each.state for each in jobs.jobs()] == ["completed", "failed", "failed", "planned", "completed"]
        assert jobs.job(4).run_id == "id4"
    processes = {log(sweep, number)[0].split()[4] for number in (0, 1, 2, 4)}
    assert len(processes) == 4
    assert str(os.getpid()) not in processes
    assert not (sweep / "3").exists()
    assert not list(sweep.glob("*/.hydra"))


@pytest.mark.slow
def test_a_job_whose_worker_is_killed_is_told_and_the_others_are_recorded(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    with ledger(sweep, "loses its worker", "works") as jobs:
        lost, works = run(engine("submitit_local", tmp_path), jobs, [0, 1])
    assert works.status is Status.COMPLETED
    # The worker is gone, and its job has ended all the same.
    assert (lost.status, lost.metrics) == (Status.COMPLETED, {"validation auc": 0.0})


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_interrupted_sweep_ends_its_jobs(launcher: str, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"

    def interrupt() -> None:
        give_up = time.monotonic() + 60
        while not (sweep / "0" / "ready").exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    with ledger(sweep, "waits") as jobs:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            run(engine(launcher, tmp_path), jobs, [0])
        assert jobs.job(0).state is Status.INTERRUPTED


@pytest.mark.slow
def test_what_has_ended_without_its_sweep_is_not_run_again(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    with ledger(sweep, "works", "works") as jobs:
        made = engine("basic", tmp_path)
        submit(sweep, jobs.job(0), "first")
        jobs.queue([0], time.time())
        RunElsewhere(str(sweep), os.getcwd(), "first", made.command)({"job": 0})  # the sweep is killed meanwhile
        assert jobs.job(0).state is Status.QUEUED
        watch = Watch(sweep)
        watch.follow([jobs.job(0)])
        made.run(jobs, [0, 1], watch=watch)
        assert [each.state for each in jobs.jobs()] == [Status.COMPLETED, Status.COMPLETED]
    assert len(log(sweep, 0)) == 1


def test_the_terminal_shows_what_is_queued(tmp_path: Path) -> None:
    printed = io.StringIO()
    shown = Shown(Console(file=printed, force_terminal=True, width=100), tmp_path, lambda job: "")
    with ledger(tmp_path / "sweep", "works", "works", "works", "works") as jobs:
        jobs.begin(0, time.time())
        jobs.queue([1, 2], time.time())
        shown.expect(4, 4)
        with shown.live():
            shown.update(jobs.jobs()[:3])
            shown.say("a line, and what runs below it")
    assert "1 running  ·  2 queued  ·  0 done  ·  1 waiting" in printed.getvalue()


@pytest.mark.slow
def test_a_launcher_that_waits_for_its_jobs_is_followed_and_cancelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, made, printed = tmp_path / "sweep", engine("basic", tmp_path), list[str]()
    ledger(sweep, "works", "waits", "works").__exit__()
    process = threading.Thread(target=lambda: printed.append(finish(sweep, made)))
    process.start()
    give_up = time.monotonic() + 60
    states: list[str] = []
    while states != ["completed", "running", "queued"] and time.monotonic() < give_up:
        time.sleep(0.05)
        with Ledger(sweep) as jobs:
            states = [job.state.value for job in jobs.jobs()]
    assert states == ["completed", "running", "queued"]
    assert commands.main(["sweep", "cancel", str(sweep)]) == 0
    process.join()
    with Ledger(sweep) as jobs:
        assert [(job.state, job.attempts) for job in jobs.jobs()] == [
            (Status.COMPLETED, 1), (Status.CANCELLED, 1), (Status.CANCELLED, 0),
        ]  # fmt: skip
    assert "1 running, 1 queued" in capsys.readouterr().out


def test_a_worker_of_an_earlier_submission_runs_nothing(tmp_path: Path) -> None:
    sweep, made = tmp_path / "sweep", engine("basic", tmp_path)
    with ledger(sweep, "works") as jobs:
        late = RunElsewhere(str(sweep), str(tmp_path), "first", made.command)
        submit(sweep, jobs.job(0), "first")
        submit(sweep, jobs.job(0), "second")
        assert late({"job": 0}) == NOT_RUN
        withdraw(sweep, 0)
        assert dataclasses.replace(late, submission="second")({"job": 0}) == NOT_RUN
        assert not (sweep / "0").exists()
        submit(sweep, jobs.job(0), "third")
        (sweep / CANCEL).touch()
        assert dataclasses.replace(late, submission="third")({"job": 0}) == NOT_RUN
        assert not (sweep / "0").exists()


@pytest.mark.slow
def test_a_launcher_that_fails_is_told(tmp_path: Path) -> None:
    with ledger(tmp_path / "sweep", "works") as jobs:
        [outcome] = run(engine("submitit_slurm", tmp_path), jobs, [0])
    assert outcome.status is Status.FAILED
    assert outcome.reason.startswith("hydra/launcher=submitit_slurm: RuntimeError: Could not detect")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["hydra/launcher=submitit_local", "+hydra.launcher.cpu_per_task=2"], r"cpu_per_task = 2: .*\n.*cpus_per_task"),
        (["hydra/launcher=basic", "+hydra.launcher.jobs=2"], r"jobs = 2: the launcher basic has no such setting"),
    ],
)
def test_a_setting_that_a_launcher_lacks_is_a_fault(overrides: list[str], words: str) -> None:
    pytest.importorskip("submitit")
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{words}"):
        engines.engine(compose_config(composition.loader(), overrides).config, OWN_MODULES)


@pytest.mark.slow
def test_a_sweep_with_submitit_has_the_results_of_a_sweep_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.chdir(tmp_path)
    small = [
        "data.examples=500",
        "data.users=60",
        "data.items=80",
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
    ]
    words = ["seed=1,2", "train.steps=3", f"output.cache={tmp_path / 'cache'}", *small]
    assert sweep(["hydra/launcher=submitit_local", *words, "hydra.sweep.dir=there"])
    assert sweep([*words, "hydra.sweep.dir=here"])
    for number in ("0", "1"):
        there, here = (
            json.loads((tmp_path / each / number / "summary.json").read_text()) for each in ("there", "here")
        )
        assert {key: there[key] for key in ("tables", "metrics", "run_id")} == {
            key: here[key] for key in ("tables", "metrics", "run_id")
        }
    assert "2 jobs go to hydra/launcher=submitit_local" in capsys.readouterr().out
    assert (tmp_path / "there" / "0" / ".hydra" / "overrides.yaml").is_file()
    assert sweep(["hydra/launcher=submitit_local", *words, "hydra.sweep.dir=there"])
    assert "2 of 2 jobs are done" in capsys.readouterr().out
