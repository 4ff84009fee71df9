"""The anonymous memory that each init method takes, up to the end of the first step, each in a process of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from embexp.system.machine import anonymous_bytes

ROWS, DIM = 1_000_000, 64
SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from embexp.initialization import placeholder_feed, variable_load
from embexp.initialization.method import AssignInSession
from embexp.initialization.scaffolding import scaffold
from embexp.system.machine import PeakMemory
from embexp.tables.table import EmbeddingTable
from embexp.tables.variables import scatter_rows

v1 = tf.compat.v1
method, path = sys.argv[1:]


def train(rows, source):
    if method == "eagerly":
        variable = tf.Variable(lambda: tf.raw_ops.Empty(shape=[rows, 64], dtype=tf.float32), trainable=False)
        variable_load.assign_whole(variable, source)
        variable.scatter_sub(tf.IndexedSlices(tf.ones([2, 64]), [0, rows - 1]))
        return variable.sparse_read([1, rows - 1]).numpy()
    if method == "slots":
        with tf.Graph().as_default(), v1.Session() as session:
            table = EmbeddingTable("item", rows, 64, slots={"momenta": 0.0, "velocities": 0.1})
            ids, ones = tf.constant([1, rows - 1]), tf.ones([2, 64])
            moved = [scatter_rows(variable, [0, rows - 1], ones) for variable in table.slots.values()]
            with tf.control_dependencies(moved):
                read = table.gather(ids, "velocities")
            session.run(v1.variables_initializer([table.variable, *table.slots.values()]))
            assert np.array_equal(session.run(read), [[np.float32(0.1)] * 64, [1] * 64])
            return session.run(table.gather(ids, "momenta"))
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        variable = tf.Variable(lambda: tf.raw_ops.Empty(shape=[rows, 64], dtype=tf.float32), trainable=False)
        step = tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=[0, rows - 1], updates=tf.ones([2, 64]))
        read = variable.sparse_read([1, rows - 1])
        if method == "scaffold":
            session = v1.train.MonitoredTrainingSession(scaffold=scaffold({variable: source}))
        else:
            assign = AssignInSession({variable: source}) if method == "assign" else None
            session = v1.Session()
            if method == "placeholder_feed":
                placeholder_feed.fill(session, {variable: source})
            else:
                session.run(v1.global_variables_initializer())
                assign.fill(session) if assign else variable_load.fill(session, {variable: source})
        with session:
            session.run(step)
            return session.run(read)


train(16, np.zeros((16, 64), np.float32))  # what TensorFlow itself takes for its first session
with PeakMemory() as memory:
    found = train(1_000_000, path)
matrix = np.load(path, mmap_mode="r")
assert np.array_equal(found, [[0] * 64, [1] * 64] if method == "slots" else [matrix[1], matrix[-1] - 1])
print(memory.added)
"""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("matrix") / "m.npy"
    np.save(path, np.random.default_rng(0).random((ROWS, DIM), dtype=np.float32))
    return path


@pytest.mark.slow
@pytest.mark.skipif(anonymous_bytes() is None, reason="this system has no /proc/self/status")
@pytest.mark.parametrize("method", ["placeholder_feed", "variable_load", "assign", "scaffold", "eagerly", "slots"])
def test_one_copy_and_no_more(matrix: Path, forked: Path, method: str) -> None:
    result = subprocess.run(
        [forked / "python", "-c", SCRIPT, method, str(matrix)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    table = ROWS * DIM * 4 * (2 if method == "slots" else 1)  # its rows are never written, so they take nothing
    # Below 1 it would have measured nothing: the first update makes the copy.
    assert 0.95 * table < int(result.stdout) <= 1.15 * table
