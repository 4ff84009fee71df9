"""A tensor of a checkpoint as the source of a variable in one's own program, by every init method."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp import checkpoints, initialization
from embexp.errors import DataError
from embexp.initialization import method

v1 = tf.compat.v1
MATRIX = np.random.default_rng(0).standard_normal((50, 10)).astype(np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """By who wrote it: the path, and a name of the matrix."""
    folder = tmp_path_factory.mktemp("saved")
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("net/table", initializer=MATRIX, use_resource=True)
        v1.get_variable("parted", [50, 10], initializer=v1.ones_initializer(), partitioner=v1.fixed_size_partitioner(3))
        session.run(v1.global_variables_initializer())
        (folder / "saver").mkdir()
        v1.train.Saver().save(session, str(folder / "saver" / "c"))
        ours = checkpoints.save(folder / "names" / "c", [table], kind="name")
    other = {"net": {"rows": tf.Variable(MATRIX, name="table")}, "count": tf.Variable([1, 2])}
    objects = tf.train.Checkpoint(tf.train.Checkpoint(net=tf.train.Checkpoint(**other["net"]))).write(str(folder / "o"))
    weights = keras.layers.Embedding(50, 10)
    weights.build()
    weights.embeddings.assign(MATRIX)
    keras.Sequential([keras.Input((3,)), weights]).save_weights(folder / "k.weights.h5")
    return {
        "Saver": (folder / "saver" / "c", "net/table"),
        "names": (ours, "net/table"),
        "path": (Path(objects), "net/rows"),
        "key": (Path(objects), "net/rows/.ATTRIBUTES/VARIABLE_VALUE"),
        "variable": (Path(objects), "table"),
        "Keras": (folder / "k.weights.h5", "layers/embedding/vars/0"),
    }


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras, as it saves
@pytest.mark.parametrize("source", ["Saver", "names", "path", "key", "variable", "Keras"])
def test_every_init_method_takes_it(saved: dict[str, tuple[Path, str]], source: str) -> None:
    rows = checkpoints.tensor(*saved[source])
    assert (rows.rows, rows.dim, rows.dtype) == (50, 10, np.float32)
    np.testing.assert_array_equal(rows.read(7, 12), MATRIX[7:12])
    with tf.Graph().as_default():
        variables = [v1.get_variable(f"v{number}", [50, 10], use_resource=number > 1) for number in range(4)]
        local = v1.get_local_variable("local", [50, 10])
        scaffold = initialization.scaffold({variables[0]: rows, local: rows})
        with v1.train.MonitoredTrainingSession(scaffold=scaffold) as session:
            initialization.placeholder_feed.fill(session, {variables[1]: rows})
            initialization.variable_load.fill(session, {variables[2]: rows})
            for each in (*variables[:3], local):
                np.testing.assert_array_equal(session.run(each), MATRIX)
    eager = tf.Variable(tf.zeros([50, 10]))
    initialization.variable_load.assign_whole(eager, rows)
    np.testing.assert_array_equal(eager, MATRIX)
    eager.assign_add(tf.ones([50, 10]))
    np.testing.assert_array_equal(rows.read(0, 50), MATRIX)  # the file is as it was


def base_of(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def test_there_is_no_copy_in_memory(saved: dict[str, tuple[Path, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is mapped where it lies aligned; from elsewhere, a few rows at a time go into a temporary file."""
    for source in ("Saver", "names", "Keras"):
        assert isinstance(base_of(initialization.mapped(checkpoints.tensor(*saved[source]))), mmap.mmap)
    rows = checkpoints.tensor(*saved["Saver"])
    whole = rows.memory_map()
    assert whole is not None
    np.testing.assert_array_equal(whole, MATRIX)
    monkeypatch.setattr(method, "_CHUNK_BYTES", 400)
    monkeypatch.setattr(rows, "memory_map", lambda: None)
    asked: list[tuple[int, int]] = []
    read = rows.read
    monkeypatch.setattr(rows, "read", lambda start, stop: asked.append((start, stop)) or read(start, stop))
    np.testing.assert_array_equal(initialization.mapped(rows), MATRIX)
    assert {stop - start for start, stop in asked} == {10}


def test_what_is_no_matrix(saved: dict[str, tuple[Path, str]], tmp_path: Path) -> None:
    path, _ = saved["path"]
    assert checkpoints.tensor(saved["Saver"][0], "parted").memory_map() is None  # three slices
    np.testing.assert_array_equal(checkpoints.tensor(saved["Saver"][0], "parted").read(0, 50), np.ones([50, 10]))
    with pytest.raises(DataError, match="found no key 'net/row'; did you mean net/rows"):
        checkpoints.tensor(path, "net/row")
    two = checkpoints.save(
        tmp_path / "c", {name: tf.Variable(MATRIX, name="w") for name in "ab"} | {"n": tf.Variable(1.0)}
    )
    with pytest.raises(DataError, match=r"w is the name of several variables; give one of the keys a/.*, b/"):
        checkpoints.tensor(two, "w")
    with pytest.raises(
        DataError, match=r"n: found float32 \[\], expected floating-point numbers of shape \[rows, dim\]"
    ):
        checkpoints.tensor(two, "n")
    (data,) = tmp_path.glob("c.data*")
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(bytes(content))
    with tf.Graph().as_default(), v1.Session() as session, pytest.raises(DataError, match="damaged"):
        initialization.placeholder_feed.fill(session, {v1.get_variable("v", [50, 10]): checkpoints.tensor(two, "a")})
