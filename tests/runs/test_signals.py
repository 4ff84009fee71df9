"""SIGINT, SIGTERM and SIGHUP at any instant of a run or a sweep end it tidily.

With `--hypothesis-profile=thorough` at 60 random instants, from the first moment of a process of its own; a few of
them, in forked processes, in every run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from embexp.checkpoints import store
from embexp.cli import commands
from embexp.records.folder import RunFolder
from embexp.runs import saving
from embexp.sweeps.ledger import Ledger
from embexp.system import environment
from tests.thoroughness import thorough

pytestmark = pytest.mark.slow

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DATA = ("data.examples=3000", "data.users=200", "data.items=100", "train.batch_size=64", "train.epochs=null")
DATA += ("output.baselines=false",)
RUN = (*DATA, "train.steps=150", "train.evaluate_every=50", "checkpoint.every_steps=10", "output.cache=cache")
FORKED = (
    "import os, sys; print(os.getpid(), flush=True);"
    "from embexp.cli.commands import process; sys.exit(process(sys.argv[1:]))"
)
"""Prints the number of its process, as signals do not reach it through the command that has asked for it."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A working directory with a cache that has the data, and a folder for temporary files."""
    with tempfile.TemporaryDirectory(prefix="signals-") as name:
        (Path(name) / "tmp").mkdir()
        yield Path(name)


def started(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    variables = {**os.environ, "TMPDIR": f"{folder}/tmp"}
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=variables)


def processes_in(folder: Path) -> list[psutil.Process]:
    """Those that work in a folder: commands, and the jobs of sweeps."""
    found = []
    for each in psutil.process_iter(["cwd", "status"]):
        if each.info["cwd"] == str(folder) and each.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(each)
    return found


def check_tidy(folder: Path, directory: Path, err: str) -> None:
    """Checkpoints are whole, nothing temporary is left, no process either, and no stack trace was printed."""
    give_up = time.monotonic() + 20
    while (left := processes_in(folder)) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert left == []
    assert "Traceback" not in err, err
    for log in directory.rglob("run.log"):
        assert "Traceback" not in log.read_text()
    made = directory.rglob("*")  # in other sweeps' folders, a killed job may have left something
    assert [path for path in made if path.name.endswith((".part", ".gone")) or ".making-" in path.name] == []
    assert list((folder / "tmp").iterdir()) == []
    for state in directory.rglob("checkpoints/*/state.json"):
        store.read_state(state.parent)
        store.check_content(state.parent)
    for checkpoint in filter(Path.is_dir, directory.rglob("checkpoints/*")):  # TensorFlow's file names the latest
        assert (checkpoint / "checkpoint.index").exists(), checkpoint
    for summary in directory.rglob("summary.json"):
        assert json.loads(summary.read_text())["status"] in ("interrupted", "completed")


def test_the_last_save_is_finished_and_the_run_goes_on_from_it(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, real = tmp_path / "run", saving.RunSaver.keep_final

    def keep_final(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        real(*arguments)

    words = ["run", *DATA, "train.steps=7", f"output.cache={folder}/cache", f"hydra.run.dir={run}"]
    with monkeypatch.context() as patch:
        patch.setattr(saving.RunSaver, "keep_final", keep_final)
        assert commands.main(words) == 143
    assert capsys.readouterr().err.endswith(f"interrupted; to continue: embexp resume {run}\n")
    store.check_content(run / "checkpoints" / "final")
    assert not (run / "summary.json").exists()
    assert (run / "run.log").read_text().endswith("interrupted by SIGTERM\n")
    assert commands.main(["resume", str(run)]) == 0
    assert "resuming from step 7 of 7" in (run / "run.log").read_text()
    assert json.loads((run / "summary.json").read_text())["status"] == "completed"


def test_a_run_that_is_left_while_tensorflow_is_loaded_can_go_on(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "load_tensorflow", lambda **_: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="143"):
        commands.main(["run", *DATA, "train.steps=7", f"output.cache={folder}/cache", f"hydra.run.dir={tmp_path}/run"])
    assert capfd.readouterr().err.endswith(f"interrupted; to continue: embexp resume {tmp_path}/run\n")


def test_the_summary_and_the_plots_are_finished(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real = tmp_path / "run", RunFolder.write_json

    def write_json(self: RunFolder, path: Path, content: Any) -> None:
        if path == self.summary:
            os.kill(os.getpid(), signal.SIGHUP)
        real(self, path, content)

    monkeypatch.setattr(RunFolder, "write_json", write_json)
    words = ["run", *DATA, "train.steps=7", f"output.cache={folder}/cache", f"hydra.run.dir={run}"]
    assert commands.main(words) == 129
    assert json.loads((run / "summary.json").read_text())["status"] == "completed"
    assert (run / "plots" / "overview.png").exists()


@pytest.mark.parametrize("case", range(40) if thorough() else (0, 1, 2, 4))
def test_a_signal_at_a_random_instant_of_a_run(case: int, folder: Path, forked: Path) -> None:
    own_process = case % 4 == 3
    draw = random.Random(case)
    number = NUMBERS[case % 3]
    directory = folder / f"run{case}"
    words = ["run", *RUN, f"hydra.run.dir={directory.name}"]
    if own_process:
        process = started([sys.executable, "-m", "embexp", *words], folder)
        pid = process.pid
        time.sleep(draw.uniform(0.3, 12))
    else:
        process = started([f"{forked}/python", "-c", FORKED, *words], folder)
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        time.sleep(draw.uniform(0, 4))
    try:
        os.kill(pid, number)
        ended = False
    except ProcessLookupError:
        ended = True
    out, err = process.communicate(timeout=180)
    statuses = {128 + number, -number} | ({0} if ended or "results in" in out else set())
    assert process.returncode in statuses, (process.returncode, out, err)
    check_tidy(folder, directory, err)
    if (directory / "spec.json").exists() and not (directory / "summary.json").exists() and case < 3:
        process = started([f"{forked}/embexp", "resume", directory.name], folder)
        out, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
        assert json.loads((directory / "summary.json").read_text())["status"] == "completed"


@pytest.mark.parametrize("case", range(20) if thorough() else ())
def test_a_signal_at_a_random_instant_of_a_sweep(case: int, folder: Path) -> None:
    """Its tables hold what was done; a second signal kills its jobs, and a killed sweep takes them along."""
    draw = random.Random(case)
    number = first = (*NUMBERS, signal.SIGKILL)[case % 4]
    directory = folder / f"sweep{case}"
    words = ["run", "-m", "seed=0,1,2", *RUN, "hydra.launcher.jobs=2", f"hydra.sweep.dir={directory.name}"]
    process = started([sys.executable, "-m", "embexp", *words], folder)
    time.sleep(draw.uniform(0.5, 25))
    process.send_signal(number)
    if case % 3 == 2 and number != signal.SIGKILL:
        time.sleep(draw.uniform(0, 1))
        process.send_signal(signal.SIGINT)
        number = signal.SIGINT
    out, err = process.communicate(timeout=240)
    assert process.returncode in {128 + number, -number, 128 + first, 0}, (process.returncode, out, err)
    assert "out of memory" not in out
    if number == signal.SIGKILL:
        give_up = time.monotonic() + 20
        while (left := processes_in(folder)) and time.monotonic() < give_up:
            time.sleep(0.05)
        assert left == []
        return
    if case % 3 != 2:
        check_tidy(folder, directory, err)
    if (directory / "sweep.sqlite").exists():
        with Ledger(directory) as ledger:
            assert {job.state.value for job in ledger.jobs()} <= {"interrupted", "planned", "completed"}
