"""TensorFlow reads and writes in directories of any name, through an alias."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from embexp.checkpoints.store import is_plain, plain_path
from embexp.errors import CheckpointError

NAMES = [f"a{each}b" for each in "[]*?\\{}=,'\"% ü"] + ["model.top=[64,32]", "a[64]b", "[", "*"]
PATTERNS = {name for name in NAMES if set(name) & set("*?[\\")}


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_restored_in_a_directory_of_any_name(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name / "inner"
    directory.mkdir(parents=True)
    variable = tf.Variable([1.0, 2.0])
    with plain_path(directory) as alias:
        path = tf.train.Checkpoint(v=variable).save(str(alias / "checkpoint"))
        assert (directory / "checkpoint-1.index").is_file()
        variable.assign([0.0, 0.0])
        assert tf.train.latest_checkpoint(str(alias)) == path
        tf.train.Checkpoint(v=variable).read(path).assert_existing_objects_matched().expect_partial()
    assert variable.numpy().tolist() == [1.0, 2.0]
    assert (alias == directory) == (name not in PATTERNS)
    assert alias == directory or not alias.parent.exists()


@pytest.mark.parametrize("name", NAMES)
def test_only_names_that_need_one_get_an_alias(tmp_path: Path, name: str) -> None:
    """Without one, TensorFlow reads what it has written, and finds the files of no other directory."""
    directory = tmp_path / name
    others = [tmp_path / name.replace("*", "x").replace("?", "x"), tmp_path / "a64b"]
    for each in {directory, *others}:
        each.mkdir(exist_ok=True)
        tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(each / "checkpoint"))
    prefix = str(directory / "checkpoint")
    if is_plain(directory):
        tf.train.load_checkpoint(prefix)
        assert tf.io.gfile.glob(f"{prefix}.index") == [f"{prefix}.index"]
    elif "*" in name or "?" in name:
        assert len(tf.io.gfile.glob(f"{prefix}.index")) > 1
    elif "]" in name or "\\" in name:
        with pytest.raises((tf.errors.OpError, ValueError)):
            tf.train.load_checkpoint(prefix)


def test_a_pattern_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "[64]" / "run").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "[64]")
    with plain_path(Path("run")) as alias:
        (alias / "file").write_text("x")
    assert (tmp_path / "[64]" / "run" / "file").read_text() == "x"


def test_without_a_plain_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "[64]").mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "[64]"))
    with plain_path(tmp_path / "[64]") as alias:
        assert is_plain(alias)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(CheckpointError, match="Set TMPDIR to a directory without"), plain_path(tmp_path / "[64]"):
        pass
