"""The command line with real runs, small ones, each in a process of its own.

Processes whose start matters are started afresh: what they say, and how Ctrl-C reaches them. The others, and the jobs
of their sweeps, are forked from one in which TensorFlow is imported.
"""

from __future__ import annotations

import csv
import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import preloaded

pytestmark = pytest.mark.slow

Embexp = Callable[..., subprocess.CompletedProcess[str]]
"""Runs words in the folder `cwd`."""
SMALL = ["data.examples=3000", "data.users=50", "data.items=40", "train.batch_size=128", "train.epochs=1"]
SMALL += ["output.plots=false", "output.baselines=false"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    draw = random.Random(0)
    with (folder / "ratings.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["userId", "movieId", "rating"])
        for _ in range(800):
            user, film = draw.randrange(20), draw.randrange(15)
            rows.writerow([f"u{user}", f"m{film}", round(user / 10 + film / 10, 1)])
    return folder


def environment() -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    return {**clean, "COLUMNS": "120", "TERM": "xterm"}


@pytest.fixture(scope="module")
def embexp(forked: Path) -> Embexp:
    """The command, forked."""
    return lambda *words, cwd: run_command([str(preloaded.with_jobs(forked) / "embexp"), *words], cwd)


def run_command(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment())


def test_from_a_users_csv_to_predictions(folder: Path, embexp: Embexp) -> None:
    words = [
        "run",
        "experiment=ratings",
        "data.path=ratings.csv",
        "data.label=rating",
        "features.user.column=userId",
        "features.item.column=movieId",
        "optimizer.learning_rate=0.5",
        "train.batch_size=64",
        "train.epochs=10",
        "hydra.run.dir=run",
        f"output.cache={folder}/cache",
    ]
    run = embexp(*words, cwd=folder)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["metrics"]["test"]["rmse"] < 0.5
    assert (folder / "run" / ".hydra" / "config.yaml").is_file()
    assert "completed" in (folder / "run" / "run.log").read_text()

    evaluated = embexp("evaluate", "run", "--json", cwd=folder)
    assert json.loads(evaluated.stdout) == summary["metrics"]["test"]
    on_file = embexp("evaluate", "run", "--data", "ratings.csv", cwd=folder)
    assert on_file.returncode == 0, on_file.stderr
    predicted = embexp("predict", "run", "--data", "ratings.csv", "--out", "p.csv", cwd=folder)
    assert predicted.returncode == 0, predicted.stderr
    assert len((folder / "p.csv").read_text().splitlines()) == 801


def test_a_sweep_goes_on_after_a_failure_and_tells_all(folder: Path, embexp: Embexp) -> None:
    (folder / "failing.py").write_text(
        "def build(activations):\n    raise RuntimeError('this model does not like you')\n"
    )
    done = embexp(
        "run",
        "-m",
        *SMALL,
        f"output.cache={folder}/cache",
        "model=mlp,keras",
        "hydra.sweep.dir=sweep",
        cwd=folder,
    )
    assert done.returncode == 2  # keras lacks its function: nothing starts
    assert not (folder / "sweep").exists()
    assert "model.function = nothing: it must be given." in done.stderr

    (folder / "conf" / "model").mkdir(parents=True)
    (folder / "conf" / "model" / "failing.yaml").write_text("kind: keras\nfunction: failing:build\nargs: {}\n")
    done = embexp(
        "run",
        "-m",
        *SMALL,
        "model=failing,mlp",
        "seed=0,1",
        f"output.cache={folder}/cache",
        "hydra.sweep.dir=sweep",
        "--config-dir",
        "conf",
        cwd=folder,
    )
    assert done.returncode == 1
    assert done.stderr == ""
    jobs = json.loads((folder / "sweep" / "sweep.json").read_text())["jobs"]
    assert [job["status"] for job in jobs] == ["failed", "failed", "completed", "completed"]
    assert "it raised RuntimeError: this model does not like you" in jobs[0]["reason"]
    assert f"{folder}/sweep/0/run.log" in done.stdout
    assert " ± " in done.stdout


def test_ctrl_c_ends_a_sweep_tidily(folder: Path) -> None:
    small = [each for each in SMALL if not each.startswith("train.epochs")]
    words = [*small, "train.epochs=100000", "seed=0,1", "hydra.sweep.dir=stopped", f"output.cache={folder}/cache"]
    process = subprocess.Popen(
        [sys.executable, "-m", "embexp", "run", "-m", *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = folder / "stopped" / "0" / "metrics.jsonl"
    give_up = time.monotonic() + 120
    while not (log.is_file() and log.read_text()) and time.monotonic() < give_up:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    jobs = json.loads((folder / "stopped" / "sweep.json").read_text())["jobs"]
    assert [job["status"] for job in jobs] == ["interrupted", "planned"]
    assert json.loads((folder / "stopped" / "0" / "summary.json").read_text())["status"] == "interrupted"


def test_no_chatter_reaches_a_terminal(folder: Path) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "embexp", "run", *SMALL, "hydra.run.dir=tty", f"output.cache={folder}/cache"]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=child, stderr=child, close_fds=True)
    os.close(child)
    said = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(parent)
    assert process.wait() == 0
    text = said.decode()
    assert "examples/s" in text
    for chatter in ("oneDNN", "absl", "cuda", "cuInit", "I0000", "W0000", "E0000", "Warning"):
        assert chatter not in text, text


def test_a_fault_late_in_a_file_ends_the_run_with_status_1(folder: Path, embexp: Embexp) -> None:
    good = (folder / "ratings.csv").read_text()
    lines = good.splitlines()
    (folder / "late.csv").write_text("\n".join([*lines, *lines[1:], "u1,m1,good", ""]))
    done = embexp(
        "run",
        "experiment=ratings",
        "data.path=late.csv",
        "data.label=rating",
        "features.user.column=userId",
        "features.item.column=movieId",
        "hydra.run.dir=late",
        f"output.cache={folder}/cache",
        cwd=folder,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "1602" in done.stderr.replace(",", "")
