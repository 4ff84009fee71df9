"""A database or a folder of somebody else stays as it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.reports import mlflow
from embexp.specs.running import SearchSettings
from embexp.sweeps.settings import storage_rule
from embexp.system import files


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with sqlite3.connect("theirs.db") as database:
        database.execute("CREATE TABLE users (id)")
    database.close()
    Path("text.db").write_text(1000 * "text")
    Path("photos").mkdir()
    Path("photos/a.jpg").touch()
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("tracking=mlflow tracking.uri='sqlite:///theirs.db'", "a database of something else, without table exp"),
        ("tracking=mlflow tracking.uri='sqlite+pysqlite:///theirs.db'", "a database of something else"),
        ("tracking=mlflow tracking.uri='sqlite:///text.db'", "a file that is not a database"),
        ("tracking=mlflow tracking.uri=photos", "a folder with other content"),
        ("tracking=mlflow tracking.uri=theirs.db", "a file with that name"),
        ("tracking=mlflow", "a database of something else"),  # by the environment
        ("output.cache=photos", "a folder with other content"),
        ("-m hydra/sweeper=optuna model=mlp,dlrm hydra.sweeper.storage=theirs.db", "without table studies"),
        ("-m hydra/sweeper=optuna model=mlp,dlrm hydra.sweeper.storage='sqlite:///text.db'", "that is not a database"),
    ],
)
def test_what_is_somebody_else_s_is_refused_before_anything_is_written(
    words: str, rule: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if words == "tracking=mlflow":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///theirs.db")
    before = content(here)
    assert commands.main(["run", *words.split()]) == 2
    assert rule in capsys.readouterr().err
    assert content(here) == before


@pytest.mark.parametrize("name", ["outputs", "datasets", "fused_operations", "digests"])
def test_a_cache_is_our_own_whatever_came_into_it_first(name: str, here: Path) -> None:
    """As by `embexp schema --out FILE`, `embexp fetch`, or a build of fused operations, before the first run."""
    (here / "cache" / name / "something").mkdir(parents=True)
    assert files.cache(here / "cache") == ""


def test_a_record_has_no_database_of_somebody_else_opened(here: Path) -> None:
    """What is resumed is not composed again."""
    before = content(here)
    with pytest.raises(ValueError, match="something else"):
        mlflow.connect("sqlite:///theirs.db")
    assert "studies" in storage_rule(SearchSettings(storage="theirs.db"), here)
    assert content(here) == before


def test_what_is_new_empty_or_its_own_is_taken(here: Path) -> None:
    Path("empty").mkdir()
    Path("empty.db").touch()
    for made in ("cache/digests", "alike/clicks-0123456789abcdef0123456789abcdef", "both/run/.hydra", "store/0"):
        Path(made).mkdir(parents=True)
    Path("store/0/meta.yaml").touch()
    assert not any(files.cache(Path(each)) for each in ("empty", "nowhere", "cache", "alike", "both"))
    assert not any(files.store(Path(each), is_folder=True) for each in ("empty", "nowhere", "store"))
    assert not any(files.database(Path(each), ["users"]) for each in ("empty.db", "nowhere.db", "theirs.db"))
