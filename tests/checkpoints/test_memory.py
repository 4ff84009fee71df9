"""The anonymous memory that checkpoints of a graph of TensorFlow 1 take, saved and restored, each in a new process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from embexp.system.machine import anonymous_bytes

ROWS, DIM = 500_000, 64
SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from embexp.checkpoints import streaming
from embexp.specs.optimizers import Adagrad
from embexp.system.machine import PeakMemory
from embexp.tables import optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.table import EmbeddingTable

v1 = tf.compat.v1
how, prefix = sys.argv[1], sys.argv[2]
with tf.Graph().as_default():
    table = EmbeddingTable("item", int(sys.argv[3]), 64, slots=optimizers.slots_of(Adagrad(learning_rate=0.1)))
    saver = streaming.saver_of(tf.train.Checkpoint(embedding=TableCheckpoint([table])))
    moved = [
        tf.raw_ops.ResourceScatterAdd(resource=each.handle, indices=[0, 7], updates=tf.ones([2, 64]))
        for each in (table.variable, table.slots["accumulators"])
    ]
    touched = tf.raw_ops.ResourceScatterAdd(
        resource=table.variable.handle, indices=tf.range(table.rows), updates=tf.ones([table.rows, 64])
    )
    values = [tf.raw_ops.ResourceGather(resource=each.handle, indices=[0, 7], dtype=tf.float32)
              for each in (table.variable, table.slots["accumulators"])]
    with v1.Session() as session:
        if how == "new":  # as an Estimator does it: before any variable is initialized
            with PeakMemory() as memory:
                saver.complete_saver().restore(session, prefix)
            added = memory.added
        else:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            # A new table's zeros are memory that no one has touched, which counts only once it is written.
            session.run(touched)
            session.run(moved)
            with PeakMemory() as saving:
                saver.save(session, prefix)
            np.save(prefix + ".npy", session.run(values))
            session.run(moved)
            with PeakMemory() as memory:
                saver.restore(session, prefix)
            added = max(memory.added, saving.added)
        assert np.array_equal(session.run(values), np.load(prefix + ".npy"))
print(added)
"""


@pytest.mark.slow
@pytest.mark.skipif(anonymous_bytes() is None, reason="this system has no /proc/self/status")
def test_one_copy_and_no_more(tmp_path: Path, forked: Path) -> None:
    def added(how: str) -> float:
        """Copies of the table and its slot that saving and restoring, or restoring alone, adds to a process."""
        command = [forked / "python", "-c", SCRIPT, how, str(tmp_path / "checkpoint"), str(ROWS)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return int(result.stdout) / (2 * ROWS * DIM * 4)

    assert added("trained") <= 0.15
    # Below 0.9 it would have measured nothing.
    assert 0.9 <= added("new") <= 1.15
