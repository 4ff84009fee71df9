"""The two programs by which object-based checkpoints are explained, with TensorFlow's classes and with ours.

A layer is saved, made again under another name, and restored before it is used: object-based checkpoints hold,
name-based ones break. The same in a graph of TensorFlow 1. And a process of TensorFlow 1 that knows nothing of embexp.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp import checkpoints
from embexp.errors import CheckpointError
from tests.strategies.simulation import test_checkpoints as simulated

v1 = tf.compat.v1
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Dense(tf.Module):
    """A `tf.Module` that makes its variables at its first call, under its own name."""

    def __call__(self, x: Any) -> Any:
        if not hasattr(self, "kernel"):
            with self.name_scope:
                self.kernel = tf.Variable(tf.random.normal([3, 4]), name="kernel")
                self.bias = tf.Variable(tf.random.normal([4]), name="bias")
        return x @ self.kernel + self.bias


LAYERS = {
    "Keras": lambda name: keras.layers.Dense(4, name=name, bias_initializer="normal"),
    "tf.Module": lambda name: Dense(name=name),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_renamed_layer_restored_before_use(tmp_path: Path, layer: Any) -> None:
    first = layer("first")
    wanted = first(X)
    path = tf.train.Checkpoint(dense=first).save(str(tmp_path / "tensorflow"))
    second = layer("second")
    status = tf.train.Checkpoint(dense=second).restore(path)
    np.testing.assert_array_equal(second(X), wanted)
    status.assert_consumed()

    for written in (path, str(checkpoints.save(tmp_path / "ours", {"dense": first}))):
        third = layer("third")
        account = checkpoints.restore(written, {"dense": third})
        assert len(account.waiting) == 2
        np.testing.assert_array_equal(third(X), wanted)
        account.assert_consumed()


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_by_name_a_renamed_layer_breaks(tmp_path: Path, layer: Any) -> None:
    first = layer("first")
    wanted = first(X)
    path = checkpoints.save(tmp_path / "c", first, kind="name")
    with pytest.raises(CheckpointError, match=r"nothing restored\n  2 extra in the checkpoint:\n    first/"):
        checkpoints.restore(path, layer("second")).assert_consumed()  # not built: nothing waits
    second = layer("second")
    second(X)
    before = second(X)
    v1_saver = v1.train.Saver({f"second/{each}": getattr(second, each) for each in ("kernel", "bias")})
    with pytest.raises((tf.errors.OpError, ValueError)):
        v1_saver.restore(None, str(path))
    with pytest.raises(CheckpointError, match="2 missing from the checkpoint"):
        checkpoints.restore(path, second).assert_complete()
    np.testing.assert_array_equal(second(X), before)
    checkpoints.restore(path, second, rename={"first": "second"}).assert_consumed()
    np.testing.assert_array_equal(second(X), wanted)


@pytest.mark.parametrize("restoring", ["TensorFlow", "ours"])
def test_the_same_in_a_graph(tmp_path: Path, restoring: str) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        first = Dense(name="first")
        y = first(tf.constant(X))
        session.run(v1.global_variables_initializer())
        wanted = session.run(y)
        if restoring == "TensorFlow":
            path = tf.train.Checkpoint(dense=first).write(str(tmp_path / "c"))
        else:
            path = checkpoints.save(tmp_path / "c", {"dense": first})
    with tf.Graph().as_default(), v1.Session() as session:
        second = Dense(name="second")
        if restoring == "TensorFlow":
            status: Any = tf.train.Checkpoint(dense=second).read(path)
        else:
            status = checkpoints.restore(path, {"dense": second})
            assert len(status.waiting) == 2
        y = second(tf.constant(X))
        status.assert_consumed().run_restore_ops()
        np.testing.assert_array_equal(session.run(y), wanted)


def test_in_a_graph_what_the_checkpoint_lacks_is_initialized(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path / "c", {"a": tf.Variable([1.0, 2.0]), "b": tf.Variable(3.0)})
    with tf.Graph().as_default(), v1.Session() as session:
        into = {
            name: v1.get_variable(name, shape, initializer=v1.constant_initializer(9), use_resource=resource)
            for name, shape, resource in [("a", [2], False), ("b", [4], True), ("c", [1], True)]
        }
        account = checkpoints.restore(path, into)
        assert [each.path for each in account.restored] == ["a"]
        assert [each.path for each in account.missing] == ["c"]
        assert str(account.mismatched[0]) == "b (b) float32 [4], in the checkpoint float32 []"
        account.initialize_or_restore(session)
        assert {name: value.tolist() for name, value in session.run(into).items()} == {
            "a": [1, 2],
            "b": [9] * 4,
            "c": [9],
        }
    with tf.Graph().as_default():
        variable = v1.get_variable("a", [2])
        with pytest.raises(CheckpointError, match="no session"):
            checkpoints.restore(path, {"a": variable}).run_restore_ops()


@pytest.mark.parametrize("at_hand", ["default", "given", "neither"])
@pytest.mark.parametrize("monitored", [False, True])
def test_in_a_session_nothing_is_restored_before_its_operations_run(
    tmp_path: Path, at_hand: str, monitored: bool
) -> None:
    """TensorFlow's asserts pass, and the session trains with initial values."""
    path = checkpoints.save(tmp_path / "c", {"a": tf.Variable([1.0, 2.0]), "n": tf.Variable(3)})
    with tf.Graph().as_default():
        into = {"a": v1.get_variable("a", [2]), "n": v1.get_variable("n", [], tf.int32, use_resource=False)}
        tf.train.Checkpoint(**into).read(str(path)).assert_consumed()
        account = checkpoints.restore(path, into).assert_consumed()  # no session has other values
        assert str(account) == f"{path}: 0 restored\n  2 to be restored by run_restore_ops"
        with contextlib.ExitStack() as stack:
            session = v1.train.MonitoredTrainingSession() if monitored else v1.Session()
            stack.callback(session.close)
            if at_hand == "default":
                stack.enter_context((session._tf_sess() if monitored else session).as_default())
            given = session if at_hand == "given" else None
            if not monitored:
                account.assert_consumed(given)
                session.run(v1.global_variables_initializer())
            for check in (account.assert_consumed, account.assert_complete, account.assert_existing_objects_matched):
                with pytest.raises(
                    CheckpointError, match=r"(?s)2 not restored in the session.*run_restore_ops.*a \(a\)"
                ):
                    check(given)
            assert account.run_restore_ops(session).assert_consumed(given) is account
            assert session.run(into["a"]).tolist() == [1, 2]
            assert str(account) == f"{path}: 2 restored"
        if not monitored:
            with v1.Session() as other:
                other.run(v1.global_variables_initializer())
                with pytest.raises(CheckpointError, match="2 not restored"):
                    account.assert_consumed()
                account.initialize_or_restore().assert_consumed()


