"""A config that asks for more than this machine has is told before anything is allocated."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.cli import commands
from embexp.config import composition
from embexp.errors import ConfigError, Fault
from embexp.runs import prepare
from embexp.runs.prepare import check_memory
from embexp.system import machine
from embexp.system.machine import Available

GB = 10**9
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def eight_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 GB of memory, and a disk of 100 GB."""
    monkeypatch.setattr(machine, "available", lambda: Available(8 * GB, "this machine"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(200 * GB, 100 * GB, 100 * GB))


def fault(*overrides: str) -> Fault:
    with pytest.raises(ConfigError) as told:
        embexp.compose(overrides)
    [found] = told.value.faults
    return found


KINDS = {
    "tables": (
        ["model=mlp", "data.users=100000000", "tables.user.dim=64", "optimizer=sgd"],
        "tables.user",
        "100,000,000 rows of 64",
        r"needs at least 25\.\d GB of memory, but this machine has 8\.0 GB: tables 25\.\d GB"
        r" \(the largest is tables\.user with 25\.6 GB\)",
        "a smaller dim, or fewer rows",
    ),
    "slots": (
        ["model=mlp", "data.users=15000000", "tables.user.dim=64", "optimizer=adam"],
        "tables.user",
        "adam with 2 slots for 15,000,000 rows of 64",
        r"needs at least 11\.\d GB of memory.*tables 3\.8 GB .*, slots 7\.7 GB",
        "an optimizer with fewer slots",
    ),
    "batch": (
        ["train.batch_size=100000000"],
        "train.batch_size",
        "100,000,000 examples of",
        r"batch \d+\.\d GB",
        "a smaller train.batch_size",
    ),
    "dense part": (
        ["model=mlp", "model.hidden=[50000,50000]"],
        "model.hidden",
        "[50000, 50000]",
        r"dense part 40\.\d GB",
        "smaller layers",
    ),
    "data": (
        ["data.window=2000000000", "data.examples=2000000000"],
        "data.window",
        "2,000,000,000 examples",
        r"data 16\.\d GB",
        "a smaller data.window",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_need_is_told(kind: str) -> None:
    overrides, path, value, rule, remedy = KINDS[kind]
    found = fault(*overrides)
    assert (found.path, found.value[: len(value)]) == (path, value)
    assert pytest.importorskip("re").search(rule, found.rule), found.rule
    assert remedy in found.remedy


def test_a_log_that_the_disk_of_the_cache_has_no_room_for() -> None:
    found = fault("data.examples=10000000000", "output.cache=/nowhere")
    assert (found.path, found.value) == ("data.examples", "10,000,000,000")
    assert "take at least 480.0 GB in the cache, and the disk of /nowhere has 100.0 GB left" in found.rule
    assert "output.cache=DIR" in found.remedy


def test_run_and_plan_tell_it_with_status_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [*KINDS["tables"][0], f"hydra.run.dir={tmp_path}/run"]
    for command in ("plan", "run"):
        assert commands.main([command, *words]) == 2
        assert "tables.user = 100,000,000 rows of 64: the run needs at least 25" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_job_of_a_sweep_is_told_before_the_first_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "model=mlp",
        "tables.user.dim=8,64",
        "data.users=40000000",
        "optimizer=sgd",
        f"hydra.sweep.dir={tmp_path}/sweep",
    ]
    assert commands.main(["run", "-m", *words]) == 2
    assert "in job 1 (model=mlp tables.user.dim=64 " in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_another_launcher_may_have_other_machines() -> None:
    """What the jobs of a cluster may allocate is not known where the sweep is started."""
    words = [*KINDS["tables"][0], "hydra/launcher=basic"]
    assert composition.candidate(composition.loader(), words).spec.data.users == 100_000_000  # type: ignore[union-attr]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """300,000,000 × 16, of which the disk has the header."""
    path = tmp_path / "item.npy"
    header = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(300_000_000, 16))
    del header
    return path


def test_a_mapped_frozen_table_allocates_nothing(vectors: Path) -> None:
    words = ["pretrained@tables.item.pretrained=file", f"tables.item.pretrained.path={vectors}", "data.items=300000000"]
    words += ["optimizer=sgd", "freeze@tables.item.freeze=table"]
    assert fault(*words).value == "300,000,000 rows of 16"
    embexp.compose([*words, "init=memory_map"])


def test_a_tpu_has_its_own_memory() -> None:
    embexp.compose([*KINDS["tables"][0], "strategy=tpu"])
    assert fault(*KINDS["tables"][0], "strategy=tpu_simulator").path == "tables.user"


def test_what_only_the_data_tells_is_checked_once_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"u{number},m{number % 3},{number % 5}" for number in range(200)]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating", *lines]) + "\n")
    words = ["experiment=ratings", f"data.path={tmp_path}/ratings.csv", "data.label=rating"]
    words += ["features.user.column=userId", "features.item.column=movieId", f"output.cache={tmp_path}/cache"]
    words += ["tables.user.dim=100000", "tables.item.dim=100000"]
    spec = embexp.compose([*words, "train.batch_size=1", "train.evaluation_batch_size=1"])
    prepared = prepare.prepare(spec)
    check_memory(prepared)
    monkeypatch.setattr(machine, "available", lambda: Available(50_000_000, "this machine"))
    with pytest.raises(ConfigError, match=r"the largest is tables\.user with \d\d\.\d MB"):
        check_memory(prepared)
