"""Every init method, in real sessions of graphs: TensorFlow 1's two kinds of variables, every kind of source."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from embexp import initialization
from embexp.errors import RunError
from embexp.initialization import constant, placeholder_feed, variable_load
from embexp.initialization.method import AssignInSession, Source
from embexp.initialization.scaffolding import scaffold
from embexp.specs.inits import ConstantInGraph

v1 = tf.compat.v1
MATRIX = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)


class Read:
    """Rows that can only be read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape
        self.most = 0

    def read(self, start: int, stop: int) -> np.ndarray:
        self.most = max(self.most, stop - start)
        return self.values[start:stop]


WORDS = [f"w{row}" for row in range(50)]


def text(path: Path, step: int = 1) -> Path:
    """GloVe's form, its rows in another order for a step of -1; written so that no digit is lost."""
    lines = [f"{word} {' '.join(map(repr, row))}" for word, row in zip(WORDS, MATRIX.tolist(), strict=True)]
    path.write_text("\n".join(lines[::step]) + "\n")
    return path


def parquet(path: Path) -> Path:
    pq.write_table(pa.table({"word": WORDS, "vector": MATRIX.tolist()}), path)
    return path


def sources(folder: Path) -> dict[str, Source]:
    np.save(folder / "m.npy", MATRIX)
    np.save(folder / "half.npy", MATRIX.astype(np.float64))
    return {
        "array": MATRIX.copy(),
        "read-only array": np.broadcast_to(MATRIX, MATRIX.shape),
        "mapped r": np.load(folder / "m.npy", mmap_mode="r"),
        "mapped c": np.load(folder / "m.npy", mmap_mode="c"),
        "path": folder / "m.npy",
        "path of float64": str(folder / "half.npy"),
        "rows": Read(MATRIX),
        "lists": MATRIX.tolist(),
        "frame": pa.table({f"x{place}": MATRIX[:, place] for place in range(6)}),
        "tensor": tf.constant(MATRIX),
        "text": text(folder / "glove.txt"),
        "words": initialization.read_vectors(text(folder / "turned.vec", -1), vocabulary=WORDS),
        "parquet": parquet(folder / "m.parquet"),
    }


def table(shape: tuple[int, int], *, resource: bool = True, name: str = "item", **more: Any) -> Any:
    if not resource:
        return v1.Variable(lambda: tf.zeros(shape), use_resource=False, name=name, **more)
    return tf.Variable(lambda: tf.raw_ops.Empty(shape=shape, dtype=tf.float32), name=name, trainable=False, **more)


Way = Callable[[Any, Source], Callable[[], Any]]


def by_placeholder_feed(variable: Any, source: Source) -> Any:
    session = v1.Session()
    placeholder_feed.fill(session, {variable: source})
    return session


def by_variable_load(variable: Any, source: Source) -> Any:
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    variable_load.fill(session, {variable: source})
    return session


def by_assign(variable: Any, source: Source) -> Any:
    method = AssignInSession({variable: source}, chunk_bytes=7 * 24)
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    method.fill(session)
    return session


def by_scaffold(variable: Any, source: Source) -> Any:
    return v1.train.MonitoredTrainingSession(scaffold=scaffold({variable: source}))


METHODS = [by_placeholder_feed, by_variable_load, by_assign, by_scaffold]


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "ref"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_every_value_arrives_from_every_source(tmp_path: Path, method: Any, resource: bool) -> None:
    for name, source in sources(tmp_path).items():
        with tf.Graph().as_default():
            variable = table(MATRIX.shape, resource=resource)
            with method(variable, source) as session:
                np.testing.assert_array_equal(session.run(variable), MATRIX, err_msg=name)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("axis", [0, 1], ids=["rows", "columns"])
