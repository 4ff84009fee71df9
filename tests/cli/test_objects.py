"""Commands on data and vectors in an object store, against the same with files, whose results are the oracle."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import planted_data
from tests.preloaded import with_jobs
from tests.small_data_sets import no_proxies
from tests.system import served_store as served
from tests.system.served_store import Server
from tests.thoroughness import thorough

RATINGS = (
    "experiment=ratings",
    "data.label=rating",
    "optimizer=adagrad",
    "tables.user.dim=8",
    "tables.item.dim=8",
    "train.log_every=5",
    "train.early_stopping.patience=null",
    "checkpoint.keep=null",
    "output.plots=false",
    "output.tensorboard=false",
    "output.baselines=false",
    "strategy.intra_op_threads=1",
    "strategy.inter_op_threads=2",
)


class Terminal:
    """Where commands are given: a folder with the same files as the store."""

    def __init__(self, folder: Path, server: Server, commands: Path) -> None:
        self.folder, self.server, self._commands = folder, server, commands

    def __call__(self, *words: str, status: int = 0) -> str:
        """What a command prints, which must end with a status."""
        variables = {**os.environ, **self.server.variables, "XDG_CACHE_HOME": str(self.folder / "cache")}
        words = (str(with_jobs(self._commands) / "embexp"), *words)
        ended = subprocess.run(
            words, capture_output=True, text=True, timeout=240, check=False, cwd=self.folder, env=variables
        )
        text = ended.stdout + ended.stderr
        assert ended.returncode == status, text
        assert "Traceback" not in text
        return text

    def run(self, name: str, path: str, *more: str, epochs: int = 2) -> dict[str, Any]:
        """The summary of a run in the folder `name`."""
        self(
            "run", *RATINGS, f"train.epochs={epochs}", f"data.path={path}", *more, f"hydra.run.dir={self.folder / name}"
        )
        return self.summary(name)

    def summary(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / name / "summary.json").read_text("utf-8"))
        return found


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, forked: Path) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch, served.store(folder) as server:
        no_proxies(patch)
        file = planted_data.ratings(folder / "r.csv", examples=1_500, users=60, items=40, scale=(1, 5), step=1, seed=3)
        head, *lines = file.read_text("utf-8").splitlines(keepends=True)
        (folder / "parts").mkdir()
        for number in range(3):
            (folder / "parts" / f"{number}.csv").write_text(head + "".join(lines[number::3]), "utf-8")
        random = np.random.default_rng(0)
        vectors = "".join(f"u{user} {' '.join(f'{x:.3f}' for x in random.normal(size=8))}\n" for user in range(60))
        (folder / "v.txt").write_text(vectors, "utf-8")
        for path in (file, folder / "v.txt", *sorted((folder / "parts").iterdir())):
            server.write(path.relative_to(folder).as_posix(), path.read_bytes())
        yield Terminal(folder, server, forked)


PRETRAINED = "pretrained@tables.user.pretrained=file"


@pytest.fixture(scope="module")
def stored(terminal: Terminal) -> dict[str, Any]:
    return terminal.run("stored", "s3://data/r.csv", PRETRAINED, "tables.user.pretrained.path=s3://data/v.txt")


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in ("run_id", "metrics", "tables"))


def test_a_run_is_that_of_the_same_files_here(terminal: Terminal, stored: dict[str, Any]) -> None:
    files = terminal.run(
        "here", f"{terminal.folder}/r.csv", PRETRAINED, f"tables.user.pretrained.path={terminal.folder}/v.txt"
    )
    assert same(stored, files)
    assert terminal.server.fetched("r.csv") == terminal.server.fetched("v.txt") == 1


def test_records_name_the_url(terminal: Terminal, stored: dict[str, Any]) -> None:
    spec = json.loads((terminal.folder / "stored" / "spec.json").read_text("utf-8"))
    assert spec["data"]["path"] == "s3://data/r.csv"
    coverage = json.loads((terminal.folder / "stored" / "coverage.json").read_text("utf-8"))
    assert coverage["tables"]["user"]["path"] == "s3://data/v.txt"
    for record in (terminal.folder / "stored").glob("*.json*"):
        assert "/cache/embexp/object" not in record.read_text("utf-8"), record


def test_a_run_is_verified(terminal: Terminal, stored: dict[str, Any]) -> None:
    assert "repeated: identical" in terminal("verify", "stored")


def test_a_resumed_run_is_one_that_was_never_interrupted(terminal: Terminal) -> None:
    terminal.run("resumed", "s3://data/parts", "checkpoint.every_steps=3")
    terminal("resume", "resumed", "train.epochs=4")
    assert same(terminal.summary("resumed"), terminal.run("whole", f"{terminal.folder}/parts", epochs=4))


def test_a_sweep_fetches_once(terminal: Terminal) -> None:
    before = terminal.server.fetched("parts/0.csv")
    words = ("run", "-m", *RATINGS, "train.epochs=1", "data.path='s3://data/parts/*.csv'", "seed=0,1,2,3")
    terminal(*words, f"hydra.sweep.dir={terminal.folder / 'sweep'}")
    assert terminal.server.fetched("parts/0.csv") - before <= 1
    found = [terminal.summary(f"sweep/{number}") for number in range(4)]
    assert [each["status"] for each in found] == ["completed"] * 4
    assert len({each["run_id"] for each in found}) == 4


def test_workers_share_a_store(terminal: Terminal) -> None:
    given = "{train: 's3://data/parts/0.csv', validation: 's3://data/parts/1.csv', test: 's3://data/parts/2.csv'}"
    here = given.replace("s3://data", str(terminal.folder))
    workers = ("strategy=multi_worker", "strategy.workers=2")
    found = terminal.run("workers", given, *workers)
    assert found["cluster"]["workers"] == 2
    assert terminal.server.fetched("parts/1.csv") <= 1
    if thorough():
        assert same(found, terminal.run("workers_here", here, *workers))


def test_a_plan_names_the_url(terminal: Terminal) -> None:
    text = terminal("plan", *RATINGS, "data.path=s3://data/parts", "--scan")
    assert "csv s3://data/parts;" in text
    assert str(terminal.folder) not in text


def test_faults_of_the_config_come_before_the_store(terminal: Terminal) -> None:
    before = terminal.server.asked()
    text = terminal("run", *RATINGS, "data.path=s3://data/r.csv", "optimizer.learning_rate=-1", status=2)
    assert "optimizer.learning_rate" in text
    assert terminal.server.asked() == before


def test_faults_of_the_data_name_the_url(terminal: Terminal) -> None:
    words = (word for word in RATINGS if not word.startswith("data.label"))
    text = terminal("run", *words, "data.path=s3://data/r.csv", "data.label=stars", status=2)
    assert "data.label = 'stars': s3://data/r.csv has no such column" in text
    terminal.server.write("bad.csv", b"user,item,rating\nu1,i1,3\nu2,i2\n")
    text = terminal("run", *RATINGS, "data.path=s3://data/bad.csv", status=2)
    assert "data.path = 's3://data/bad.csv':" in text


def test_settings_of_this_machine_have_no_urls(terminal: Terminal) -> None:
    words = (
        "restore.path=s3://data/x",
        "output.cache=s3://data/y",
        "pretrained=checkpoint",
        "pretrained.path=s3://data/z",
    )
    text = terminal("run", *RATINGS, "data.path=s3://data/r.csv", *words, status=2)
    for place in ("restore.path", "output.cache", "pretrained.path"):
        assert f"{place} = 's3://data/" in text
    assert text.count("only data and the files of pretrained=file can be read from a store") == 3


def test_a_finished_run_is_used_on_objects(terminal: Terminal, stored: dict[str, Any]) -> None:
    evaluated = [terminal("evaluate", "stored", "--data", path) for path in ("s3://data/parts", "parts")]
    assert evaluated[0] == evaluated[1]
    predicted = [terminal("predict", "stored", "--data", path) for path in ("s3://data/parts/0.csv", "parts/0.csv")]
    assert predicted[0] == predicted[1] != ""
    text = terminal("evaluate", "stored", "--data", "s3://data/none.csv", status=2)
    assert "--data s3://data/none.csv: there is no such object or folder" in text
    text = terminal("evaluate", "stored", "--data", "s3://data/v.txt", status=1)
    assert "s3://data/v.txt can't be read like this run's data" in text


def test_a_changed_object_is_another_run(terminal: Terminal, stored: dict[str, Any]) -> None:
    """Last: it changes the data of the others."""
    content = (terminal.folder / "r.csv").read_bytes()
    terminal.server.write("r.csv", content + b"u1,i1,3\n")
    try:
        text = terminal("verify", "stored", status=1)
        assert "data digest" in text
        assert "s3://data/r.csv" in text
        assert "repeated: different" in text
        assert "have changed since" in terminal("resume", "stored", "train.epochs=3", status=1)
    finally:
        terminal.server.write("r.csv", content)
