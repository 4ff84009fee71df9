"""Saving objects: what TensorFlow's classes read, whole or not at all, at any path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.checkpoints import store
from embexp.errors import CheckpointError
from tests.checkpoints.test_plain_paths import NAMES

v1 = tf.compat.v1


def dense(name: str = "dense", value: float = 1.0) -> keras.layers.Dense:
    layer = keras.layers.Dense(2, name=name)
    layer.build((None, 3))
    layer.kernel.assign(tf.fill([3, 2], value))
    layer.bias.assign(tf.fill([2], value))
    return layer


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["object", "name"])
def test_saved_and_restored_at_any_path(tmp_path: Path, name: str, kind: str) -> None:
    for path in (tmp_path / name / "inner" / "c", tmp_path / f"prefix {name}"):
        written = checkpoints.save(path, dense(), kind=kind)
        assert written == path
        assert path.with_name(f"{path.name}.index").is_file()
        into = dense(value=0.0)
        checkpoints.restore(path, into).assert_consumed()
        assert float(tf.reduce_sum(into.kernel)) == 6
        checkpoints.convert(path, path.with_name(f"{path.name}2"), kind="name" if kind == "object" else "object")
        into = dense(value=0.0)
        later = checkpoints.restore(path.with_name(f"{path.name}2"), into, rename=None)
        assert later.now


def test_a_folder_gets_one_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.save(tmp_path, dense()) == tmp_path / "checkpoint"
    checkpoints.restore(tmp_path, dense(value=0)).assert_consumed()
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(dense(value=3)), str(tmp_path / "managed"), max_to_keep=2)
    manager.save(), manager.save()
    into = dense(value=0)
    checkpoints.restore(tmp_path / "managed", into).assert_consumed()
    assert float(into.bias.numpy()[0]) == 3


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (lambda: dense(), {"dense/kernel", "dense/bias"}),
        (lambda: dense().weights, {"dense/kernel", "dense/bias"}),
        (lambda: {"x/y": tf.Variable(1.0), "z": dense()}, {"x/y", "dense/kernel", "dense/bias"}),
        (lambda: {"a": dense(), "b": dense()}, {"a/_kernel", "a/bias", "b/_kernel", "b/bias"}),
        (lambda: tf.train.Checkpoint(v=tf.Variable(1.0, name="own")), {"own"}),
        (lambda: tf.Variable(1.0, name="one"), {"one"}),
    ],
    ids=["layer", "list", "mapping", "shared names", "Checkpoint", "variable"],
)
def test_names_are_global_and_unique(tmp_path: Path, given: Any, names: set[str]) -> None:
    path = checkpoints.save(tmp_path / "c", given(), kind="name")
    assert set(tf.train.load_checkpoint(str(path)).get_variable_to_shape_map()) == names
    checkpoints.restore(path, given()).assert_consumed()


def test_a_saver_reads_it_and_writes_what_is_read(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path / "c", dense(value=4.0), kind="name")
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("dense"):
            kernel, bias = v1.get_variable("kernel", [3, 2]), v1.get_variable("bias", [2])
        v1.train.Saver().restore(session, str(path))
        assert session.run(kernel).tolist() == [[4, 4]] * 3
        session.run(bias.assign([5, 6]))
        v1.train.Saver().save(session, str(tmp_path / "v1"), write_state=False)
    into = dense()
    checkpoints.restore(tmp_path / "v1", into).assert_consumed()
    assert into.bias.numpy().tolist() == [5, 6]


@pytest.mark.parametrize("kind", ["object", "name"])
def test_in_a_graph(tmp_path: Path, kind: str) -> None:
    def made(value: float) -> Any:
        return v1.get_variable("w", initializer=tf.fill([2], value), use_resource=True)

    with tf.Graph().as_default(), v1.Session() as session:
        variable = made(3.0)
        session.run(v1.global_variables_initializer())
        path = checkpoints.save(tmp_path / "c", [variable], kind=kind)
    with tf.Graph().as_default(), v1.Session() as session:
        variable = made(0.0)
        checkpoints.restore(path, [variable]).assert_consumed().run_restore_ops()
        assert session.run(variable).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: 3, "found int; expected a tf.Module"),
        (lambda: {"a": 3}, "found a: int; expected"),
        (lambda: [dense()], "found Dense in a list, expected variables"),
        (lambda: [tf.Variable(1.0, name="v"), tf.Variable(1.0, name="v")], r"share a name: 'v' \(2 times\)"),
        (lambda: keras.layers.Dense(2), "there is nothing to save"),
    ],
)
def test_what_can_not_be_saved(tmp_path: Path, given: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        checkpoints.save(tmp_path / "c", given())
    assert not [*tmp_path.iterdir()]


def test_an_interrupted_save_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every rename, and at every file that goes to disk."""
    path = checkpoints.save(tmp_path / "c", dense(value=1.0))
    checkpoints.save(path, dense(value=2.0))
    files = sorted(each.name for each in tmp_path.iterdir())
    assert files == ["c.data-00000-of-00002", "c.index", "checkpoint"]
    replace, calls = os.replace, 0

    def interrupted(number: int) -> None:
        nonlocal calls
        calls = 0

        def broken(*given: Any) -> None:
            nonlocal calls
            if calls == number:
                raise KeyboardInterrupt
            calls += 1
            replace(*given)

        monkeypatch.setattr(os, "replace", broken)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(path, dense(value=9.0))
        monkeypatch.undo()
        into = dense(value=0.0)
        checkpoints.restore(path, into).assert_consumed()
        assert float(into.bias.numpy()[0]) == 2

    for number in range(2):
        interrupted(number)
    checkpoints.save(path, dense(value=3.0))
    assert len([*tmp_path.iterdir()]) == 3
    into = dense(value=0.0)
    checkpoints.restore(path, into).assert_consumed()
    assert float(into.bias.numpy()[0]) == 3


