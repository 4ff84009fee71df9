"""The calls to Weights & Biases, on a stand-in: the real package starts a service and would need an account."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from embexp.reports.tracking import Point, TrackedRun
from embexp.reports.wandb import WandBRun
from embexp.specs.tracking import WandB


class Run:
    """A run of the stand-in."""

    def __init__(self, **settings: Any) -> None:
        self.settings, self.id = settings, settings["id"]
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.summary: dict[str, Any] = {}
        self.artifacts: list[list[str]] = []
        self.exit_code: int | None = None

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((step, metrics))

    def log_artifact(self, artifact: Artifact) -> None:
        self.artifacts.append(artifact.names)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


class Artifact:
    """An artifact of the stand-in."""

    def __init__(self, name: str, type: str) -> None:
        self.names: list[str] = []

    def add_file(self, path: str) -> None:
        self.names.append(Path(path).name)

    def add_dir(self, path: str, name: str) -> None:
        self.names.append(f"{name}/")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    found: list[Run] = []

    def init(**settings: Any) -> Run:
        found.append(Run(**settings))
        return found[-1]

    module = SimpleNamespace(init=init, Artifact=Artifact, Settings=lambda **settings: settings)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return found


def tracked(directory: Path) -> TrackedRun:
    directory.mkdir(parents=True, exist_ok=True)
    return TrackedRun(name="x", directory=directory, run_id="ab", parameters={"seed": 3}, config="", commit="c0ffee")


def test_a_run_from_its_start_to_its_end(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "run" / "plots").mkdir(parents=True)
    (tmp_path / "run" / "spec.json").touch()
    tracker = WandBRun(WandB(project="mine"))
    tracker.start(tracked(tmp_path / "run"))
    tracker.log([Point(10, 0.0, {"train/loss": 0.5}), Point(10, 0.0, {"validation/auc": 0.7})])
    tracker.log([Point(20, 0.0, {"final/test/auc": 0.6})])
    tracker.sealed("c0ffee")
    tracker.artifacts([tmp_path / "run" / "spec.json", tmp_path / "run" / "plots"])
    tracker.end("completed")
    (run,) = runs
    assert (run.settings["project"], run.settings["mode"], run.settings["name"]) == ("mine", "offline", "run")
    assert run.settings["config"] == {"seed": 3, "run_id": "ab", "commit": "c0ffee"}
    assert run.logged == [(10, {"train/loss": 0.5, "validation/auc": 0.7}), (20, {"final/test/auc": 0.6})]
    assert run.summary == {"final/test/auc": 0.6, "inventory": "c0ffee", "status": "completed"}
    assert run.artifacts == [["spec.json", "plots/"]]
    assert run.exit_code == 0


def test_a_resumed_run_goes_on_under_its_id_and_a_failed_one_has_an_exit_code(runs: list[Run], tmp_path: Path) -> None:
    for _ in range(2):
        tracker = WandBRun(WandB())
        tracker.start(tracked(tmp_path))
        tracker.end("failed")
    assert runs[0].id == runs[1].id == json.loads((tmp_path / "tracking.json").read_text())["wandb"]["id"]
    assert [run.settings["resume"] for run in runs] == ["allow", "allow"]
    assert [run.exit_code for run in runs] == [1, 1]


def test_the_jobs_of_a_sweep_share_a_group(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.sqlite").touch()
    for job in ("0", "1"):
        WandBRun(WandB()).start(tracked(tmp_path / "sweep" / job))
    assert [run.settings["group"] for run in runs] == ["sweep", "sweep"]
    assert [run.settings["name"] for run in runs] == ["sweep/0", "sweep/1"]
    assert runs[0].id != runs[1].id
