"""`embexp checkpoint graph` from the command line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from embexp.cli import commands
from tests import object_graphs

TITLE = "Dependency graph of {}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of the checkpoint of a GAN, in a folder of its own."""
    return object_graphs.keras_gan(tmp_path_factory.mktemp("gan") / "ckpt-7").with_suffix("")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def copied(checkpoint: Path, prefix: Path) -> None:
    prefix.parent.mkdir(parents=True)
    for file in checkpoint.parent.glob(f"{checkpoint.name}.*"):
        shutil.copy(file, prefix.with_name(file.name.replace(checkpoint.name, prefix.name)))


def draw(*arguments: object) -> int:
    return commands.main(["checkpoint", "graph", *map(str, arguments)])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert draw("--help") == 0
    assert capsys.readouterr().out.startswith("usage: embexp checkpoint graph PATH [-o FILE] [--all] [--force]\n")
    assert commands.main(["checkpoint"]) == 0
    assert "Draws the objects in a checkpoint and" in capsys.readouterr().out


def test_a_prefix_an_index_and_a_directory(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (checkpoint, Path(f"{checkpoint}.index"), checkpoint.parent):
        assert draw(path) == 0
        name = f"{path.name.removesuffix('.index')}.svg"
        assert capsys.readouterr().out == (f"wrote {name}: 47 of 67 objects and 54 of 94 edges (--all draws all)\n")
        assert f">{TITLE.format(path)}</text>" in Path(name).read_text("utf-8")
    assert draw(checkpoint, "--all", "-o", "sub/all.png") == 0
    assert capsys.readouterr().out == "wrote sub/all.png: 67 of 67 objects and 94 of 94 edges\n"
    assert Path("sub/all.png").read_bytes().startswith(b"\x89PNG")


def test_of_a_run_the_final_checkpoint_or_else_the_newest(checkpoint: Path) -> None:
    """Which one was drawn is seen by its title's file, and by what happens without it."""
    copied(checkpoint, Path("run/checkpoints/step_900/checkpoint"))
    copied(checkpoint, Path("run/checkpoints/step_1000/checkpoint"))
    Path("run/checkpoints/step_900/checkpoint.index").write_bytes(b"not this one")
    assert draw("run") == 0
    copied(checkpoint, Path("run/checkpoints/final/checkpoint"))
    Path("run/checkpoints/step_1000/checkpoint.index").write_bytes(b"nor this one")
    assert draw("run") == 0
    shutil.rmtree("run/checkpoints/final")
    assert draw("run") == 1


def test_a_saved_model() -> None:
    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0], name="the_weight")
    tf.saved_model.save(module, "model")
    assert draw("model", "-o", "model.svg") == 0
    assert ">the_weight [2] float32</text>" in Path("model.svg").read_text("utf-8")


def test_a_name_based_one(capsys: pytest.CaptureFixture[str]) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("a", [2])
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, "./old")
    assert draw("old") == 1
    assert capsys.readouterr().err == (
        "embexp: old is a name-based checkpoint: it holds 1 tensor by name, and no object graph\n"
        "    `embexp checkpoint convert old OUT --to object` writes an object-based one\n"
    )
    assert not Path("old.svg").exists()


def test_what_is_wrong_is_said(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert draw() == 2
    assert "which checkpoint? Give its path" in capsys.readouterr().err
    assert draw(checkpoint, "-o", "gan.gif") == 2
    assert "-o gan.gif: the ending must be one of .svg, .png, .pdf" in capsys.readouterr().err
    Path("folder.svg").mkdir()
    assert draw(checkpoint, "-o", "folder.svg") == 2
    assert "-o folder.svg: it is a folder" in capsys.readouterr().err
    Path("file").write_text("")
    assert draw(checkpoint, "-o", "file/gan.svg") == 2
    assert capsys.readouterr().err == "embexp: -o file/gan.svg: it can't be written: Not a directory\n"
    assert draw("nowhere") == 1
    assert capsys.readouterr().err.startswith(
        "embexp: nowhere: there is no such file or folder; give a run's directory"
    )
    Path("model.weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert draw("model.weights.h5") == 1
    assert capsys.readouterr().err == (
        "embexp: model.weights.h5 is a file of Keras, which has no object graph\n"
        "    tf.train.Checkpoint(model=model).write(PATH) writes a checkpoint of the model that has one\n"
    )


def test_it_needs_no_tensorflow(checkpoint: Path) -> None:
    script = (
        "import sys\nfrom embexp.cli.commands import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print([name for name in ('tensorflow', 'keras', 'hydra') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, "checkpoint", "graph", str(checkpoint)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "[]"
