"""Sweeps on Slurm: what is in its queue outlives the process of the sweep, and is neither lost nor run twice.

`fake_slurm` stands in for the cluster; submitit, its workers and the jobs are real processes.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.reports.collected import collect
from embexp.reports.record import Status
from embexp.sweeps import watching
from embexp.sweeps.ledger import Ledger
from embexp.system import slurm
from tests.sweeps import fake_slurm
from tests.sweeps.engine_jobs import engine, finish, ledger, log
from tests.thoroughness import left_out

pytest.importorskip("submitit")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a new cluster, on the command path of this process."""
    commands_of_slurm = fake_slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{commands_of_slurm}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(watching, "_LONGEST", 1.0)
    return tmp_path / "slurm" / "state"


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 45
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def submitted(sweep: Path, *whats: str) -> subprocess.Popen[bytes]:
    """A process that runs a sweep of jobs on Slurm."""
    command = [sys.executable, "-m", "tests.sweeps.engine_jobs", str(sweep), "submitit_slurm", *whats]
    with (sweep.parent / "printed").open("w") as printed:
        return subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=printed, start_new_session=True)


def killed_with_one_job_running(sweep: Path, state: Path) -> None:
    """A sweep whose process was killed when its first job was running, and the second one was waiting."""
    (state / "slots").write_text("1")
    process = submitted(sweep, "waits", "works")
    until(lambda: (sweep / "0" / "ready").exists())
    process.kill()
    process.wait()


def states(sweep: Path) -> list[tuple[str, int]]:
    with Ledger(sweep) as known:
        return [(job.state.value, job.attempts) for job in known.jobs()]


