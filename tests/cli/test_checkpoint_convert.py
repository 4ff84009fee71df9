"""`embexp checkpoint convert` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.cli import commands


@pytest.fixture
def by_name(tmp_path: Path) -> Path:
    stored = {"net/table": tf.Variable(tf.ones([5, 2])), "global_step": tf.Variable(7, dtype=tf.int64)}
    return checkpoints.save(tmp_path / "v1", stored, kind="name")


def keys(path: Path) -> set[str]:
    return set(dict(tf.train.list_variables(str(path))))


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["checkpoint", "convert", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: embexp checkpoint convert PATH OUT --to name|object")


def test_there_and_back_with_names(by_name: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, names = tmp_path / "objects", tmp_path / "names.yaml"
    names.write_text("net/table: embedding/item  # a table of TPUEmbedding\n")
    assert (
        commands.main(["checkpoint", "convert", str(by_name), str(out), "--to", "object", "--names", str(names)]) == 0
    )
    shown = capsys.readouterr().out.splitlines()
    assert [each.split() for each in shown] == [
        ["name-based", "object-based", "bytes", "shape", "type"],
        ["global_step", "global_step", "8", "B", "scalar", "int64"],
        ["net/table", "embedding/item", "40", "B", "5", "×", "2", "float32"],
        f"wrote the object-based checkpoint {out}: 2 values".split(),
    ]
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert keys(out) == {"_CHECKPOINTABLE_OBJECT_GRAPH", f"embedding/item{end}", f"global_step{end}"}
    names.write_text(json.dumps({"embedding/item": "net/table"}))
    (tmp_path / "folder").mkdir()
    back = ["checkpoint", "convert", str(out), str(tmp_path / "folder"), "--to", "name", "--names", str(names)]
    assert commands.main(back) == 0
    assert keys(tmp_path / "folder" / "checkpoint") == {"net/table", "global_step"}


@pytest.mark.parametrize("name", ["new.index", "new.data-00000-of-00002", "checkpoint"])
def test_files_of_somebody_else_are_kept(name: str, by_name: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_text("mine")
    status = commands.main(["checkpoint", "convert", str(by_name), str(folder / "new"), "--to", "object"])
    assert status == (0 if name == "checkpoint" else 2)
    assert (folder / name).read_text() == "mine"


def test_nothing_is_written_into_a_run(by_name: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "spec.json").touch()
    for out in (run, run / "new"):
        assert commands.main(["checkpoint", "convert", str(by_name), str(out), "--to", "object"]) == 2
        assert f"{run} is the folder of a run" in capsys.readouterr().err
    assert [each.name for each in run.iterdir()] == ["spec.json"]


def test_all_faults_at_once(by_name: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["checkpoint", "convert"]) == 2
    found = capsys.readouterr().err
    for words in ("which checkpoint?", "where to?", "to which kind? Add --to name|object", "usage: "):
        assert words in found
    names = tmp_path / "names.json"
    names.write_text('{"a": 1, "b": null}')
    same = [str(by_name), str(by_name), "--to", "both", "--names", str(names)]
    assert commands.main(["checkpoint", "convert", *same]) == 2
    found = capsys.readouterr().err
    for words in (
        "v1.index already exists",
        "--to both: must be name or object",
        "'a': 1 must be text",
        "'b': None must",
    ):
        assert words in found
    names.write_text("[1, 2")
    assert commands.main(["checkpoint", "convert", str(by_name), "x", "--to", "name", "--names", str(names)]) == 2
    assert "it is neither JSON nor YAML" in capsys.readouterr().err
    arguments = ["checkpoint", "convert", str(tmp_path / "none"), str(tmp_path / "x"), "--to", "name"]
    assert commands.main(arguments) == 1
    assert "there is no such file or folder" in capsys.readouterr().err


def test_faults_are_told_without_tensorflow() -> None:
    script = (
        "import sys; from embexp.cli import commands; code = commands.main(['checkpoint', 'convert']);"
        " print(code, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
