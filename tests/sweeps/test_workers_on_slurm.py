"""Jobs of several workers that are tasks of Slurm; `fake_slurm` stands in for the cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from embexp.records import inventory
from tests.strategies.cluster.cluster_runs import LIMIT, SHORT, command, done, values
from tests.sweeps import fake_slurm
from tests.thoroughness import left_out

pytest.importorskip("submitit")
PAIR = ("strategy=multi_worker", "strategy.workers=2", "train.log_every=20", "checkpoint.every_steps=20")
TASKS = ("hydra/launcher=submitit_slurm", "hydra.launcher.tasks_per_node=2")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a new cluster, on the command path."""
    commands = fake_slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "slurm" / "state"


def sweep(place: Path, *overrides: str, steps: int = 40) -> list[str]:
    """The command of a sweep of two seeds."""
    words = [word for word in SHORT if not word.startswith("train.steps=")]
    own = (f"train.steps={steps}", f"output.cache={place.parent / 'cache'}", f"hydra.sweep.dir={place}", "seed=0,1")
    return command("run", "-m", *words, *PAIR, *own, *overrides)


def status(folder: Path) -> str:
    found: str = json.loads((folder / "summary.json").read_text())["status"]
    return found


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def logged(folder: Path) -> bool:
    """Whether the run there trains."""
    return (folder / "metrics.jsonl").exists() and '"log"' in (folder / "metrics.jsonl").read_text()


@pytest.mark.slow
@left_out()
def test_tasks_are_the_workers(state: Path, tmp_path: Path) -> None:
    """The same bits as on one machine; logs of all are in the folder of their job, whose record is intact."""
    done(sweep(tmp_path / "tasks", *TASKS))
    done(sweep(tmp_path / "here"))
    assert len(fake_slurm.calls(state, "sbatch")) == 1
    for number in "01":
        there, here = tmp_path / "tasks" / number, tmp_path / "here" / number
        assert status(there) == "completed"
        assert json.loads((there / "summary.json").read_text())["cluster"]["workers"] == 2
        assert {path.name for path in there.glob("worker-*.log")} == {"worker-1.log"}
        assert inventory.changes(there) == ()
        for key, value in values(here).items():
            assert values(there)[key].tobytes() == value.tobytes(), key


@pytest.mark.slow
@left_out()
def test_a_lost_worker_and_a_time_limit(state: Path, tmp_path: Path) -> None:
    """The first job loses a worker, and is resumed; the second one is queued again at its limit, and goes on."""
    place, steps = tmp_path / "sweep", 400
    (state / "slots").write_text("1")
    words = sweep(place, *TASKS, "hydra.launcher.max_num_timeout=2", "hydra.launcher.signal_delay_s=100", steps=steps)
    with psutil.Popen(words) as process:
        until(lambda: logged(place / "0"))
        ours = [each for each in psutil.process_iter() if _is_worker(each, place, 0)]
        [other] = [each for each in ours if each.environ().get("SLURM_PROCID") == "1"]
        other.send_signal(signal.SIGKILL)
        began = time.monotonic()
        until(lambda: logged(place / "1"))
        (state / "limit").write_text(str(time.monotonic() - began + 100))
        assert process.wait(LIMIT) == 1
    reason = json.loads((place / "0" / "failure.json").read_text())["reason"]
    assert "worker 1" in reason
    assert "interrupted" in (place / "1" / "run.log").read_text()
    assert "resuming from step" in (place / "1" / "run.log").read_text()
    assert status(place / "1") == "completed"
    done(command("resume", str(place)))
    done(sweep(tmp_path / "whole", steps=steps))
    for number in "01":
        for key, value in values(tmp_path / "whole" / number).items():
            assert values(place / number)[key].tobytes() == value.tobytes(), key


def _is_worker(process: psutil.Process, place: Path, number: int) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return words[-3:] == [str(place), str(number), "--elsewhere"]
