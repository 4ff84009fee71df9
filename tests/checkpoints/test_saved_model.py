"""SavedModels whose tables are written in blocks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp.checkpoints import restoring, streaming
from embexp.errors import CheckpointError
from embexp.specs.tables import Combiner
from embexp.tables.row_engine import ExportedTable

ROWS, DIM = 1000, 3


class Table:
    """Rows in memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.rows, self.dim = values.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[np.ndarray], Path]:
    monkeypatch.setattr(streaming, "_BLOCK_BYTES", 4 * DIM * 64)

    def write(values: np.ndarray) -> Path:
        table = ExportedTable("words", *values.shape, combiner=Combiner.SUM)
        module = tf.Module()
        module.tables, module.other = {"words": table.variable}, tf.Variable([1.0, 2.0])
        called = tf.function(lambda ids: {"rows": table.gather(ids) + module.other[0]})
        signature = called.get_concrete_function(ids=tf.TensorSpec([None], tf.int64))
        (tmp_path / "model").mkdir()
        streaming.write_saved_model(
            module, {"serving_default": signature}, {"words": Table(values)}, tmp_path / "model"
        )
        return tmp_path / "model"

    return write


def test_tensorflow_loads_every_row(write: Callable[[np.ndarray], Path]) -> None:
    values = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    path = str(write(values))
    loaded = tf.saved_model.load(path)
    np.testing.assert_array_equal(loaded.tables["words"].numpy(), values)
    found = loaded.signatures["serving_default"](ids=tf.constant([999, 0], tf.int64))["rows"]
    np.testing.assert_array_equal(found.numpy(), values[[999, 0]] + 1)
    key = "tables/words/.ATTRIBUTES/VARIABLE_VALUE"
    assert dict(tf.train.list_variables(f"{path}/variables/variables"))[key] == [ROWS, DIM]
    assert tf.saved_model.contains_saved_model(path)


def test_sessions_load_it_as_servers_do(write: Callable[[np.ndarray], Path]) -> None:
    values = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)
    path, v1 = str(write(values)), tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        found = v1.saved_model.load(session, ["serve"], path).signature_def["serving_default"]
        feeds = {found.inputs["ids"].name: [5, 7]}
        np.testing.assert_array_equal(session.run(found.outputs["rows"].name, feeds), values[[5, 7]] + 1)


def test_its_fingerprint_is_that_of_the_whole_model(write: Callable[[np.ndarray], Path]) -> None:
    from tensorflow.core.protobuf import fingerprint_pb2
    from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

    path = write(np.ones((ROWS, DIM), np.float32))
    stored = tf.saved_model.experimental.read_fingerprint(str(path))
    again = fingerprint_pb2.FingerprintDef.FromString(fingerprinting.CreateFingerprintDef(str(path)))
    assert stored.checkpoint_hash == again.checkpoint_hash


MEMORY = """
import sys
import numpy as np
import tensorflow as tf
from pathlib import Path
from embexp.checkpoints import streaming
from embexp.specs.tables import Combiner
from embexp.system.machine import PeakMemory
from embexp.tables.row_engine import ExportedTable

class Table:
    rows, dim = 500_000, 100

    def read(self, start, stop):
        return np.full((stop - start, self.dim), start, np.float32)

def write(rows, path):
    table = ExportedTable("words", rows.rows, rows.dim, combiner=Combiner.SUM)
    module = tf.Module()
    module.tables = {"words": table.variable}
    looked_up = tf.function(lambda ids: {"rows": table.gather(ids)})
    signature = looked_up.get_concrete_function(ids=tf.TensorSpec([None], tf.int64))
    path.mkdir()
    streaming.write_saved_model(module, {"serving_default": signature}, {"words": rows}, path)

class Small(Table):
    rows = 10

write(Small(), Path(sys.argv[1]) / "small")  # what TensorFlow itself takes the first time
with PeakMemory() as memory:
    write(Table(), Path(sys.argv[1]) / "model")
print(memory.added)
"""


def test_a_table_is_never_in_memory(tmp_path: Path, forked: Path) -> None:
    done = subprocess.run([forked / "python", "-c", MEMORY, tmp_path], capture_output=True, text=True, check=True)
    added = int(done.stdout)
    table = 4 * 100 * 500_000
    assert (tmp_path / "model" / "variables" / "variables.data-00001-of-00002").stat().st_size == table
    assert added < table / 4


def dense(units: int, name: str) -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(units, name=name), keras.layers.BatchNormalization()])
    model.build((None, 2))
    return model


def test_the_weights_of_a_dense_part(tmp_path: Path) -> None:
    trained, optimizer = dense(3, "a"), keras.optimizers.Adam()
    for variable in trained.variables:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    optimizer.build(trained.trainable_variables)
    tf.train.Checkpoint(model=trained, optimizer=optimizer).write(str(tmp_path / "checkpoint"))
    like = dense(3, "another")
    restoring.restore_weights(like, tmp_path)
    for ours, theirs in zip(like.variables, trained.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(CheckpointError, match="does not fit the model"):
        restoring.restore_weights(dense(4, "a"), tmp_path)
    more = keras.Sequential([*trained.layers, keras.layers.Dense(2, name="extra")])
    more.build((None, 2))
    with pytest.raises(CheckpointError, match=r"does not fit the model: .*extra/kernel"):
        restoring.restore_weights(more, tmp_path)
