"""Folders of runs and sweeps from elsewhere, in which links lead to other files: nothing is written through them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import embexp
from embexp.cli import commands
from embexp.records.folder import RunFolder
from embexp.sweeps.ledger import Ledger

SMALL = [
    "data.examples=200",
    "train.steps=2",
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
]
FILES = (".lock", "run.log", "metrics.jsonl", "summary.json", "manifest.json", "failure.json", "deep/er/file")
FOLDERS = ("checkpoints", "vocabularies", "events", "plots", ".hydra", "code")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of somebody else, with what a run would replace or remove."""
    folder = tmp_path / "victim"
    (folder / "step_00000001").mkdir(parents=True)
    for name in ("file", "item.tsv", "step_00000001/state.json", ".leftover.part"):
        (folder / name).write_text("precious")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def link(folder: Path, name: str, victim: Path) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(victim if name in FOLDERS else victim / "file")


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_run_is_not_resumed_through_links(
    name: str, victim: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = tmp_path / "run", contents(victim)
    folder.mkdir()
    RunFolder(folder).write_spec(embexp.compose(SMALL))
    link(folder, name, victim)
    assert commands.main(["resume", str(folder)]) == commands.FAILED
    error = capsys.readouterr().err
    assert f"{name} is a link" in error
    assert "Traceback" not in error
    assert contents(victim) == before


@pytest.mark.parametrize("existing", ["continue", "replace", "number"])
def test_a_run_does_not_begin_through_links(
    existing: str, victim: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder with nothing but what Hydra and a lock leave counts as empty."""
    folder, before = tmp_path / "run", contents(victim)
    folder.mkdir()
    for name in ("run.log", ".hydra"):
        link(folder, name, victim)
    words = [
        "run",
        *SMALL,
        f"hydra.run.dir={folder}",
        f"output.existing={existing}",
        f"output.cache={tmp_path / 'cache'}",
    ]
    status = commands.main(words)
    assert contents(victim) == before
    if existing == "number":
        assert status == 0
        return
    assert status != 0
    assert "run.log is a link" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sweep.sqlite", "0", ".jobs", "sweep.csv"])
def test_a_sweep_does_not_go_on_through_links(
    name: str, victim: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    if name == "sweep.sqlite":
        Ledger(victim, create=True)
        (folder / name).symlink_to(victim / name)
    else:
        Ledger(folder, create=True).add([], {"command": {"folder": str(tmp_path)}})
        (folder / name).symlink_to(victim)
    before = (victim / "file").read_text(), sorted(os.listdir(victim))
    assert commands.main(["resume", str(folder)]) != 0
    assert "is a link" in capsys.readouterr().err
    assert ((victim / "file").read_text(), sorted(os.listdir(victim))) == before


def test_links_within_the_folder_are_allowed(tmp_path: Path) -> None:
    """As some trackers make them."""
    folder = tmp_path / "run"
    (folder / "tracker" / "run-1").mkdir(parents=True)
    (folder / "tracker" / "latest").symlink_to("run-1")
    with RunFolder(folder).writing():
        pass