TENSORFLOW_1 = """
import sys
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_v2_behavior()
with v1.variable_scope("net"):
    table = v1.get_variable("embedding_weights", [11, 3], initializer=v1.random_normal_initializer(seed=1))
    x = tf.reduce_sum(table, 0, keepdims=True)
    y = x @ v1.get_variable("dense/kernel", [3, 4])
step = v1.train.get_or_create_global_step()
train = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(y ** 2), step)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for _ in range(3):
        session.run(train)
    v1.train.Saver().save(session, sys.argv[1], global_step=step)
    for each in v1.global_variables():
        print(each.op.name, repr(float(session.run(tf.reduce_sum(tf.cast(each, tf.float64))))))
"""


@pytest.fixture(scope="module")
def tensorflow_1(forked: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """A checkpoint of a program that knows nothing of embexp, and the sum of each variable."""
    folder = tmp_path_factory.mktemp("v1")
    script = folder / "program.py"
    script.write_text(TENSORFLOW_1)
    done = subprocess.run(
        [forked / "python", str(script), str(folder / "model.ckpt")],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def sum_of(variable: Any) -> float:
    return float(np.sum(variable.numpy().astype(np.float64)))


def test_from_tensorflow_1(tensorflow_1: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    folder, sums = tensorflow_1
    shapes = dict(tf.train.list_variables(str(folder)))
    into = {
        name: tf.Variable(tf.zeros(shape, tf.int64 if name == "global_step" else tf.float32))
        for name, shape in shapes.items()
    }
    account = checkpoints.restore(folder, into)
    account.assert_consumed()
    assert {name: sum_of(variable) for name, variable in into.items()} == pytest.approx(sums)
    assert int(into["global_step"]) == 3

    layer = keras.layers.Embedding(11, 3, name="other")
    layer.build()
    checkpoints.restore(folder, layer, rename={"net/embedding_weights": layer.embeddings}).assert_complete()
    np.testing.assert_array_equal(layer.embeddings, into["net/embedding_weights"])

    converted = checkpoints.convert(folder, tmp_path / "objects", kind="object")
    net = tf.Module()
    net.net = tf.Module()
    net.net.embedding_weights = tf.Variable(tf.zeros([11, 3]))
    net.global_step = tf.Variable(0, dtype=tf.int64)
    status = tf.train.Checkpoint(net).read(str(converted.prefix))
    status.assert_existing_objects_matched().expect_partial()
    np.testing.assert_array_equal(net.net.embedding_weights, into["net/embedding_weights"])
    assert int(net.global_step) == 3


def test_a_tpu_embedding_of_tensorflow(tmp_path: Path) -> None:
    """On a processor and under a strategy of (simulated) TPUs, either kind of checkpoint in between."""
    with embexp.tpu_simulator(cores=1, hosts=2) as strategy:
        with strategy.scope():
            embedding = simulated.new_embedding()
        embedding.build(2)
        simulated.train(strategy, embedding)
        trained = simulated.values(embedding)
        theirs = tf.train.Checkpoint(embedding=embedding).save(str(tmp_path / "theirs"))
        ours = checkpoints.save(tmp_path / "ours", {"embedding": embedding})
    for path in (theirs, ours):
        on_cpu = simulated.new_embedding()
        account = checkpoints.restore(path, {"embedding": on_cpu})
        on_cpu.build()
        account.assert_consumed()
        assert len(account.restored) == 6
        simulated.assert_same(simulated.values(on_cpu), trained)
    path = checkpoints.save(tmp_path / "names", {"embedding": on_cpu}, kind="name")
    assert set(dict(tf.train.list_variables(str(path)))) == {
        *("one", "one/momenta", "one/velocities", "two", "two/accumulators", "two/linears")
    }
    for slots in on_cpu._variables.values():
        for variable in slots.values():
            variable.assign(variable * 2)
    other = simulated.new_embedding()
    other.build()
    checkpoints.restore(path, {"embedding": other}).assert_consumed()
    simulated.assert_same(simulated.values(other), trained)
    with embexp.tpu_simulator(cores=2) as strategy:
        with strategy.scope():
            embedding = simulated.new_embedding()
        embedding.build(2)
        checkpoints.restore(ours, {"embedding": embedding}).assert_consumed()
        simulated.assert_same(simulated.values(embedding), trained)
