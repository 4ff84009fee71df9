"""One process at a time writes a run; meanwhile, other commands refuse, or say that it is running."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embexp.checkpoints import store
from embexp.records.folder import RunFolder
from embexp.reports.collected import collect
from embexp.reports.record import Status

SMALL = (
    "experiment=clicks",
    "model=mlp",
    "data.examples=2000",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=4000",
    "train.log_every=10",
    "checkpoint.every_steps=10",
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
)


@contextlib.contextmanager
def stopped(forked: Path, directory: Path, overrides: list[str]) -> Iterator[int]:
    """A run that is alive, and has saved a checkpoint, but gets no further; it is killed at the end of the block."""
    command = subprocess.Popen(
        [forked / "embexp", "run", *SMALL, *overrides, f"hydra.run.dir={directory}"], stdout=subprocess.DEVNULL
    )
    try:
        while not store.step_directories(RunFolder(directory).checkpoints):
            assert command.poll() is None
            time.sleep(0.01)
        found = re.match(r"process (\d+) on ", RunFolder(directory).lock.writer())
        assert found is not None
        os.kill(number := int(found[1]), signal.SIGSTOP)
        try:
            while states(number) != {"T"}:  # it goes on until each of its threads is stopped
                time.sleep(0.01)
            yield number
        finally:
            os.kill(number, signal.SIGKILL)
    finally:
        command.wait()


def states(process: int) -> set[str]:
    """The states of all threads of a process."""
    files = Path(f"/proc/{process}/task").glob("*/stat")
    return {file.read_text().rpartition(")")[2].split()[0] for file in files}


def run(forked: Path, *words: str | Path) -> tuple[int, str]:
    done = subprocess.run([forked / "embexp", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip()


@pytest.fixture
def cache(tmp_path: Path) -> list[str]:
    return [f"output.cache={tmp_path / 'cache'}"]


def test_a_run_that_is_being_written(forked: Path, tmp_path: Path, cache: list[str]) -> None:
    directory, others = tmp_path / "run", tmp_path / "others"
    commands: list[Callable[[], tuple[str | Path, ...]]] = [
        lambda: ("resume", directory),
        lambda: ("evaluate", directory),
        lambda: ("export", directory, others, "--as", "npy"),
        lambda: ("verify", directory),
        lambda: ("diff", directory, directory),
        lambda: ("checkpoint", "convert", directory, others, "--to", "name"),
    ]
    with stopped(forked, directory, cache) as number:
        before = sorted(path for path in directory.rglob("*"))
        for words in commands:
            status, told = run(forked, *words())
            assert status == 1, words()
            assert f"embexp: the run in {directory} is in use: process {number} on " in told
            assert told.count("\n") == 0
        [record] = collect([directory])
        assert record.status is Status.RUNNING
        assert sorted(path for path in directory.rglob("*")) == before
        assert not others.exists()
    [record] = collect([directory])
    assert record.status is Status.INTERRUPTED  # at once, however recently it has written
    steps = int(store.step_directories(RunFolder(directory).checkpoints)[-1].name.removeprefix("step_"))
    assert run(forked, "resume", directory, f"train.steps={steps + 10}")[0] == 0
    logged = [line["step"] for line in RunFolder(directory).read_metrics() if line["event"] == "log"]
    assert logged == list(range(10, steps + 11, 10))


def test_a_run_that_another_one_starts_from_is_not_written(forked: Path, tmp_path: Path, cache: list[str]) -> None:
    first, restored = tmp_path / "first", tmp_path / "restored"
    for earlier in (first, restored):
        short = [word.replace("train.steps=4000", "train.steps=10") for word in SMALL]
        assert run(forked, "run", *short, *cache, f"hydra.run.dir={earlier}") == (0, "")
    sources = [
        "pretrained=checkpoint",
        f"pretrained.path={first}",
        f"restore.path={restored / 'checkpoints' / 'final'}",
    ]
    with stopped(forked, tmp_path / "second", [*cache, *sources, "restore.only=[step]"]):
        for earlier in (first, restored):
            status, told = run(forked, "resume", earlier, "train.steps=20")
            assert (status, told.count("\n")) == (1, 0)
            assert f"the run in {earlier} is being read by another process" in told
            assert run(forked, "evaluate", earlier)[0] == 0
    assert run(forked, "resume", first, "train.steps=20")[0] == 0
