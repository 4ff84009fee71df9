"""A disk that is full, a permission that is missing: one sentence, and nothing that was there before is damaged."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embexp.cli import commands
from embexp.records import inventory
from embexp.runs import saving
from tests import disks

pytestmark = pytest.mark.slow

DATA = ("data.examples=2000", "data.users=50", "data.items=40", "train.batch_size=128", "train.epochs=null")
SMALL = (
    *DATA,
    "train.steps=4",
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
    "output.digests=false",
)
Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command that fails, and returns what it said: one sentence."""

    def run(*words: str, status: int = 1) -> str:
        capsys.readouterr()
        assert commands.main(list(words)) == status
        err = capsys.readouterr().err
        assert "Traceback" not in err
        [line] = [line for line in err.splitlines() if line.startswith("embexp: ")]
        return line

    return run


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache with the data of `SMALL`, and a run that has ended, beside it."""
    folder = tmp_path_factory.mktemp("cache")
    assert commands.main(["run", *SMALL, f"output.cache={folder}", f"hydra.run.dir={folder.parent}/ended"]) == 0
    return folder


@pytest.fixture(scope="module")
def ended(cache: Path) -> Path:
    return cache.parent / "ended"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,000 × 20 as text: 1 MB as text, 400 kB as numbers."""
    path = tmp_path_factory.mktemp("vectors") / "words.txt"
    values = np.random.default_rng(0).normal(size=(5_000, 20)).astype(np.float32)
    path.write_text("".join(f"w{row} {' '.join(map(str, each))}\n" for row, each in enumerate(values.tolist())))
    return path


def test_the_output_is_read_only(said: Said, cache: Path, tmp_path: Path) -> None:
    with disks.read_only(tmp_path / "disk") as disk:
        line = said("run", *SMALL, f"output.cache={cache}", f"hydra.run.dir={disk}/run")
    assert line.startswith(f"embexp: {disk}/run: ")
    assert line.endswith(": choose another place by hydra.run.dir")


def test_the_cache_is_read_only(said: Said, tmp_path: Path) -> None:
    with disks.read_only(tmp_path / "disk") as disk:
        line = said("run", *SMALL, f"output.cache={disk}/cache", f"hydra.run.dir={tmp_path}/run")
    assert line.startswith(f"embexp: {disk}/cache: ")
    assert line.endswith(": choose another place by output.cache")
    assert f"error: {line.removeprefix('embexp: ')}" in (tmp_path / "run" / "run.log").read_text()
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_cache_that_has_everything_may_be_read_only(cache: Path, tmp_path: Path) -> None:
    """Of another machine, say: a copy, whose files have other stamps."""
    with disks.small(tmp_path / "disk", kilobytes=4000) as disk:
        shutil.copytree(cache, disk / "cache")
        disks.seal(disk)
        assert commands.main(["run", *SMALL, f"output.cache={disk}/cache", f"hydra.run.dir={tmp_path}/run"]) == 0


def test_the_cache_is_full(said: Said, tmp_path: Path) -> None:
    with disks.small(tmp_path / "disk", kilobytes=112) as disk:
        line = said("run", *SMALL, f"output.cache={disk}/cache", f"hydra.run.dir={tmp_path}/run")
        assert line.startswith(f"embexp: {disk}/cache/")
        assert line.endswith(
            ": No space left on device: free some space there, or choose another place by output.cache"
        )
        assert [each.name for each in (disk / "cache").iterdir() if each.name.startswith(".")] == []
    assert line.removeprefix("embexp: ") in (tmp_path / "run" / "run.log").read_text()


def test_no_room_for_a_log_of_that_size_is_told_before(said: Said, tmp_path: Path) -> None:
    with disks.small(tmp_path / "disk", kilobytes=60) as disk:
        words = [word for word in SMALL if not word.startswith("data.examples")]
        words += ["data.examples=20000000", f"output.cache={disk}/cache", f"hydra.run.dir={tmp_path}/run"]
        line = said("run", *words, status=2)
    assert "1 fault in the config" in line
    assert not (tmp_path / "run").exists()


def test_the_output_is_too_small_for_the_checkpoints(said: Said, cache: Path, tmp_path: Path) -> None:
    with disks.small(tmp_path / "disk", kilobytes=200) as disk:
        words = ["tables.item.dim=512", "tables.user.dim=512", "model=mlp"]
        line = said("run", *SMALL, *words, f"output.cache={cache}", f"hydra.run.dir={disk}/run")
    assert f"{disk}/run/checkpoints: 3 checkpoints of " in line
    assert "checkpoint.keep=1" in line


