"""Runs that report to MLflow and TensorBoard, read by their own readers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow", reason="mlflow is not installed")

import numpy as np
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client

import embexp
from embexp.config import resources
from embexp.errors import ConfigError, DivergedError, RunError
from embexp.records import inventory
from embexp.records.folder import RunFolder
from embexp.reports.mlflow import MLflowRun, Store, connect
from embexp.runs import experiment
from embexp.runs import run as single
from embexp.runs.run import Observer
from embexp.specs import tracking
from embexp.training.listeners import Listener
from tests.reports.test_tensorboard import hparams, scalars

pytestmark = pytest.mark.slow
SMALL = [
    "experiment=clicks",
    "data.examples=2000",
    "data.users=60",
    "data.items=40",
    "train.batch_size=128",
    "train.steps=30",
    "train.epochs=null",
    "train.evaluate_every=10",
    "checkpoint.every_steps=10",
    "output.baselines=false",
]


class World:
    """A store in a folder, and runs that report to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def spec(self, *overrides: str) -> embexp.RunSpec:
        tracked = ["tracking=mlflow", f"tracking.uri={self.folder / 'store'}", f"output.cache={self.folder / 'cache'}"]
        return embexp.compose([*SMALL, *tracked, *overrides])

    def run(self, name: str, *overrides: str, listeners: Any = ()) -> single.RunResult:
        directory = self.folder / name
        directory.mkdir()
        return single.run(self.spec(*overrides), directory, Observer(lambda: listeners))

    @property
    def store(self) -> Store:
        return connect(str(self.folder / "store"))

    def found(self, name: str) -> Any:
        """The one run of a directory."""
        (run,) = self.store.client.search_runs(
            [self.store.experiment("clicks")], filter_string=f"tags.directory = '{self.folder / name}'"
        )
        return run

    def history(self, name: str, metric: str) -> list[tuple[int, float]]:
        run = self.found(name).info.run_id
        return [(each.step, each.value) for each in self.store.client.get_metric_history(run, metric)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def whole(world: World) -> single.RunResult:
    """A run that nothing disturbs, with its final checkpoint as an artifact."""
    return world.run("whole", "tracking.checkpoint=true")


def losses(directory: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in RunFolder(directory).read_metrics() if line["event"] == "log"]


def test_mlflow_has_parameters_metrics_tags_and_files(world: World, whole: single.RunResult) -> None:
    run = world.found("whole")
    assert (run.info.status, run.info.run_name) == ("FINISHED", "whole")
    assert run.data.tags["run_id"] == whole.summary["run_id"]
    assert run.data.tags["inventory"] == whole.inventory == inventory.digest_of(whole.directory)
    assert inventory.changes(whole.directory) == ()
    assert run.data.params["optimizer.learning_rate"] == str(world.spec().optimizer.learning_rate)
    assert run.data.params["train.batch_size"] == "128"
    assert not [name for name in run.data.params if name.split(".")[0] in ("output", "checkpoint", "tracking")]
    assert world.history("whole", "train/loss") == losses(whole.directory)
    assert [step for step, _ in world.history("whole", "validation/auc")] == [10, 20, 30]
    assert run.data.metrics["final/test/auc"] == whole.summary["metrics"]["test"]["auc"]
    paths = {each.path for each in world.store.client.list_artifacts(run.info.run_id)}
    files = {"spec.json", "manifest.json", "summary.json", "metrics.jsonl", "inventory.json"}
    assert {*files, "plots", "final"} <= paths


def test_tensorboard_has_curves_config_hyperparameters_and_final_metrics(whole: single.RunResult) -> None:
    events = RunFolder(whole.directory).events
    assert [step for step, _ in scalars(events / "train")["loss"]] == [step for step, _ in losses(whole.directory)]
    group = hparams(whole.directory)
    assert group.hparams["train.batch_size"].number_value == 128
    assert group.hparams["optimizer.kind"].string_value == whole_spec(whole).optimizer.kind
    metrics = {each.name.tag: each.value for each in group.metric_values if not each.name.group}
    assert metrics["final/test/auc"] == pytest.approx(whole.summary["metrics"]["test"]["auc"], rel=1e-6)


def whole_spec(result: single.RunResult) -> embexp.RunSpec:
    return RunFolder(result.directory).read_spec()


def test_the_projector_shows_the_final_rows_with_their_tokens(whole: single.RunResult) -> None:
    plugin = ProjectorPlugin(base_plugin.TBContext(logdir=str(RunFolder(whole.directory).events), data_provider=Runs()))
    client = Client(plugin.get_plugin_apps()["/tensor"])
    response = client.get("/tensor?run=.&name=item")
    values = np.frombuffer(response.data, np.float32).reshape(40, 16)
    np.testing.assert_array_equal(values, embexp.load_run(whole.directory).table("item"))
    lines = Client(plugin.get_plugin_apps()["/metadata"]).get("/metadata?run=.&name=item").data.decode().splitlines()
    assert lines == [str(row) for row in range(40)]


class Runs:
    """A data provider with the run in which the projector's files are."""

    def list_runs(self, context: RequestContext, *, experiment_id: str) -> list[Any]:
        return []

    def list_tensors(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        return {}


def test_trackers_change_neither_results_nor_identity(world: World, whole: single.RunResult) -> None:
    spec = embexp.compose([*SMALL, f"output.cache={world.folder / 'cache'}", "output.tensorboard=false"])
    (world.folder / "untracked").mkdir()
    plain = single.run(spec, world.folder / "untracked")
    assert plain.summary["run_id"] == whole.summary["run_id"]
    assert plain.summary["tables"] == whole.summary["tables"]
    assert plain.summary["metrics"] == whole.summary["metrics"]
    assert not (plain.directory / "tracking.json").exists()


def test_a_tracker_that_fails_during_a_run_is_a_warning(
    world: World, whole: single.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*arguments: Any) -> None:
        raise ConnectionError("the server is gone")

    for method in ("log", "artifacts", "end"):
        monkeypatch.setattr(MLflowRun, method, gone)
    told = Told()
    result = world.run("unlucky", listeners=[told])
    assert result.summary["tables"] == whole.summary["tables"]
    assert any("MLflow: the server is gone" in sentence for sentence in told.sentences)


class Told(Listener):
    """Remembers warnings."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def warned(self, sentence: str) -> None:
        self.sentences.append(sentence)


class Interrupted(Listener):
    """Sends a signal after a step."""

    def __init__(self, number: int) -> None:
        self._number = number

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        if step == 14:
            os.kill(os.getpid(), self._number)


def test_a_run_that_sigterm_interrupts_goes_on_in_the_same_place(world: World, whole: single.RunResult) -> None:
    result = world.run("stopped", listeners=[Interrupted(signal.SIGTERM)])
    assert result.status == "interrupted"
    assert world.found("stopped").info.status == "KILLED"
    resumed = experiment.resume(result.directory)
    assert resumed.summary["tables"] == whole.summary["tables"]
    assert world.found("stopped").info.status == "FINISHED"
    assert world.history("stopped", "train/loss") == world.history("whole", "train/loss")
    train = scalars(RunFolder(result.directory).events / "train")["loss"]
    assert train == scalars(RunFolder(whole.directory).events / "train")["loss"]
    assert hparams(result.directory).sessions[0].status == hparams(whole.directory).sessions[0].status


def test_a_run_that_diverges_is_failed_and_plotted(world: World) -> None:
    settings = ["dense_optimizer=sgd", "dense_optimizer.learning_rate=1e30", "train.log_every=1", "seed=5"]
    with pytest.raises(DivergedError):
        world.run("diverged", *settings)
    assert world.found("diverged").info.status == "FAILED"
    assert (world.folder / "diverged" / "plots" / "overview.png").exists()


def test_a_store_that_cannot_be_opened_ends_the_run_before_it_trains(world: World) -> None:
    (world.folder / "file").write_text("not a folder")
    with pytest.raises(RunError, match=r"MLflow can't be reached: .*\n    Correct the settings of tracking"):
        world.run("nowhere", f"tracking.uri={world.folder / 'file' / 'store'}")
    assert not RunFolder(world.folder / "nowhere").metrics.exists()


def test_missing_packages_are_a_fault_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        embexp.compose(["tracking=mlflow"])
    (fault,) = caught.value.faults
    assert (fault.path, fault.rule) == (
        "tracking",
        "it needs the packages mlflow-skinny, SQLAlchemy, alembic, which are not installed",
    )
    assert fault.remedy == "pip install 'embexp[tracking]', or set tracking=none"
    with pytest.raises(ConfigError, match="it needs the package wandb, which is not installed"):
        embexp.compose(["tracking=wandb"])
    assert resources.tracking is tracking


def test_a_recorded_spec_needs_the_package_too(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = world.spec()
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"tracking=mlflow: it needs the package mlflow-skinny"):
        single.run(spec, tmp_path)


def test_a_uri_of_an_unknown_kind_is_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"tracking.uri = 'sqllite:///x': an MLflow store must be"):
        embexp.compose(["tracking=mlflow", "tracking.uri=sqllite:///x"])
