"""Sweeps as a user runs them: jobs forked from a process with TensorFlow, failing, killed and resumed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from embexp.sweeps.ledger import Ledger, LedgerJob
from tests.thoroughness import thorough

pytestmark = pytest.mark.slow

MODELS = """
import os
import sys
import keras

def good(activations):
    print("parent", os.getppid(), "tensorboard", "tensorboard" in sys.modules, "leads", os.getsid(0) == os.getpid())
    return keras.Model(activations, keras.layers.Dense(1)(keras.layers.Concatenate()(list(activations.values()))))

def bad(activations):
    raise ValueError("no [bold]good[/bold]")

def gone(activations):
    os._exit(7)
"""
QUICK = (
    "data.examples=3000",
    "data.users=50",
    "data.items=40",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=30",
    "checkpoint.every_steps=3",
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
    "output.cache=cache",
    "hydra.launcher.jobs=2",
)

ALLOWED = [word for name in ("good", "bad", "gone") for word in ("--allow-code", f"mine:{name}")]


def embexp(*words: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "embexp", *words]
    out = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, text=True, start_new_session=True, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the user's models, and with a file that must not be taken for Python's `random`."""
    path = tmp_path_factory.mktemp("sweeps")
    (path / "mine.py").write_text(MODELS)
    (path / "random.py").write_text("raise ImportError('that is mine')")
    return path


def ledger(directory: Path) -> list[LedgerJob]:
    with Ledger(directory) as opened:
        return opened.jobs()


def results(directory: Path) -> dict[str, Any]:
    """What must be the same bits, of each run that has ended."""
    found: dict[str, Any] = {}
    for path in sorted(directory.glob("*/summary.json")):
        summary = json.loads(path.read_bytes())
        lines = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("timing", None)
        kept = {key: summary[key] for key in ("status", "run_id", "metrics", "tables", "freeze")}
        found[path.parent.name] = {**kept, "lines": lines}
    return found


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> tuple[Path, str]:
    """A sweep that nothing interrupts, and its output."""
    words = ["model=keras", "model.function=mine:good,mine:bad,mine:gone", "seed=0,1", *QUICK]
    process = embexp("run", "-m", *words, "hydra.sweep.dir=whole", folder=folder)
    out, err = process.communicate()
    assert process.returncode == 1, err
    return folder / "whole", out


def test_failed_jobs_tell_their_own_cause(undisturbed: tuple[Path, str]) -> None:
    directory, out = undisturbed
    jobs = ledger(directory)
    assert [job.state.value for job in jobs] == ["completed", "completed", *["failed"] * 4]
    place = directory.parent / "mine.py"
    why = f"model.function = 'mine:bad': it raised ValueError: no [bold]good[/bold] ({place}:11)"
    assert [job.reason for job in jobs[2:4]] == [why, why]
    assert f"2 jobs (2, 3) failed: {why}" in out
    assert all(job.reason.startswith("exit status 7") for job in jobs[4:])
    assert "fault in the config" not in out
    assert all(job.run_id for job in jobs[:2])
    assert json.loads((directory / "2" / "failure.json").read_text())["error"] == "ConfigError"


def test_jobs_are_forked_from_one_process(undisturbed: tuple[Path, str]) -> None:
    """Which has imported what all need; and each leads a session of its own, so that Ctrl-C reaches the sweep alone."""
    directory, _ = undisturbed
    logs = [(directory / str(number) / "run.log").read_text().splitlines() for number in (0, 1)]
    told = [line for log in logs for line in log if line.startswith("parent ")]
    assert len(told) >= 2
    assert len(set(told)) == 1
    assert told[0].endswith(" tensorboard True leads True")


def test_a_job_with_other_kernels_starts_afresh(folder: Path) -> None:
    words = ["strategy.onednn=off", "seed=0", *QUICK, "hydra.sweep.dir=kernels"]
    process = embexp("run", "-m", *words, folder=folder)
    assert process.communicate()[1] == ""
    assert [job.state.value for job in ledger(folder / "kernels")] == ["completed"]
    manifest = json.loads((folder / "kernels" / "0" / "manifest.json").read_text())
    assert manifest["kernels"]["onednn"] is False


def test_killed_at_random_and_resumed(folder: Path, undisturbed: tuple[Path, str]) -> None:
    whole, _ = undisturbed
    words = ["model=keras", "model.function=mine:good,mine:bad", "seed=0,1", *QUICK]
    generator = random.Random(0)
    seen: dict[int, float | None] = {}
    directory = folder / "killed"
    for attempt in range(4 if thorough() else 1):
        started = ("resume", "killed", *ALLOWED[:4]) if attempt else ("run", "-m", *words, "hydra.sweep.dir=killed")
        process = embexp(*started, folder=folder)
        _wait_for_a_checkpoint(process, directory, attempt)
        time.sleep(generator.uniform(0, 0.5))
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        psutil.wait_procs(family, timeout=20)
        assert not [each for each in family if each.is_running()]
        done = {job.number: job.ended for job in ledger(directory) if job.state.has_results}
        assert done.items() >= seen.items()
        seen = done
    process = embexp("resume", "killed", *ALLOWED[:4], folder=folder)
    _, err = process.communicate()
    assert process.returncode == 1, err
    assert results(directory) == results(whole)
    assert len(results(directory)) == 2
    assert {job.number: job.ended for job in ledger(directory)}.items() >= seen.items()


def _wait_for_a_checkpoint(process: subprocess.Popen[str], directory: Path, attempt: int) -> None:
    """Waits until the sweep has gone some way: further at every attempt."""
    while process.poll() is None:
        reached = [int(path.name.removeprefix("step_")) for path in directory.glob("[01]/checkpoints/step_*")]
        if max(reached, default=0) >= 6 * (attempt + 1) or (attempt and len(results(directory)) == 2):
            return
        time.sleep(0.02)


def test_ctrl_c_saves_and_resume_goes_on(folder: Path, undisturbed: tuple[Path, str]) -> None:
    whole, _ = undisturbed
    words = ["model=keras", "model.function=mine:good", "seed=0,1", *QUICK, "hydra.sweep.dir=stopped"]
    process = embexp("run", "-m", *words, folder=folder)
    directory = folder / "stopped"
    while not list(directory.glob("0/checkpoints/step_*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert "running jobs, with a checkpoint" in err
    assert process.returncode == 130
    assert {job.state.value for job in ledger(directory)} <= {"interrupted", "completed"}
    process = embexp("resume", "stopped", "hydra.launcher.jobs=1", "--allow-code", "mine:good", folder=folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "resuming from step" in (directory / "0" / "run.log").read_text()
    kept = results(whole)
    assert results(directory) == {number: kept[number] for number in ("0", "1")}