@pytest.mark.parametrize("place", ["final", "manifest"])
def test_the_output_is_full(
    said: Said, cache: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was large enough when the training began, and somebody has filled it since."""
    with disks.small(tmp_path / "disk", kilobytes=600) as disk:

        def fill() -> None:
            with (disk / "of somebody").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - (8192 if place == "final" else 0))

        real = saving.RunSaver.keep_final

        def keep_final(*arguments: Any) -> None:
            fill()
            real(*arguments)

        monkeypatch.setattr(saving.RunSaver, "keep_final", keep_final)
        if place == "manifest":
            fill()
        words = ["run", *SMALL, "model=mlp", "tables.item.dim=64", f"output.cache={cache}", f"hydra.run.dir={disk}/run"]
        line = said(*words)
        assert "No space left on device" in line
        assert f"{disk}/run" in line
        left = [each.name for each in disk.rglob("*") if each.name.endswith(".part")]
        assert left == []


def lines_of(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "timing"} for line in found]


LOGGED = (*DATA, "train.log_every=1", "train.steps=200", *SMALL[len(DATA) + 1 :], "checkpoint.every_steps=60")


@pytest.fixture(scope="module")
def whole(cache: Path) -> Path:
    """A run that logs all its lines."""
    run = cache.parent / "whole"
    assert commands.main(["run", *LOGGED, f"output.cache={cache}", f"hydra.run.dir={run}"]) == 0
    return run


@pytest.mark.parametrize("room", ["again", "after the end", "never"])
def test_the_disk_is_full_while_lines_are_logged(
    said: Said,
    cache: Path,
    whole: Path,
    tmp_path: Path,
    room: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A training goes on, its lines wait, and a checkpoint is one from which nothing is missing."""
    from embexp.training.progress import ProgressLines

    with disks.small(tmp_path / "disk", kilobytes=2000) as disk:
        of_somebody, run, filled = disk / "of somebody", disk / "run", list[int]()

        def logged(_: object, step: int, *__: object) -> None:
            if step == 70 and not filled:
                filled.append(step)
                with of_somebody.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free)
            if step == 150 and room == "again":
                of_somebody.unlink(missing_ok=True)

        monkeypatch.setattr(ProgressLines, "logged", logged)
        words = ["run", *LOGGED, f"output.cache={cache}", f"hydra.run.dir={run}"]
        words += ["checkpoint.on_error=stop"] if room == "never" else []
        if room == "again":
            capsys.readouterr()
            assert commands.main(words) == 0
            shown = "".join(capsys.readouterr().out.split())  # a terminal's line ends anywhere in a long path
            # When the disk is full, and among the warnings at the end.
            assert shown.count("metrics.jsonl:Nospaceleftondevice:freesomespacethere,or") == 2
            warnings = json.loads((run / "summary.json").read_text())["warnings"]
            [late] = [each for each in warnings if "the line is written once there is room" in each]
            assert late.startswith(f"{run}/metrics.jsonl: No space left on device: free some space there")
            assert any(
                each.startswith("step 120: ") and each.endswith("; checkpoint.keep=1 keeps fewer") for each in warnings
            )
        else:
            assert f"{run}" in (line := said(*words))
            assert "No space left on device: free some space there, or choose another place by hydra.run.dir" in line
            of_somebody.unlink()
            assert commands.main(["resume", str(run)]) == 0
        assert lines_of(run) == lines_of(whole)
        tables = [json.loads((each / "summary.json").read_text())["tables"] for each in (run, whole)]
        assert tables[0] == tables[1]
        assert not [each for each in run.rglob("*") if each.name.endswith(".part")]