@pytest.mark.parametrize("listed", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_each_part_of_a_partitioned_variable_gets_its_rows(method: Any, listed: bool, axis: int) -> None:
    with tf.Graph().as_default():
        by = v1.fixed_size_partitioner(4, axis)  # 50 rows do not divide by 4, nor do 6 columns
        variable = v1.get_variable("item", MATRIX.shape, use_resource=True, partitioner=by)
        whole = tf.convert_to_tensor(variable)
        with method(tuple(variable) if listed else variable, MATRIX) as session:
            np.testing.assert_array_equal(session.run(whole), MATRIX)


def test_a_partitioned_constant_and_parts_without_a_partitioner() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        by = v1.fixed_size_partitioner(3)
        variable = v1.get_variable("item", MATRIX.shape, partitioner=by, initializer=constant.initial_value(MATRIX))
        session.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(tf.convert_to_tensor(variable)), MATRIX)
    parts = [table((30, 6)), table((20, 6))]
    variable_load.assign_whole(parts, MATRIX)
    np.testing.assert_array_equal(np.concatenate([part.numpy() for part in parts]), MATRIX)


def test_shapes_that_differ_are_named_all_at_once() -> None:
    with tf.Graph().as_default():
        by = v1.fixed_size_partitioner(2)
        fills = {
            v1.get_variable("turned", [6, 50]): MATRIX,
            v1.get_variable("short", [40, 6], partitioner=by): MATRIX,
            v1.get_variable("wide", [50, 7]): MATRIX.tolist(),
        }
        with pytest.raises(ValueError, match="transpose the source") as caught:
            scaffold(fills)
    turned, short, wide = str(caught.value).splitlines()
    assert "'turned:0' is 6 × 50, but its source is 50 × 6" in turned
    assert "'short' is 40 × 6, but its source is 50 × 6" in short
    assert "such as matrix[:40]" in short
    assert "'wide:0' is 50 × 7, but its source is 50 × 6: create the variable with shape [50, 6]" in wide


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([[1.0, 2.0], [3.0]], "the list: row 1 has 1 numbers, row 0 has 2; give all rows the same length"),
        ([["a"]], "the list: found <U1 of shape"),
        ({"a": [1.0]}, "found a dict as the values of a variable, expected a matrix, a list of lists"),
        (pa.table({"word": ["a"], "x": [1.0]}), "the data frame: found columns that are not numeric: 'word'; select"),
        (pa.table({"x": [1.0, None]}), "the data frame: column 'x' has missing values; fill them"),
    ],
    ids=["ragged", "text", "dict", "words", "gaps"],
)
def test_what_is_no_source(source: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        initialization.mapped(source)


def test_a_data_frame_of_pandas_with_an_index_of_its_own() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(MATRIX, index=WORDS)
    np.testing.assert_array_equal(initialization.mapped(frame), MATRIX)


def test_words_that_a_file_lacks(tmp_path: Path) -> None:
    path = text(tmp_path / "glove.txt")
    with pytest.raises(ValueError, match=r"lacks 2 of the 3 words .*, such as 'new', 'W7'; set missing=0\.0"):
        initialization.read_vectors(path, vocabulary=["w3", "new", "W7"])
    found = initialization.read_vectors(path, vocabulary=["w3", "new", "W7"], missing=0.5, match="lower")
    np.testing.assert_array_equal(initialization.mapped(found), [MATRIX[3], np.full(6, 0.5), MATRIX[7]])
    np.save(tmp_path / "m.npy", MATRIX)
    with pytest.raises(
        ValueError, match="has no words to match with a vocabulary; to take its rows by position, remove vocabulary"
    ):
        initialization.read_vectors(tmp_path / "m.npy", vocabulary=["w3"])


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "ref"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_a_variable_of_16_bits_gets_the_nearest_numbers(method: Any, resource: bool) -> None:
    for kind in (tf.bfloat16, tf.float16):
        with tf.Graph().as_default():
            variable = v1.get_variable("item", MATRIX.shape, kind, v1.zeros_initializer(), use_resource=resource)
            with method(variable, MATRIX) as session:
                found = session.run(variable)
        expected = MATRIX.astype(kind.as_numpy_dtype)
        np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("kind", ["Variable", "get_variable", "ref"])
def test_a_constant(tmp_path: Path, kind: str) -> None:
    for name, source in sources(tmp_path).items():
        with tf.Graph().as_default():
            value = constant.initial_value(source)
            if kind == "Variable":
                variable = tf.Variable(value)
            else:
                variable = v1.get_variable("item", MATRIX.shape, initializer=value, use_resource=kind != "ref")
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                np.testing.assert_array_equal(session.run(variable), MATRIX, err_msg=name)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_an_update_changes_the_variable_and_never_the_source(tmp_path: Path, method: Any) -> None:
    np.save(tmp_path / "m.npy", MATRIX)
    source = np.load(tmp_path / "m.npy", mmap_mode="r+")
    with tf.Graph().as_default():
        variable = table(MATRIX.shape)
        changed = variable.scatter_nd_update([[3]], tf.ones([1, 6])).op
        with method(variable, source) as session:
            session.run(changed)
            expected = MATRIX.copy()
            expected[3] = 1
            np.testing.assert_array_equal(session.run(variable), expected)
    np.testing.assert_array_equal(source, MATRIX)


@pytest.mark.parametrize("fill", [placeholder_feed.fill, variable_load.fill], ids=["placeholder_feed", "variable_load"])
def test_pairs_in_a_monitored_session_outside_the_graph(fill: Any) -> None:
    graph = tf.Graph()
    with graph.as_default():
        first, second = table((50, 6), name="a"), table((50, 6), name="b")
        session = v1.train.MonitoredTrainingSession()
    with session:
        # Eager execution is on here, where variables can't be keys.
        fill(session, [(first, MATRIX), (second, 2 * MATRIX)])
        np.testing.assert_array_equal(session.run([first, second]), [MATRIX, 2 * MATRIX])


def test_chunks_are_no_larger_than_asked_for_and_leave_the_rest_alone() -> None:
    source = Read(np.random.default_rng(2).normal(size=(1000, 6)).astype(np.float32))
    with tf.Graph().as_default():
        variable = table((1000, 6))
        method = AssignInSession({variable: source}, chunk_bytes=100 * 24)
        v1.get_default_graph().finalize()
        with v1.Session() as session:
            session.run(variable.initializer)
            method.fill(session)
            assert source.most == 48, "half of 100 rows, and a multiple of 16"
            np.testing.assert_array_equal(session.run(variable), source.values)
        with v1.Session() as another:
            another.run(variable.initializer)
            method.fill(another)
            np.testing.assert_array_equal(another.run(variable), source.values)
    with pytest.raises(ValueError, match="chunk_bytes is 0, expected at least 1"):
        AssignInSession({}, 0)


def test_the_eager_meaning_of_load_takes_the_memory_until_the_first_update(tmp_path: Path) -> None:
    for name, source in sources(tmp_path).items():
        variable = table(MATRIX.shape)
        variable_load.assign_whole(variable, source)
        np.testing.assert_array_equal(variable.numpy(), MATRIX, err_msg=name)
    source = np.load(tmp_path / "m.npy", mmap_mode="c")
    variable_load.assign_whole(variable, source)
    source[4] = 9  # shows that nothing was copied
    np.testing.assert_array_equal(variable.numpy()[4], np.full(6, 9))
    variable.scatter_update(tf.IndexedSlices(tf.ones([1, 6]), [3]))
    np.testing.assert_array_equal(source[3], MATRIX[3])
    np.testing.assert_array_equal(variable.numpy()[3], np.ones(6))


def test_the_eager_one_keeps_alive_what_it_shows() -> None:
    variable = table(MATRIX.shape)
    variable_load.assign_whole(variable, Read(MATRIX))
    junk = [np.random.default_rng(0).normal(size=MATRIX.shape) for _ in range(100)]
    np.testing.assert_array_equal(variable.numpy(), MATRIX)
    del junk


def graph_bytes(rows: int, method: str, *, monitored: bool = False) -> int:
    matrix = np.zeros((rows, 1000), np.float32)
    with tf.Graph().as_default() as graph:
        v1.train.get_or_create_global_step()
        variable = (
            tf.Variable(constant.initial_value(matrix), name="item") if method == "constant" else table(matrix.shape)
        )
        match method:
            case "constant":
                open_session = v1.train.MonitoredTrainingSession if monitored else v1.Session
                open_session().close()
            case "placeholder_feed":
                by_placeholder_feed(variable, matrix).close()
            case "variable_load":
                by_variable_load(variable, matrix).close()
            case "assign":
                by_assign(variable, matrix).close()
            case "scaffold":
                by_scaffold(variable, matrix).close()
        return int(graph.as_graph_def().ByteSize())


@pytest.mark.parametrize("method", ["placeholder_feed", "variable_load", "assign", "scaffold"])
def test_graphs_hold_nothing_of_the_matrix_but_for_a_constant(method: str) -> None:
    monitored = method == "scaffold"  # brings a saver and reports, thousands of bytes
    small, large = graph_bytes(10, method), graph_bytes(1000, method)
    # 990,000 values more; the numbers 10 and 1000 themselves take one byte or two wherever they stand.
    assert 0 <= large - small <= 40
    # The matrix is 4,000,000 bytes; the operations in its place are a few hundred.
    assert graph_bytes(1000, "constant", monitored=monitored) - large >= 3_999_000


class Untouchable:
    """Rows that must not be read."""

    def __init__(self, rows: int, dim: int) -> None:
        self.rows, self.dim = rows, dim

    def read(self, start: int, stop: int) -> np.ndarray:
        raise AssertionError("read")

    def memory_map(self) -> np.ndarray:
        raise AssertionError("mapped")


def test_a_constant_of_two_gigabytes_is_refused_before_it_is_read() -> None:
    with pytest.raises(
        RunError, match=r"init=constant: a graph must be smaller than 2 GiB .*found 2,147,483,648 bytes"
    ) as e:
        constant.initial_value(Untouchable(2**23, 64))
    assert "8388608 × 64" in str(e.value)
    assert "placeholder_feed, scaffold, variable_load or assign" in str(e.value)
    constant.initial_value(Untouchable(2**23 - 2**14, 64))
    ConstantInGraph.check({"user": (2**22, 64), "item": (2**21, 64)})
    with pytest.raises(
        RunError, match=r"found 2,147,483,648 bytes of constants \(user 4194304 × 64, item 4194304 × 64\)"
    ):
        ConstantInGraph.check({"user": (2**22, 64), "item": (2**22, 64)})


@pytest.mark.parametrize(
    "fill",
    [
        lambda fills: placeholder_feed.fill(v1.Session(), fills),
        lambda fills: variable_load.fill(v1.Session(), fills),
        AssignInSession,
        scaffold,
    ],
    ids=["placeholder_feed", "variable_load", "assign", "scaffold"],
)
def test_what_does_not_fit_is_refused_before_anything_is_done(fill: Any) -> None:
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="variable 'item:0' is 50 × 7, but its source is 50 × 6"):
            fill({table((50, 7)): MATRIX})
        with pytest.raises(ValueError, match="variable 'wide:0' is float64, expected float32, bfloat16 or float16"):
            fill({tf.Variable(np.zeros((50, 6), np.float64), name="wide"): MATRIX})


def test_public_names() -> None:
    assert initialization.scaffold is scaffold
    assert initialization.AssignInSession is AssignInSession
    assert initialization.placeholder_feed is placeholder_feed
    assert set(initialization.__all__) <= set(dir(initialization))
    assert all(getattr(initialization, name) is not None for name in initialization.__all__)
    with pytest.raises(AttributeError, match=r"module 'embexp\.initialization' has no attribute 'nothing'"):
        _ = initialization.nothing