@pytest.mark.slow
def test_what_a_killed_sweep_has_queued_is_waited_for(state: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    killed_with_one_job_running(sweep, state)
    assert [(each.status, each.reason) for each in collect([sweep])] == [(Status.RUNNING, ""), (Status.QUEUED, "")]
    made, asked = engine("submitit_slurm", tmp_path), len(fake_slurm.calls(state, "squeue"))

    def go() -> None:
        until(lambda: len(fake_slurm.calls(state, "squeue")) > asked)  # the sweep has looked
        (sweep / "go").touch()

    threading.Thread(target=go, daemon=True).start()
    printed = finish(sweep, made)
    assert "1 running, 1 queued already: waiting for them" in printed
    assert "job 1 started on " in printed
    assert states(sweep) == [("completed", 1), ("completed", 1)]
    assert [len(log(sweep, number)) for number in (0, 1)] == [1, 1]
    assert len(fake_slurm.calls(state, "sbatch")) == 1


@pytest.mark.slow
@left_out()
def test_what_a_killed_sweep_has_queued_is_cancelled(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "sweep"
    killed_with_one_job_running(sweep, state)
    (state / "silent").touch()  # a report that Slurm does not answer says what the ledger says
    assert [each.status for each in collect([sweep])] == [Status.RUNNING, Status.QUEUED]
    (state / "silent").unlink()
    assert commands.main(["sweep", "cancel", str(sweep)]) == 0
    out = capsys.readouterr().out
    assert "cancelling 1 running, 1 queued" in out
    assert f"2 jobs cancelled; `embexp resume {sweep}` continues the sweep" in out
    assert states(sweep) == [("cancelled", 1), ("cancelled", 0)]
    assert json.loads((sweep / "0" / "summary.json").read_text())["status"] == "interrupted"  # it was saved
    assert not (sweep / "1").exists()
    assert [task["state"] for task in fake_slurm.tasks(state).values()][1] == "CANCELLED"
    assert [each.status for each in collect([sweep])] == [Status.CANCELLED] * 2


@pytest.mark.slow
def test_a_sweep_at_work_is_cancelled_and_resumed(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, printed = tmp_path / "sweep", list[str]()
    (state / "slots").write_text("1")
    made = engine("submitit_slurm", tmp_path)
    ledger(sweep, "waits", "works").__exit__()
    process = threading.Thread(target=lambda: printed.append(finish(sweep, made)))
    process.start()
    until(lambda: (sweep / "0" / "ready").exists() and states(sweep) == [("running", 1), ("queued", 0)])
    assert commands.main(["sweep", "cancel", str(sweep)]) == 0
    process.join()
    assert states(sweep) == [("cancelled", 1), ("cancelled", 0)]
    for line in ("Slurm has queued 2 jobs: 101_0 to 101_1", "job 0 started on ", "2 jobs (0, 1) cancelled"):
        assert line in printed[0]
    assert "the sweep's process is stopping its jobs: 1 running, 1 queued" in capsys.readouterr().out
    assert [task["state"] for task in fake_slurm.tasks(state).values()][1] == "CANCELLED"
    assert not (sweep / "1").exists()
    (sweep / "go").touch()
    finish(sweep, made)
    assert states(sweep) == [("completed", 2), ("completed", 1)]
    with Ledger(sweep) as known:
        first, second = ((each.ended or each.started) - each.started for each in known.attempts(0))
        assert known.job(0).seconds == pytest.approx(first + second)
        assert first > 0
    assert len(fake_slurm.calls(state, "sbatch")) == 2


@pytest.mark.slow
@left_out()
def test_a_job_that_slurm_kills_is_interrupted_and_one_that_it_starts_again_goes_on(
    state: Path, tmp_path: Path
) -> None:
    sweep = tmp_path / "sweep"
    (state / "limit").write_text("600")
    with ledger(sweep, "waits"):
        made = engine("submitit_slurm", tmp_path)
    timer = threading.Thread(
        target=lambda: (until(lambda: (sweep / "0" / "ready").exists()), (state / "limit").write_text("0")), daemon=True
    )
    timer.start()
    finish(sweep, made)
    assert states(sweep) == [("interrupted", 1)]
    with Ledger(sweep) as known:
        assert known.job(0).reason in ("", "Slurm: TIMEOUT")
    (sweep / "0" / "ready").unlink()
    (state / "requeue").touch()
    (state / "limit").write_text("600")

    def preempt() -> None:
        until(lambda: (sweep / "0" / "ready").exists())
        (state / "limit").write_text("0")
        until(lambda: not (state / "requeue").exists())
        (sweep / "go").touch()

    threading.Thread(target=preempt, daemon=True).start()
    finish(sweep, made)
    assert states(sweep) == [("completed", 3)]
    with Ledger(sweep) as known:
        times = [(each.started, each.ended or 0) for each in known.attempts(0)]
        assert known.job(0).seconds == pytest.approx(sum(ended - started for started, ended in times))
    assert sorted(times) == times  # one after the other
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(times))
    assert len(fake_slurm.calls(state, "sbatch")) == 2


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Gives a command of Slurm a text to print."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def answer(name: str, script: str) -> None:
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)

    return answer


def test_states_by_slurm(answers: Callable[[str, str], None]) -> None:
    answers("squeue", "printf '7_[0-1,4%%2]|PENDING|/a\\n7_2|RUNNING|/a\\n8|PREEMPTED|/b\\n'")
    answers("sacct", "printf '7_3|CANCELLED by 1000\\n9|RUNNING\\n10|OUT_OF_ME+\\n'")
    ids = ["7_0", "7_1", "7_2", "7_3", "7_4", "9", "11", "; rm -rf /", "7_x"]
    assert slurm.states(ids) == {
        "7_0": "PENDING",
        "7_1": "PENDING",
        "7_2": "RUNNING",
        "7_3": "CANCELLED",
        "7_4": "PENDING",
        "9": "",  # it has left the queue, whatever the accounts say
        "11": "",
    }
    answers("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    answers("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert slurm.states(["7_3"]) == {"7_3": ""}
    answers("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(slurm.NoAnswerError, match="squeue: Unable to contact slurm controller"):
        slurm.states(["7_3"])


def test_only_jobs_of_the_folder_are_cancelled(answers: Callable[[str, str], None], tmp_path: Path) -> None:
    """A ledger from elsewhere may name any job."""
    answers("squeue", f"printf '7|RUNNING|/home/me/thesis.sh\\n8|PENDING|{tmp_path}/.submitit/8.sh\\n'")
    answers("scancel", f'echo "$@" > {tmp_path}/cancelled')
    assert slurm.cancel(["7", "8", "9", "-u me"], below=tmp_path) == ["7"]
    assert (tmp_path / "cancelled").read_text() == "8\n"
