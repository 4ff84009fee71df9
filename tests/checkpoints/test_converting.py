"""From one kind to the other and back, by the index alone; TensorFlow's own classes read both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp import checkpoints
from embexp.checkpoints.saving import Kind
from embexp.errors import CheckpointError

v1 = tf.compat.v1
END = "/.ATTRIBUTES/VARIABLE_VALUE"


def stored(path: Path | str) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(path))
    shapes = reader.get_variable_to_shape_map()
    return {key: reader.get_tensor(key) for key in shapes if key != "_CHECKPOINTABLE_OBJECT_GRAPH"}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key, strict=True)


EDGES = st.text(st.sampled_from([*"ab/. S_0", "ü", "\\", "*", "[", "-", "雪"]), min_size=1, max_size=5)
VALUES = st.integers(0, 3).flatmap(
    lambda size: st.sampled_from([np.arange(size, dtype=dtype) + 1 for dtype in ("float32", "int64", "float16")])
)
TREES = st.recursive(VALUES, lambda tree: st.dictionaries(EDGES, tree, min_size=1, max_size=3), max_leaves=8)


def objects(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tf.Variable(tree)
    root = tf.__internal__.tracking.AutoTrackable()
    for edge, child in tree.items():
        root._track_trackable(objects(child), edge)
    return root


def zeros(tree: Any) -> Any:
    return {edge: zeros(child) for edge, child in tree.items()} if isinstance(tree, dict) else np.zeros_like(tree)


def leaves(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], np.ndarray]]:
    if not isinstance(tree, dict):
        return [(path, tree)]
    return [leaf for edge, child in tree.items() for leaf in leaves(child, (*path, edge))]


@given(st.dictionaries(EDGES, TREES, min_size=1, max_size=3))
def test_any_tree_of_objects_there_and_back(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("tree")
    root = objects(tree)
    tf.train.Checkpoint(root).write(str(folder / "objects"))
    before = stored(folder / "objects")
    to_names = checkpoints.convert(folder / "objects", folder / "names", kind="name")
    assert to_names.was is Kind.OBJECT
    assert len(set(to_names.names.values())) == len(before) == len(leaves(tree))
    by_name = stored(folder / "names")
    same({to_names.names[key.removesuffix(END)]: value for key, value in before.items()}, by_name)
    back = {name: key for key, name in to_names.names.items()}
    assert checkpoints.convert(folder / "names", folder / "back", kind="object", rename=back).was is Kind.NAME
    same(stored(folder / "back"), before)
    fresh = objects(zeros(tree))
    tf.train.Checkpoint(fresh).read(str(folder / "back")).assert_consumed()
    path = tf.train.Checkpoint(fresh).write(str(folder / "again"))
    same(stored(path), before)


NAMES = st.lists(
    st.text(st.sampled_from([*"abc/._-0", "ü", " "]), min_size=1, max_size=6), min_size=1, max_size=6, unique=True
)


@given(NAMES)
def test_any_names_there_and_back(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    folder = tmp_path_factory.mktemp("names")
    variables = {name: tf.Variable(float(number)) for number, name in enumerate(names)}
    v1.train.Saver(variables).save(None, str(folder / "names"), write_meta_graph=False, write_state=False)
    before = stored(folder / "names")
    converted = checkpoints.convert(folder / "names", folder / "objects", kind="object")
    same({converted.names[name] + END: value for name, value in before.items()}, stored(folder / "objects"))
    tree: dict[str, Any] = {}
    for name in names:
        place = tree
        for part in name.split("/"):
            place = place.setdefault(part, {})
    checkpoints.convert(folder / "objects", folder / "back", kind="name")
    same(stored(folder / "back"), before)
    for variable in variables.values():
        variable.assign(-1.0)
    v1.train.Saver(variables).restore(None, str(folder / "back"))
    assert [float(each) for each in variables.values()] == list(range(len(names)))


def test_a_program_of_tensorflow_1_into_objects(tmp_path: Path) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("net/l1"):
            v1.get_variable("kernel", initializer=tf.ones([3, 2]), use_resource=True)
            v1.get_variable("bias", initializer=tf.fill([2], 2.0), use_resource=True)
        v1.get_variable("parts", [6, 2], partitioner=v1.fixed_size_partitioner(3), initializer=v1.ones_initializer())
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"), write_state=False, global_step=5)
    checkpoints.convert(tmp_path / "model.ckpt-5", tmp_path / "objects", kind="object")

    root, net, layer = (tf.Module() for _ in range(3))
    root.net, net.l1 = net, layer
    layer.kernel, layer.bias = tf.Variable(tf.zeros([3, 2])), tf.Variable(tf.zeros([2]))
    root.parts = tf.Variable(tf.zeros([6, 2]))
    tf.train.Checkpoint(root).read(str(tmp_path / "objects")).assert_consumed()
    assert float(tf.reduce_sum(layer.kernel)) == 6
    assert layer.bias.numpy().tolist() == [2, 2]
    assert float(tf.reduce_sum(root.parts)) == 12
    root.parts.assign(tf.zeros([6, 2]))
    checkpoints.restore(tmp_path / "objects", root).assert_consumed()
    assert float(tf.reduce_sum(root.parts)) == 12


def test_names_are_given_by_a_mapping(tmp_path: Path) -> None:
    """By key, and what has no name of its own, or shares it, by its object path."""
    parts = {each: {"kernel": tf.Variable(1.0, name="kernel"), "own": tf.Variable(2.0, name=each)} for each in "ab"}
    path = checkpoints.save(tmp_path / "c", parts)
    converted = checkpoints.convert(path, tmp_path / "names", kind="name")
    assert converted.names == {"a/kernel": "a/kernel", "a/own": "a", "b/kernel": "b/kernel", "b/own": "b"}
    again = checkpoints.convert(path, tmp_path / "given", kind="name", rename={"a/kernel": "x", "b/own": "y/z"})
    assert set(stored(again.prefix)) == {"x", "a", "b/kernel", "y/z"}


def test_objects_move_and_keep_their_graph(tmp_path: Path) -> None:
    net = tf.Module()
    net.old = tf.Module()
    net.old.w = net.shared = tf.Variable([1.0, 2.0])
    path = checkpoints.save(tmp_path / "c", net)
    moved = checkpoints.convert(path, tmp_path / "moved", kind="object", rename={"old": "new"})
    other = tf.Module()
    other.new = tf.Module()
    other.new.w = other.shared = tf.Variable([0.0, 0.0])
    tf.train.Checkpoint(other).read(str(moved.prefix)).assert_consumed()
    assert other.shared.numpy().tolist() == [1, 2]
    by_name = checkpoints.convert(path, tmp_path / "n", kind="name", rename={"shared": "w"})
    same(
        stored(checkpoints.convert(by_name.prefix, tmp_path / "m", kind="name", rename={"w": "x/y"}).prefix),
        {"x/y": np.array([1, 2], np.float32)},
    )


def test_variables_of_a_saved_model(tmp_path: Path) -> None:
    net = tf.Module()
    net.w = tf.Variable([1.0, 2.0], name="weights")
    tf.saved_model.save(net, str(tmp_path / "model"))
    checkpoints.convert(tmp_path / "model", tmp_path / "names", kind="name")
    assert stored(tmp_path / "names")["weights"].tolist() == [1, 2]
    other = tf.Module()
    other.w = tf.Variable([0.0, 0.0])
    checkpoints.restore(tmp_path / "model", other).assert_complete()
    assert other.w.numpy().tolist() == [1, 2]


def test_all_faults_at_once(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path / "c", {name: tf.Variable(0.0) for name in "abcd"}, kind="name")
    with pytest.raises(CheckpointError, match="it has no x; it has no y; the new name of a is empty"):
        checkpoints.convert(path, tmp_path / "d", kind="object", rename={"x": "a", "y": "b", "a": ""})
    with pytest.raises(CheckpointError, match=r"a and b would be z; c and d would be w\. Give them other names"):
        checkpoints.convert(path, tmp_path / "d", kind="name", rename={"a": "z", "b": "z", "c": "w", "d": "w"})
    with pytest.raises(CheckpointError, match="kind = 'both': must be one of 'object', 'name'"):
        checkpoints.convert(path, tmp_path / "d", kind="both")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["c.data-00000-of-00001", "c.index", "checkpoint"]