def test_only_the_lines_find_no_room(
    said: Said, cache: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints are written nevertheless, with the lines that wait, and a resumption has these."""
    from embexp.training.listeners import MetricsFile

    real, run = MetricsFile.flush, tmp_path / "run"

    def flush(lines: MetricsFile) -> None:
        if len(lines_of(run)) >= 70:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), f"{run}/metrics.jsonl")
        real(lines)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsFile, "flush", flush)
        line = said("run", *LOGGED, f"output.cache={cache}", f"hydra.run.dir={run}")
    assert line.startswith(f"embexp: {run}/metrics.jsonl: File too large: ")
    assert {each.name for each in (run / "checkpoints").iterdir()} >= {"final", "step_00000180"}
    assert commands.main(["resume", str(run)]) == 0
    assert lines_of(run) == lines_of(whole)


def test_the_disk_of_a_sweep_is_full(said: Said, cache: Path, tmp_path: Path) -> None:
    with disks.small(tmp_path / "disk", kilobytes=40) as disk:
        line = said("run", "-m", "seed=0,1", *SMALL, f"output.cache={cache}", f"hydra.sweep.dir={disk}/sweep")
        assert line.startswith(f"embexp: {disk}/sweep/sweep.sqlite: database or disk is full: free some space there")


def test_the_cache_of_vectors_is_full(said: Said, vectors: Path, tmp_path: Path) -> None:
    with disks.small(tmp_path / "disk", kilobytes=200) as disk:
        line = said("vectors", "info", str(vectors), "--cache", f"{disk}/cache")
        assert line.startswith(f"embexp: {disk}/cache/vectors-")
        assert line.endswith(": No space left on device: free some space there, or choose another place by --cache")
        assert [each.name for each in (disk / "cache").iterdir() if each.name != "digests"] == []


@pytest.mark.parametrize("form", ["npy", "vec", "parquet"])
def test_a_disk_that_is_full_keeps_the_file_that_was_there(
    said: Said, vectors: Path, tmp_path: Path, form: str
) -> None:
    with disks.small(tmp_path / "disk", kilobytes=200) as disk:
        out = disk / f"out.{form}"
        out.write_text("of before")
        line = said("vectors", "convert", str(vectors), str(out), "--force", "--cache", str(tmp_path / "cache"))
        assert line.startswith(f"embexp: {out}")
        assert "No space left on device" in line
        assert out.read_text() == "of before"
        assert [each.name for each in disk.iterdir() if each.name.startswith(".")] == []


def test_vectors_are_converted_to_a_disk_that_is_read_only(said: Said, vectors: Path, tmp_path: Path) -> None:
    with disks.read_only(tmp_path / "disk") as disk:
        line = said("vectors", "convert", str(vectors), f"{disk}/out.npy", "--cache", str(tmp_path / "cache"))
    assert line.startswith(f"embexp: {disk}/out")
    assert "choose another place by the command line" in line


def test_an_export_to_a_disk_that_is_read_only(said: Said, ended: Path, tmp_path: Path) -> None:
    with disks.read_only(tmp_path / "disk") as disk:
        line = said("export", str(ended), f"{disk}/model", "--as", "npy")
    assert f"{disk}/model" in line


def test_a_name_that_is_too_long(said: Said, cache: Path, tmp_path: Path) -> None:
    line = said("run", *SMALL, f"output.cache={cache}", f"hydra.run.dir={tmp_path}/{300 * 'n'}", status=2)
    assert "File name too long: choose a shorter one: in most file systems, a name may have 255 bytes" in line
    line = said("run", *SMALL, f"output.cache={tmp_path}/{300 * 'n'}", f"hydra.run.dir={tmp_path}/run")
    assert "File name too long" in line


def test_a_file_where_a_folder_should_be(said: Said, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    line = said("run", *SMALL, f"output.cache={cache}", f"hydra.run.dir={tmp_path}/file/run")
    assert "a file is in the way of a folder" in line
    line = said("run", *SMALL, f"output.cache={tmp_path}/file", f"hydra.run.dir={tmp_path}/run")
    assert "a file is in the way of a folder" in line
    assert (tmp_path / "file").read_text() == "mine"


def test_the_folder_of_the_run_is_removed_meanwhile(
    said: Said, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from embexp.training.progress import ProgressLines

    def remove(*_: object) -> None:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    monkeypatch.setattr(ProgressLines, "logged", remove)
    line = said("run", *SMALL, f"output.cache={cache}", f"hydra.run.dir={tmp_path}/run", "train.log_every=1")
    assert f"{tmp_path}/run/" in line
    assert "has just been removed" in line


def test_a_damaged_summary_is_told_by_every_command_and_written_again(
    said: Said, ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(ended, run)
    whole = (run / "summary.json").read_bytes()
    inventory.unseal(run)  # with one, what is changed is not even read
    (run / "summary.json").write_bytes(whole[:300])
    vectors = ["vectors", "neighbors", str(run), "1", "--table", "item"]
    for words in (
        ["evaluate", str(run)],
        ["export", str(run), f"{tmp_path}/out", "--as", "npy"],
        vectors,
        ["verify", str(run)],
    ):
        assert said(*words).startswith(f"embexp: {run}/summary.json is damaged: it is not JSON"), words
    words = ["pretrained=checkpoint", f"pretrained.path={run}", f"hydra.run.dir={tmp_path}/later"]
    assert "summary.json is damaged" in said("run", *SMALL, *words)
    assert commands.main(["report", str(run)]) in (0, 1)
    assert "summary.json is damaged" in capsys.readouterr().out
    (run / "summary.json").unlink()
    assert commands.main(["resume", str(run)]) == 0
    again, before = json.loads((run / "summary.json").read_bytes()), json.loads(whole)
    assert {key: again[key] for key in ("status", "metrics", "tables")} == {
        key: before[key] for key in ("status", "metrics", "tables")
    }


def test_a_vocabulary_of_another_run_is_told(said: Said, tmp_path: Path) -> None:
    lines = [f"u{number % 40},m{number % 30},{number % 5}" for number in range(400)]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating", *lines]) + "\n")
    words = ["experiment=ratings", f"data.path={tmp_path}/ratings.csv", "data.label=rating"]
    words += ["features.user.column=userId", "features.item.column=movieId", f"output.cache={tmp_path}/cache"]
    words += [
        "train.epochs=1",
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
        f"hydra.run.dir={tmp_path}/run",
    ]
    assert commands.main(["run", *words]) == 0
    vocabulary = tmp_path / "run" / "vocabularies" / "item.tsv"
    whole = vocabulary.read_text().splitlines(keepends=True)
    inventory.unseal(tmp_path / "run")
    for lines in (whole[:-5], [*whole, "m99\t1\ttoken\n"]):
        vocabulary.write_text("".join(lines))
        line = said("evaluate", str(tmp_path / "run"), "--data", f"{tmp_path}/ratings.csv")
        assert f"item: found a vocabulary of {len(lines) - 1} rows, expected {len(whole) - 1}" in line
