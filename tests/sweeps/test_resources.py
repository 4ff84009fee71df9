"""The processes that a launcher starts for a job: faults, shares of the cores, and what `plan` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.config import composition
from embexp.errors import ConfigError
from embexp.specs.running import Launching
from embexp.specs.strategies import CPU, MultiWorker
from embexp.sweeps import engines, planning, processes
from embexp.sweeps.engines import Engine

PAIR = MultiWorker(workers=2)
SLURM = ("hydra/launcher=submitit_slurm", "strategy=multi_worker")


def launcher(kind: str, **settings: object) -> Engine:
    targets = {
        "submitit_slurm": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher",
        "ray": "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher",
    }
    return Engine(kind, {"launcher": {"_target_": targets[kind], **settings}}, ".")


def faults(*overrides: str) -> dict[str, str]:
    """Config path and text of each fault of a sweep."""
    with pytest.raises(ConfigError) as error:
        planning.plan(composition.loader(), ["seed=0,1", *overrides])
    return {fault.path: str(fault) for fault in error.value.faults}


@pytest.mark.parametrize(
    ("overrides", "path", "said"),
    [
        ([*SLURM, "strategy.workers=3", "hydra.launcher.tasks_per_node=2"], "strategy.workers", "strategy.workers=2"),
        ([*SLURM, "hydra.launcher.nodes=3"], "strategy.workers", "strategy.workers=3"),
        (["hydra/launcher=submitit_slurm", "hydra.launcher.nodes=2"], "hydra.launcher.nodes", "strategy.workers=2"),
        (
            ["strategy=cpu,multi_worker", "hydra/launcher=submitit_slurm", "hydra.launcher.tasks_per_node=2"],
            "hydra.launcher.tasks_per_node",
            "a job of strategy=cpu is one process",
        ),
        (
            ["strategy=multi_worker", "hydra/launcher=submitit_local", "hydra.launcher.tasks_per_node=2"],
            "hydra.launcher.tasks_per_node",
            "set hydra.launcher.tasks_per_node=1",
        ),
        (["strategy=multi_worker", "strategy.addresses=[a:1,b:1]"], "strategy.addresses", "leave it null"),
    ],
)
def test_tasks_that_are_not_the_workers(overrides: list[str], path: str, said: str) -> None:
    if any("submitit" in word for word in overrides):
        pytest.importorskip("submitit")
    found = faults(*overrides)
    assert list(found) == [path]
    assert said in found[path]


def test_workers_of_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert "unset it" in faults("strategy=multi_worker")["TF_CONFIG"]
    planning.plan(composition.loader(), ["seed=0,1"])


@pytest.mark.parametrize(
    ("strategy", "engine", "at_once", "threads"),
    [
        (CPU(), None, 1, 0),
        (CPU(), None, 3, 4),
        (PAIR, None, 1, 6),
        (PAIR, None, 3, 2),
        (PAIR, None, 12, 1),
        (MultiWorker(workers=2, intra_op_threads=5), None, 3, 5),
        (PAIR, launcher("submitit_slurm", nodes=1, tasks_per_node=1), 1, 0),
        (PAIR, launcher("submitit_slurm", nodes=1, tasks_per_node=1, cpus_per_task=8), 1, 4),
        (PAIR, launcher("submitit_slurm", nodes=1, tasks_per_node=2, cpus_per_task=8), 1, 8),
        (CPU(), launcher("submitit_slurm", nodes=1, tasks_per_node=1, cpus_per_task=8), 1, 0),
        (PAIR, launcher("ray", ray={"init": {"address": None}, "remote": {"num_cpus": 6}}), 1, 3),
        (PAIR, launcher("ray", ray={"init": {"address": None}, "remote": {}}), 1, 0),
    ],
)
def test_workers_share_the_cores_of_their_job(
    strategy: CPU | MultiWorker,
    engine: Engine | None,
    at_once: int,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes.machine, "cores", lambda: 12)
    assert engines.with_share(strategy, engine, at_once).intra_op_threads == threads


def test_a_core_for_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.machine, "cores", lambda: 6)
    assert processes.jobs_at_once(Launching(jobs="auto"), [CPU(), PAIR], []) == 3
    assert processes.jobs_at_once(Launching(jobs="auto"), [MultiWorker(workers=8)], []) == 1


def test_plan_says_what_is_asked_of_the_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("submitit")
    words = [*SLURM, "hydra.launcher.tasks_per_node=2", "hydra.launcher.cpus_per_task=3", "seed=0,1"]
    assert commands.main(["plan", "-m", *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "hydra/launcher=submitit_slurm, for each job: nodes=1 tasks_per_node=2 cpus_per_task=3 timeout_min=60" in out
    assert "jobs of 2 workers, each a task of the scheduler; threads of each: 3" in out


def test_a_sweep_is_started_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "n1"}.items():
        monkeypatch.setenv(name, value)
    assert commands.main(["run", "-m", "seed=0,1"]) == 2
    assert not list(tmp_path.iterdir())
