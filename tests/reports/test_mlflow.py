"""What MLflow has of a run, read by MLflow's own client."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow", reason="mlflow is not installed")

from embexp.errors import RunError
from embexp.reports import mlflow
from embexp.reports.mlflow import MLflowRun, Store, connect
from embexp.reports.tracking import Point, TrackedRun
from embexp.specs.tracking import MLflow, absolute
from embexp.sweeps.sweep import sweep

pytestmark = pytest.mark.slow  # a new database takes MLflow seconds


@pytest.fixture(scope="module", params=["sqlite:///{}/mlflow.db", "{}/mlruns"], ids=["sqlite", "folder"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A new store; a database takes seconds to make, so the tests share it."""
    return str(request.param).format(tmp_path_factory.mktemp("store"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


OPEN = """
import os, sys, time
from embexp.reports.mlflow import connect
from mlflow import MlflowClient
import mlflow.store.tracking.sqlalchemy_store
begin = time.time() + 0.2
children = []
for _ in range(3):
    if not (child := os.fork()):
        while time.time() < begin:
            pass
        store = connect("sqlite:///mlflow.db")
        store.client.create_run(store.experiment("e"))
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_processes_open_a_new_store_at_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OPEN], cwd=tmp_path, check=True)
    store = connect("sqlite:///mlflow.db")
    assert len(store.client.search_runs([store.experiment("e")])) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", ".mlflow.db.lock"}


def test_a_store_whose_making_was_interrupted_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlflow.store.db.utils._upgrade_db", interrupt)
    with pytest.raises(KeyboardInterrupt):
        connect("sqlite:///mlflow.db")
    assert {path.name for path in tmp_path.iterdir()} == {".mlflow.db.lock"}


def test_a_sweep_opens_a_new_store_before_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def command(sweep: Path, number: int) -> list[str]:
        calls.append("a job")
        script = 'import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(\'{"status": "completed"}\')'
        return [sys.executable, "-IS", "-c", script, str(sweep / str(number) / "summary.json")]

    monkeypatch.setattr(mlflow, "connect", lambda uri: calls.append(uri))
    words = ["seed=1,2", "tracking=mlflow", "hydra.launcher.jobs=2"]
    assert sweep([*words, "hydra.sweep.dir=s", "tracking.uri=sqlite:///a.db"], command=command)
    assert calls == ["sqlite:///a.db", "a job", "a job"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    calls.clear()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"(?s)MLflow can't be reached: .*Correct the settings of tracking"):
        sweep([*words, "hydra.sweep.dir=t", f"tracking.uri=sqlite:///{tmp_path}/file/a.db"], command=command)
    assert calls == []


def tracked(directory: Path, **changed: Any) -> TrackedRun:
    directory.mkdir(parents=True, exist_ok=True)
    known = {"name": directory.parent.name, "run_id": "ab", "parameters": {"seed": 3}, "config": "", "commit": "c0ffee"}
    return TrackedRun(directory=directory, **known | changed)


def started(uri: str, run: TrackedRun, **settings: Any) -> tuple[MLflowRun, Store, str]:
    tracker = MLflowRun(MLflow(uri=uri, **settings))
    tracker.start(run)
    return tracker, connect(uri), json.loads((run.directory / "tracking.json").read_text())["mlflow"]["run"]


def history(store: Store, run: str, metric: str) -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in store.client.get_metric_history(run, metric)]


def test_a_run_from_its_start_to_its_end(uri: str, tmp_path: Path) -> None:
    long, odd = "x" * 9000, "model.args.a$b"
    values = {"seed": 3, "optimizer.learning_rate": 0.01, "bias": True, "long": long, odd: "ü"}
    values |= {f"many.{number}": number for number in range(150)}
    run = tracked(tmp_path / "job", parameters=values)
    (run.directory / "plots").mkdir()
    (run.directory / "plots" / "overview.png").write_bytes(b"png")
    (run.directory / "spec.json").write_text("{}")
    tracker, store, number = started(uri, run, experiment="my experiment/ü")
    tracker.log([Point(step, 100.0 + step, {"train/loss": 1.0 / step}) for step in range(1, 2501)])
    tracker.log([Point(2500, 2600.0, {"final/test/auc": math.nan})])
    tracker.sealed("c0ffee")
    tracker.artifacts([run.directory / "spec.json", run.directory / "plots"])
    tracker.end("completed")
    found = store.client.get_run(number)
    assert store.client.get_experiment(found.info.experiment_id).name == "my experiment/ü"
    assert (found.info.status, found.info.run_name) == ("FINISHED", "job")
    assert found.data.params["optimizer.learning_rate"] == "0.01"
    assert (found.data.params["bias"], found.data.params["model.args.a_b"]) == ("true", "ü")
    assert len(found.data.params) == len(values)
    assert len(found.data.params["long"]) == 6000
    tags = found.data.tags
    assert (tags["run_id"], tags["mlflow.source.git.commit"], tags["inventory"]) == ("ab", "c0ffee", "c0ffee")
    assert tags["directory"] == str(run.directory)
    points = history(store, number, "train/loss")
    assert points[-1] == (2500, 1.0 / 2500)
    assert len(points) == 2500
    assert store.client.get_metric_history(number, "train/loss")[0].timestamp == 101_000
    assert math.isnan(history(store, number, "final/test/auc")[0][1])
    names = {each.path for folder in (None, "plots") for each in store.client.list_artifacts(number, folder)}
    assert names == {"spec.json", "plots", "plots/overview.png"}


@pytest.mark.parametrize(("status", "shown"), [("interrupted", "KILLED"), ("failed", "FAILED")])
def test_how_a_run_ended(uri: str, tmp_path: Path, status: str, shown: str) -> None:
    tracker, store, number = started(uri, tracked(tmp_path / status))
    assert store.client.get_run(number).info.status == "RUNNING"
    tracker.end(status)
    assert store.client.get_run(number).info.status == shown


def test_a_resumed_run_goes_on_where_it_was_and_repeats_no_point(uri: str, tmp_path: Path) -> None:
    tracker, store, first = started(uri, tracked(tmp_path / "run"))
    tracker.log([Point(step, 0.0, {"train/loss": float(step)}) for step in (1, 2, 3)])
    tracker.end("interrupted")
    longer = tracked(tmp_path / "run", run_id="cd", parameters={"seed": 3, "train.epochs": 9}, first_step=2)
    tracker, _, second = started(uri, longer)
    assert second == first
    assert store.client.get_run(first).info.status == "RUNNING"
    tracker.log([Point(step, 0.0, {"train/loss": float(step)}) for step in (3, 4)])
    tracker.end("completed")
    assert history(store, first, "train/loss") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    found = store.client.get_run(first)
    assert (found.info.status, found.data.tags["run_id"], found.data.params["train.epochs"]) == ("FINISHED", "cd", "9")


def test_a_changed_parameter_of_a_resumed_run_is_a_tag(uri: str, tmp_path: Path) -> None:
    started(uri, tracked(tmp_path / "run", parameters={"train.epochs": 3}))
    _, store, number = started(uri, tracked(tmp_path / "run", parameters={"train.epochs": 9}))
    data = store.client.get_run(number).data
    assert (data.params["train.epochs"], data.tags["resumed.train.epochs"]) == ("3", "9")


def test_a_run_that_was_deleted_begins_anew(uri: str, tmp_path: Path) -> None:
    _, store, first = started(uri, tracked(tmp_path / "run"))
    store.client.delete_run(first)
    assert started(uri, tracked(tmp_path / "run"))[2] != first


def test_the_jobs_of_a_sweep_are_nested_in_one_run(uri: str, tmp_path: Path) -> None:
    sweep = tmp_path / "night"
    sweep.mkdir()
    (sweep / "sweep.sqlite").touch()
    jobs = [started(uri, tracked(sweep / "group" / str(number), name="sweeps")) for number in range(2)]
    store = jobs[0][1]
    above = {store.client.get_run(number).data.tags["mlflow.parentRunId"] for _, _, number in jobs}
    assert len(above) == 1
    parent = above.pop()
    found = store.client.get_run(parent)
    assert (found.info.run_name, found.data.tags["directory"]) == ("night", str(sweep))
    jobs[0][0].end("completed")
    assert store.client.get_run(parent).info.status == "RUNNING"
    jobs[1][0].end("failed")
    assert store.client.get_run(parent).info.status == "FINISHED"


def test_jobs_that_start_at_once_agree_on_the_run_of_their_sweep(uri: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").touch()
    store = connect(uri)
    experiment = store.experiment("race")
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(lambda number: mlflow.parent_of(tmp_path / str(number), store, experiment), range(6)))
    assert len(found) == 1
    visible = store.client.search_runs([experiment])
    assert [each.info.run_id for each in visible] == list(found)


def test_a_study_in_a_sweep_is_nested_twice(uri: str, tmp_path: Path) -> None:
    sweep, study = tmp_path / "sweep", tmp_path / "sweep" / "0"
    (study / "base").mkdir(parents=True)
    (sweep / "sweep.json").touch()
    (study / "spec.json").touch()
    tracker, store, number = started(uri, tracked(study / "base", name="studies"))
    names, each = [], number
    while each is not None:
        run = store.client.get_run(each)
        names.append(run.info.run_name)
        each = run.data.tags.get("mlflow.parentRunId")
    assert names == ["base", "0", "sweep"]
    tracker.end("completed")
    runs = store.client.search_runs([store.experiment("studies")])
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_a_run_of_its_own_has_no_parent(tmp_path: Path) -> None:
    (tmp_path / "spec.json").touch()  # of something else: only the runs of a study are named base, grown and full
    assert mlflow.group_of(tmp_path / "run") is None


def test_uris_are_made_absolute(tmp_path: Path) -> None:
    assert absolute("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert absolute("./my runs") == f"file://{tmp_path}/my%20runs"
    assert absolute("http://localhost:5000") == "http://localhost:5000"


def test_a_password_is_not_remembered() -> None:
    assert Store("postgresql://me:secret@host/db", None).without_password is None
    assert Store("sqlite:////tmp/a@b.db", None).without_password == "sqlite:////tmp/a@b.db"


def test_nothing_is_sent_to_the_makers_of_mlflow_and_no_address_is_printed(uri: str) -> None:
    connect(uri)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] == "true"  # it may have a password


def test_a_server_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's client would try again and again, for two minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr("mlflow.MlflowClient", lambda **_: pytest.fail("the client was asked"))
    with pytest.raises(ConnectionError, match=f"no server answers at 127.0.0.1, port {port}: Connection refused"):
        mlflow.connect(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_takes_connections_and_does_not_answer(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr("mlflow.MlflowClient", lambda **_: pytest.fail("the client was asked"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConnectionError, match=f"no server answers at 127.0.0.1, port {port}: .*timed out"):
            mlflow.connect(f"{scheme}://127.0.0.1:{port}")
