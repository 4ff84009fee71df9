"""`embexp export`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embexp.cli import commands
from embexp.cli.commands import export
from embexp.config import composition
from embexp.records.folder import RunFolder
from embexp.runs import finished
from embexp.specs import fields
from tests import short_runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_runs.runner(tmp_path_factory)().directory


def test_the_kinds_are_those_of_python() -> None:
    assert (*finished.ExportKind, *fields.names("exports")) == export.KINDS


def test_it_says_what_it_wrote(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["export", str(run), str(tmp_path / "a"), "--as", "savedmodel"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["table user: 60 rows of dimension 16", "table item: 80 rows of dimension 16"]
    assert "signature serving_default: history int64 [B, N], item int64 [B], user int64 [B]" in shown
    assert (
        "signature serving_ids_ragged: history_row_splits int64 [B + 1], history_values int64 [n], item int64 [B],"
        " user int64 [B]"
    ) in shown
    assert shown[-1] == f"wrote {tmp_path / 'a'}"
    assert commands.main(["export", str(run), str(tmp_path / "b"), "--as", "npy", "--table", "item"]) == 0
    assert [each.name for each in (tmp_path / "b").iterdir()] == ["item.npy"]
    assert np.load(tmp_path / "b" / "item.npy").shape == (80, 16)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            [],
            [
                "which run? Give its directory",
                "where to? Give a new directory, OUT",
                "as what? Add --as savedmodel, npy",
            ],
        ),
        (["RUN", "{here}", "--as", "npy"], ["{here} already exists: give OUT another name"]),
        (
            ["RUN", "OUT", "--as", "savedmodel", "--table", "item"],
            ["--table is for files: a SavedModel needs all tables"],
        ),
        (["RUN", "OUT", "--as", "npy", "--binary"], ["--binary is for --as word2vec"]),
        (["RUN", "OUT", "--as", "saved_model"], ["--as saved_model: it must be"]),
        (
            ["RUN", "OUT", "--as", "index", "--recall", "99", "--table", "item"],
            [
                "--recall 99: it must be a number above 0 and at most 1, such as 0.99",
                "--table is for tables: vectors and indexes are of users and items",
            ],
        ),
        (["RUN", "OUT", "--as", "vectors", "--recall", "0.9"], ["--recall is for --as index"]),
    ],
)
def test_a_wrong_command_line(
    words: list[str], told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["export", *(word.format(here=tmp_path) for word in words)]) == 2
    shown = capsys.readouterr().err
    for each in told:
        assert each.format(here=tmp_path) in shown


def test_a_missing_library_and_a_run_without_users(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commands.main(["export", str(run), str(tmp_path / "a"), "--as", "vectors"]) == 1
    assert "task binary gives users and items no vectors" in capsys.readouterr().err
    (tmp_path / "h.csv").write_text("user,item\na,b\n")
    assert commands.main(["recommend", str(run), "--history", str(tmp_path / "h.csv")]) == 1
    assert "task binary gives users and items no vectors" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert commands.main(["export", str(run), str(tmp_path / "a"), "--as", "index"]) == 2
    assert "an index needs the package faiss-cpu, which is not installed: pip install faiss-cpu" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "a").exists()


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["export", str(tmp_path), "OUT", "--as", "npy"]) == 1
    assert "there is no spec.json in it" in capsys.readouterr().err
    study = ["experiment=new_entities", "data.path=graph"]
    spec = composition.job(composition.loader(), study, look_at_data=False).spec
    for folder in (RunFolder(tmp_path), RunFolder(tmp_path / "base")):
        folder.path.mkdir(exist_ok=True)
        folder.write_spec(spec)
    RunFolder(tmp_path / "base").summary.write_text("{}")
    assert commands.main(["export", str(tmp_path), "OUT", "--as", "npy"]) == 1
    assert f"embexp export {tmp_path}/base OUT --as npy" in capsys.readouterr().err


def test_files_need_no_tensorflow(run: Path, tmp_path: Path) -> None:
    words = ["export", str(run), str(tmp_path / "out"), "--as", "projector"]
    script = (
        f"import sys; from embexp.cli import commands; commands.main({words!r}); print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert (tmp_path / "out" / "projector_config.pbtxt").exists()
