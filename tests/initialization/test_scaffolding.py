"""The scaffold: what is filled once, what in every session, and what no checkpoint holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.initialization.scaffolding import scaffold

v1 = tf.compat.v1
MATRIX = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)


class Counted:
    """Rows that count how often they were read from."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape
        self.reads = 0

    def read(self, start: int, stop: int) -> np.ndarray:
        self.reads += 1
        return self.values[start:stop]


def table(name: str, *, local: bool = False) -> Any:
    collection = v1.GraphKeys.LOCAL_VARIABLES if local else v1.GraphKeys.GLOBAL_VARIABLES
    return v1.get_variable(
        name,
        MATRIX.shape,
        initializer=v1.zeros_initializer(),
        use_resource=True,
        trainable=False,
        collections=[collection],
    )


class Program:
    """A graph with a trainable table, one kept by reference, and a step."""

    def __init__(self, trainable: Counted, kept: Counted, **more: Any) -> None:
        self.trainable, self.kept = table("trainable"), table("kept", local=True)
        self.scaffold = scaffold({self.trainable: trainable, self.kept: kept}, **more)
        # Variables that are made after the scaffold are initialized like all others.
        self.late, self.late_local = (
            v1.get_variable("late", [], initializer=v1.ones_initializer()),
            v1.get_variable(
                "late_local", [], initializer=v1.ones_initializer(), collections=[v1.GraphKeys.LOCAL_VARIABLES]
            ),
        )
        step = v1.train.get_or_create_global_step()
        moved = self.trainable.scatter_nd_add([[3]], tf.gather(self.kept.read_value(), [3])).op
        self.step = tf.group(moved, step.assign_add(1))


def test_train_train_again_restore(tmp_path: Path) -> None:
    trainable, kept = Counted(MATRIX), Counted(2 * MATRIX)
    expected = MATRIX.copy()
    for round_ in range(3):
        with tf.Graph().as_default():
            program = Program(trainable, kept)
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), scaffold=program.scaffold, log_step_count_steps=None
            ) as session:
                values = session.run([program.trainable, program.kept, program.late, program.late_local])
                np.testing.assert_array_equal(values[0], expected)
                np.testing.assert_array_equal(values[1], 2 * MATRIX)
                assert values[2:] == [1, 1]
                session.run(program.step)
        expected[3] += 2 * MATRIX[3]
        assert trainable.reads == 1, "filled in the first session only"
        assert kept.reads == round_ + 1
    stored = dict(tf.train.list_variables(str(tmp_path)))
    assert stored == {"trainable": [50, 6], "late": [], "global_step": []}
    assert sum(path.stat().st_size for path in tmp_path.glob("*.data*")) < 5 * (MATRIX.nbytes + 100)


def test_it_can_be_copied_into_another_one() -> None:
    with tf.Graph().as_default():
        program = Program(Counted(MATRIX), Counted(2 * MATRIX))
        copied = v1.train.Scaffold(copy_from_scaffold=program.scaffold)
        with v1.train.MonitoredTrainingSession(scaffold=copied) as session:
            values = session.run([program.trainable, program.kept, program.late, program.late_local])
    np.testing.assert_array_equal(values[0], MATRIX)
    np.testing.assert_array_equal(values[1], 2 * MATRIX)
    assert values[2:] == [1, 1]


def test_the_initial_value_is_never_computed() -> None:
    def never(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), ["computed"])]):
            return tf.zeros(shape, dtype)

    with tf.Graph().as_default():
        made = [
            v1.get_variable(name, MATRIX.shape, initializer=never, use_resource=True, collections=[collection])
            for name, collection in [("a", v1.GraphKeys.GLOBAL_VARIABLES), ("b", v1.GraphKeys.LOCAL_VARIABLES)]
        ]
        with v1.train.MonitoredTrainingSession(scaffold=scaffold({made[0]: MATRIX, made[1]: 2 * MATRIX})) as session:
            np.testing.assert_array_equal(session.run(made), [MATRIX, 2 * MATRIX])


def test_functions_and_operations_of_ones_own() -> None:
    seen = []

    def init_fn(this: Any, session: Any) -> None:
        seen.append((this, session.run(program.trainable)))

    with tf.Graph().as_default():
        fed = v1.placeholder(tf.float32, [])
        own = v1.get_variable("own", [], collections=["OWN"], use_resource=True)
        program = Program(
            Counted(MATRIX),
            Counted(2 * MATRIX),
            init_fn=init_fn,
            local_init_op=tf.group(own.assign(fed), v1.variables_initializer([])),
            local_init_feed_dict={fed: 5.0},
            ready_op=tf.constant([], tf.string),
            saver=v1.train.Saver([own]),
        )
        with v1.train.MonitoredTrainingSession(scaffold=program.scaffold) as session:
            assert session.run(own) == 5
            np.testing.assert_array_equal(session.run(program.kept), 2 * MATRIX)
    [(this, values)] = seen
    assert this is program.scaffold
    np.testing.assert_array_equal(values, MATRIX)


def test_refused() -> None:
    with tf.Graph().as_default():
        stray = v1.get_variable("stray", MATRIX.shape, collections=["OWN"])
        with pytest.raises(ValueError, match="variable 'stray:0' is in neither GLOBAL_VARIABLES nor LOCAL_VARIABLES"):
            scaffold({stray: MATRIX})
        with pytest.raises(ValueError, match="copy_from_scaffold is not supported"):
            scaffold({}, copy_from_scaffold=v1.train.Scaffold())
