"""Checkpoints of TensorFlow's first format, as its own savers write them, read wherever those of the second are."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp import checkpoints
from embexp.checkpoints import contents, difference
from embexp.errors import DataError
from embexp.system.tensor_bundle import first_format
from embexp.vectors.file_source import open_vectors
from tests.checkpoints import made

v1 = tf.compat.v1
RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.normal(size=(11, 5)).astype(np.float32)
VALUES: dict[str, Any] = {
    "float32": MATRIX,
    "float64": RANDOM.normal(size=(3, 2)),
    "int32": np.array([0, 1, -1, 2**31 - 1, -(2**31), 127, 128, 300], np.int32),
    "int64": np.array([[0, -1], [2**63 - 1, -(2**63)], [2**40, -(2**33)]], np.int64),
    "int16": np.array([-300, 300, 0], np.int16),
    "int8": np.array([-128, 127, -1], np.int8),
    "uint8": np.array([0, 255], np.uint8),
    "uint16": np.array([0, 65535], np.uint16),
    "bool": np.array([[True, False], [False, True]]),
    "float16": np.array([1.5, -0.0, 65504], np.float16),
    "complex64": np.array([1 + 2j, -3j], np.complex64),
    "complex128": np.array([[1 + 2j], [-3j]], np.complex128),
    "string": np.array([b"", b"one", "zwölf".encode(), b"\x00\xff" * 200], object),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embexp"


def save(prefix: Path, values: dict[str, Any], *, version: int = 1, parts: int = 1, axis: int = 0, **more: Any) -> Path:
    """What a `Saver` writes, with all matrices of float32 in so many parts."""
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            partitioned = parts > 1 and value.dtype == np.float32 and value.size
            v1.get_variable(
                name,
                shape=value.shape,
                dtype=tf.string if value.dtype == object else tf.as_dtype(value.dtype),
                initializer=made.initializer(value),
                partitioner=v1.fixed_size_partitioner(parts, axis) if partitioned else None,
            )
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(write_version=version, **more)
        return Path(saver.save(session, str(prefix), write_meta_graph=False))


@pytest.mark.parametrize(("parts", "axis"), [(1, 0), (3, 0), (2, 1)])
def test_every_type_as_a_saver_of_the_second_format_writes_it(tmp_path: Path, parts: int, axis: int) -> None:
    old = save(tmp_path / "old", VALUES, parts=parts, axis=axis)
    new = save(tmp_path / "new", VALUES, parts=parts, axis=axis, version=2)
    assert not old.with_name("old.index").exists()
    a, b = contents.open_checkpoint(old), contents.open_checkpoint(new)
    assert a.kind is b.kind
    assert {key: each.info for key, each in a.entries.items()} == {key: each.info for key, each in b.entries.items()}
    found = difference.difference(a, b, rows=3)
    assert found.empty
    assert len(found.changes) == len(VALUES)
    for key, value in VALUES.items():
        np.testing.assert_array_equal(a.entries[key].values.value(), value)
        a.entries[key].values.verify()


def test_listed_restored_and_converted(tmp_path: Path, cache: Path) -> None:
    values = {"net/table": MATRIX, "global_step": np.array(3, np.int64), "words": VALUES["string"]}
    path = save(tmp_path / "model [1].ckpt-3", values, parts=3)
    assert {key: info.shape for key, info in checkpoints.keys(path).items()} == {
        name: value.shape for name, value in values.items()
    }
    np.testing.assert_array_equal(checkpoints.read_rows(path, "net/table", 2, 9), MATRIX[2:9])
    into = {
        name: tf.Variable(np.zeros_like(value) if value.dtype != object else [b""] * 4)
        for name, value in values.items()
    }
    for place in (path, tmp_path):  # the file `checkpoint` names it
        account = checkpoints.restore(place, into).assert_consumed()
        assert len(account.restored) == 3
        for name, value in values.items():
            np.testing.assert_array_equal(into[name].numpy(), value)
            into[name].assign(tf.zeros_like(into[name]))
    assert str(checkpoints.restore(path, into)) == f"{path}: 3 restored"
    assert contents.open_checkpoint(path).source == path
    names = checkpoints.convert(path, tmp_path / "out" / "names", kind="name").prefix
    objects = checkpoints.convert(path, tmp_path / "out" / "objects", kind="object").prefix
    for converted, end in ((names, ""), (objects, "/.ATTRIBUTES/VARIABLE_VALUE")):
        reader = tf.train.load_checkpoint(str(converted))
        for name, value in values.items():
            np.testing.assert_array_equal(reader.get_tensor(name + end), value)
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("net/table", MATRIX.shape, partitioner=v1.fixed_size_partitioner(4))
        checkpoints.restore(path, list(table)).assert_complete().run_restore_ops(session)
        np.testing.assert_array_equal(session.run(tf.convert_to_tensor(table)), MATRIX)
    assert len([each for each in cache.iterdir() if each.name.startswith("first-format")]) == 1
    source = open_vectors(path, cache=tmp_path / "vectors", key="net/table")
    np.testing.assert_array_equal(source.memory_map(), MATRIX)
    assert [each.name[:12] for each in (tmp_path / "vectors").iterdir() if each.is_dir()].count("first-format") == 1


def test_shards(tmp_path: Path) -> None:
    """A file for each device; here TensorFlow's own operation writes them."""
    for shard, (start, rows) in enumerate(((0, 6), (6, 5))):
        part = MATRIX[start : start + rows]
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(
                tf.raw_ops.SaveSlices(
                    filename=str(tmp_path / f"m-{shard:05d}-of-00002"),
                    tensor_names=["t", f"v{shard}"],
                    shapes_and_slices=[f"11 5 {start},{rows}:-", ""],
                    data=[part, [float(shard)]],
                )
            )
    for name in ("m-?????-of-00002", "m-00001-of-00002"):
        assert set(checkpoints.keys(tmp_path / name)) == {"t", "v0", "v1"}
        np.testing.assert_array_equal(checkpoints.read_rows(tmp_path / name, "t", 0, 11), MATRIX)
    (tmp_path / "m-00000-of-00002").unlink()
    with pytest.raises(DataError, match=r"found 1 of 2 files of a checkpoint of the first format \(V1\)"):
        checkpoints.keys(tmp_path / "m-00001-of-00002")