def test_files_are_on_disk_before_the_index_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(file: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        real_fsync(file)

    def replace(source: Any, target: Any) -> None:
        events.append(f"to {Path(target).name}")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    checkpoints.save(tmp_path / "c", dense())
    data, index = (events.index(f"to c.{end}") for end in ("data-00000-of-00001", "index"))
    assert events.index("checkpoint.data-00000-of-00001") < data < index
    assert tmp_path.name in events[data:index]
    assert any(each.startswith(".c.index") for each in events[:index])
    assert tmp_path.name in events[index:]


def test_no_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    with pytest.raises(CheckpointError, match="c: the checkpoint can't be written: No space left on device"):
        checkpoints.save(tmp_path / "c", dense())
    assert not [*tmp_path.iterdir()]


def test_values_are_those_of_numpy(tmp_path: Path) -> None:
    value = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    path = checkpoints.save(tmp_path / "c", {"v": tf.Variable(value)})
    found = tf.train.load_checkpoint(str(path)).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")
    np.testing.assert_array_equal(found, value)


def test_tensorflow_finds_the_latest_one(tmp_path: Path) -> None:
    """In the file `checkpoint`, as a `Saver` writes it; also among a Saver's own, in a folder that was moved since."""
    folder = tmp_path / "before"
    weight = tf.Variable(1.0, name="weight")
    paths = [str(checkpoints.save(folder / name, [weight], kind="name")) for name in ("a-1", 'b "2" ä', "a-1", "c-3")]
    assert tf.train.latest_checkpoint(str(folder)) == paths[-1]
    state = tf.train.get_checkpoint_state(str(folder))
    assert list(state.all_model_checkpoint_paths) == [paths[1], paths[0], paths[3]]
    assert b"/" not in (folder / "checkpoint").read_bytes()
    for file in folder.glob("c-3*"):
        file.unlink()
    v1.train.Saver([weight]).save(None, str(folder / "theirs"))
    moved = folder.rename(tmp_path / "after")
    checkpoints.save(moved / "d", [weight], kind="name")
    state = tf.train.get_checkpoint_state(str(moved))
    assert list(state.all_model_checkpoint_paths) == [str(moved / "theirs"), str(moved / "d")]
    checkpoints.save(moved / "object", [weight])
    checkpoints.convert(moved / "object", moved / "converted", kind="name")
    assert tf.train.latest_checkpoint(str(moved)) == str(moved / "object")
    checkpoints.convert(moved / "object", tmp_path / "new" / "converted", kind="name")
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == str(tmp_path / "new" / "converted")
    (tmp_path / "one").mkdir()
    checkpoints.save(tmp_path / "one", [weight], kind="name")
    latest = tf.train.latest_checkpoint(str(tmp_path / "one"))
    assert latest == str(tmp_path / "one" / "checkpoint")
    v1.train.Saver([weight]).restore(None, latest)
    checkpoints.restore(latest, [weight]).assert_consumed()


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("converted", [False, True])
def test_tensorflow_restores_the_latest_and_asserts_that_nothing_is_left(
    tmp_path: Path, converted: bool, root: bool
) -> None:
    """`restore` looks for a count of saves and `read` for none; both asserts pass, also in a session."""

    def made(value: float) -> tf.Module:
        module = tf.Module()
        module.w = tf.Variable([value], name="w")
        return module

    def checkpoint(module: tf.Module) -> Any:
        return tf.train.Checkpoint(module) if root else tf.train.Checkpoint(net=module)

    folder = tmp_path / "c"
    path = checkpoints.save(
        folder / "a", made(3.0) if root else {"net": made(3.0)}, kind="name" if converted else "object"
    )
    if converted:
        rename = {} if root else {"w": "net/w"}
        folder = tmp_path / "d"
        path = checkpoints.convert(path, folder / "a", kind="object", rename=rename).prefix
    assert tf.train.latest_checkpoint(str(folder)) == str(path)
    for function in ("restore", "read"):
        module = made(0.0)
        getattr(own := checkpoint(module), function)(str(path)).assert_consumed()
        assert float(module.w[0]) == 3
        assert own.save(str(tmp_path / function)).endswith("-1")
        checkpoints.restore(path, checkpoint(made(0.0))).assert_consumed()
        with tf.Graph().as_default(), v1.Session() as session:
            module = made(0.0)
            status = getattr(checkpoint(module), function)(str(path)).assert_consumed()
            status.initialize_or_restore(session)
            assert session.run(module.w).tolist() == [3]