def test_damage_is_reported(tmp_path: Path) -> None:
    path = save(tmp_path / "old", {"t": MATRIX, "n": VALUES["int64"]})
    content = path.read_bytes()
    for at in range(0, len(content) - 120, 7):  # behind that is an empty block, which nobody reads
        damaged = bytearray(content)
        damaged[at] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(DataError, match=r"old: found no whole checkpoint of TensorFlow's first format \(V1\)"):
            checkpoints.keys(path)
    for size in (0, 60, len(content) // 2):
        path.write_bytes(content[:size] + content[-48:])
        with pytest.raises(DataError, match="found no whole checkpoint"):
            checkpoints.keys(path)


def test_what_is_none(tmp_path: Path) -> None:
    save(tmp_path / "new", {"t": MATRIX}, version=2)
    (tmp_path / "text").write_text("no checkpoint")
    for name in ("new", "new.index", "new.data-00000-of-00001", "text", "nothing", "."):
        assert not first_format.is_first_format(tmp_path / name)


def test_commands_and_runs(tmp_path: Path, forked: Path) -> None:
    """A table and a weight of a program of TensorFlow 1, in a run; and messages that name the file."""

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([forked / "embexp", *words], capture_output=True, text=True, check=False, cwd=tmp_path)

    save(tmp_path / "old", {"t": RANDOM.normal(size=(40, 8)).astype(np.float32), "b": np.ones(1, np.float32)})
    save(tmp_path / "new", {"t": MATRIX, "b": np.ones(1, np.float32)}, version=2)
    listed = command("checkpoint", "list", "old")
    assert listed.stdout.startswith("name-based checkpoint old\n")
    shown = command("checkpoint", "diff", "old", "new").stdout
    assert shown.startswith("A  name-based checkpoint old\nB  name-based checkpoint new\n")
    graph = command("checkpoint", "graph", "old")
    assert graph.returncode == 1
    assert graph.stderr.startswith("embexp: old is a name-based checkpoint, of TensorFlow's first format (V1), and has")
    (tmp_path / "old.tokens.txt").write_text("".join(f"{row}\n" for row in range(40)))
    overrides = [
        *("data.examples=500", "data.items=40", "model=mlp", "train.steps=2", "train.epochs=null"),
        *(
            "output.plots=false",
            "output.baselines=false",
            "output.tensorboard=false",
            f"output.cache={tmp_path}/of-runs",
        ),
        *("pretrained@tables.item.pretrained=file", f"tables.item.pretrained.path={tmp_path}/old"),
        *("tables.item.pretrained.key=t", "tables.item.dim=8", "freeze@tables.item.freeze=pretrained_rows"),
        *(f"restore.path={tmp_path}/old", "restore.only=[b]", "+restore.rename={b: head.logit/bias}"),
    ]
    result = embexp.run(embexp.compose(overrides), tmp_path / "out", quiet=True)
    assert result.summary["restored"]["checkpoint"] == str(tmp_path / "old")
    trained = embexp.load_run(tmp_path / "out")
    tokens = trained.vocabulary("item").tokens(0, 41)
    matrix = checkpoints.read_rows(tmp_path / "old", "t", 0, 40)
    of_file = [row for row, token in enumerate(tokens) if token.isdigit()]
    assert len(of_file) > 20
    np.testing.assert_array_equal(trained.table("item")[of_file], matrix[[int(tokens[row]) for row in of_file]])
