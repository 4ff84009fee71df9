"""Checkpoints that are written here, read by TensorFlow."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from embexp.errors import DataError
from embexp.system.tensor_bundle.index import read_index
from embexp.system.tensor_bundle.tensor import Tensor
from embexp.system.tensor_bundle.writer import BundleWriter, merge


def written(prefix: Path, matrices: dict[str, np.ndarray]) -> None:
    writer = BundleWriter(prefix)
    for key, matrix in matrices.items():
        writer.add(key, matrix.shape, np.array_split(matrix, 3))
    writer.finish()


@pytest.mark.parametrize("count", [1, 5, 400])
def test_tensorflow_reads_what_is_written(tmp_path: Path, count: int) -> None:
    generator = np.random.default_rng(count)
    shapes = [(int(generator.integers(1, 300)), int(generator.integers(1, 9))) for _ in range(count)]
    matrices = {
        f"embedding/{'t' * (number % 7)}{number}": generator.normal(size=shape).astype(np.float32)
        for number, shape in enumerate(shapes)
    }
    written(tmp_path / "checkpoint", matrices)
    read = tf.train.load_checkpoint(str(tmp_path / "checkpoint"))
    assert read.get_variable_to_shape_map() == {key: list(each.shape) for key, each in matrices.items()}
    for key, matrix in matrices.items():
        np.testing.assert_array_equal(read.get_tensor(key), matrix)
    assert not [entry for entry in read_index(tmp_path / "checkpoint.index").values() if entry.pieces[0].offset % 64]


def test_tensors_of_any_type_are_copied(tmp_path: Path) -> None:
    values = {
        "number": tf.constant(2**40, tf.int64),
        "flags": tf.constant([True, False]),
        "graph": tf.constant([b"a graph", b"", b"\x00\xff"]),
        "halves": tf.constant([[1.5, 2.5]], tf.bfloat16),
        "none": tf.zeros([0, 4]),
    }
    prefix = str(tmp_path / "old")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    writer = BundleWriter(tmp_path / "new")
    for key, entry in read_index(Path(f"{prefix}.index")).items():
        writer.copy(key, Tensor("", key, entry))
    writer.finish()
    read = tf.train.load_checkpoint(str(tmp_path / "new"))
    for key, value in values.items():
        copied = read.get_tensor(key)
        assert copied.dtype == value.numpy().dtype
        assert np.array_equal(copied, value.numpy()), key


def test_a_damaged_tensor_is_not_copied(tmp_path: Path) -> None:
    written(tmp_path / "old", {"matrix": np.ones((5, 2), np.float32)})
    data = tmp_path / "old.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"\x01")
    [(key, entry)] = read_index(tmp_path / "old.index").items()
    with (
        contextlib.closing(BundleWriter(tmp_path / "new")) as writer,
        pytest.raises(DataError, match=r"found the checksum 0x\w+ of matrix, expected 0x\w+: the file is damaged"),
    ):
        writer.copy(key, Tensor("", key, entry))


def test_tensorflow_finds_damage_in_what_is_written(tmp_path: Path) -> None:
    """So the checksums are what TensorFlow takes for such, and not just ignored."""
    written(tmp_path / "checkpoint", {"matrix": np.ones((5, 2), np.float32)})
    data = tmp_path / "checkpoint.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"\x01")
    with pytest.raises(tf.errors.DataLossError):
        tf.raw_ops.RestoreV2(
            prefix=str(tmp_path / "checkpoint"), tensor_names=["matrix"], shape_and_slices=[""], dtypes=[tf.float32]
        )


@pytest.mark.parametrize("rows", [4, 6])
def test_blocks_that_are_not_the_matrix(tmp_path: Path, rows: int) -> None:
    with (
        contextlib.closing(BundleWriter(tmp_path / "checkpoint")) as writer,
        pytest.raises(ValueError, match=r"matrix: found \d+ bytes, expected a matrix of 5 × 2"),
    ):
        writer.add("matrix", (5, 2), [np.ones((rows, 2), np.float32)])


def in_shards(prefix: Path, values: dict[str, tf.Tensor], slices: dict[str, tf.Tensor]) -> None:
    """As TensorFlow writes what lies on several machines: a data file each, and a tensor in slices of its rows."""
    parts, rows = [], sum(len(each) for each in slices.values())
    first = 0
    for number, (name, piece) in enumerate(slices.items()):
        tensors = {**(values if not number else {}), name.split("#")[0]: piece}
        spec = f"{rows} {piece.shape[1]} {first},{len(piece)}:0,{piece.shape[1]}"
        parts.append(str(prefix.with_name(f"part{number}")))
        tf.raw_ops.SaveV2(
            prefix=parts[-1],
            tensor_names=list(tensors),
            shape_and_slices=[spec if value is piece else "" for value in tensors.values()],
            tensors=list(tensors.values()),
        )
        first += len(piece)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix))


def test_tensors_are_added_to_a_checkpoint(tmp_path: Path) -> None:
    pieces = tf.split(tf.reshape(tf.range(24, dtype=tf.float32), [8, 3]), [5, 3])
    others = {"graph": tf.constant([b"a graph", b""]), "replaced": tf.zeros([0, 2]), "number": tf.constant(5, tf.int64)}
    in_shards(tmp_path / "c", others, {"sliced#0": pieces[0], "sliced#1": pieces[1]})
    matrix = np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)
    with contextlib.closing(BundleWriter(tmp_path / "c", adding=True)) as writer:
        for key in ("replaced", "added"):
            writer.add(key, matrix.shape, [matrix[:4], matrix[4:]])
        writer.finish()
    assert sorted(path.name for path in tmp_path.glob("c.*")) == [
        *(f"c.data-0000{number}-of-00003" for number in range(3)),
        "c.index",
    ]
    read = tf.train.load_checkpoint(str(tmp_path / "c"))
    assert read.get_variable_to_shape_map() == {
        "graph": [2], "number": [], "sliced": [8, 3], "replaced": [7, 2], "added": [7, 2]
    }  # fmt: skip
    np.testing.assert_array_equal(read.get_tensor("sliced"), tf.concat(pieces, 0))
    np.testing.assert_array_equal(read.get_tensor("replaced"), matrix)
    np.testing.assert_array_equal(read.get_tensor("added"), matrix)
    assert read.get_tensor("graph").tolist() == [b"a graph", b""]
    assert read.get_tensor("number") == 5


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_blocks_of_a_tensor_in_pieces(tmp_path: Path, rows: int) -> None:
    pieces = tf.split(tf.reshape(tf.range(24, dtype=tf.float32), [8, 3]), [5, 3])
    in_shards(tmp_path / "c", {"number": tf.constant(5)}, {"sliced#0": pieces[0], "sliced#1": pieces[1]})
    entries = read_index(tmp_path / "c.index")
    blocks = [*Tensor("c", "sliced", entries["sliced"]).blocks(rows)]
    assert max(len(each) for each in blocks) <= rows
    np.testing.assert_array_equal(np.concatenate(blocks), tf.concat(pieces, 0))
    with pytest.raises(DataError, match=r"c\.data-\d+-of-00002: found number in a piece of \[\], expected whole rows"):
        next(Tensor("c", "number", entries["number"]).blocks(rows))


def test_slices_of_several_processes_are_one_tensor_and_are_copied_as_one_piece(tmp_path: Path) -> None:
    values, slices = np.arange(60, dtype=np.float32).reshape(20, 3), [[(0, 4), (8, 20)], [(4, 8)]]
    first = BundleWriter(tmp_path / "c")
    first.finish()
    contents = []
    for number, own in enumerate(slices, 1):
        writer = BundleWriter(tmp_path / "c", shard=(number, 3))
        rows = np.concatenate([values[start:stop] for start, stop in own])
        writer.add_slices("m", (20, 3), own, (rows[start : start + 3] for start in range(0, len(rows), 3)))
        contents.append(writer.finish_shard())
    index = tmp_path / "c.index"
    merge(index, contents, {"m": (1, (20, 3), [(0, 4), (4, 8), (8, 20)])})
    entry = read_index(index)["m"]
    assert [piece.shape[0] for piece in entry.pieces] == [4, 4, 12]
    copier = BundleWriter(tmp_path / "copy")
    copier.copy("m", Tensor("", "m", entry))
    copier.finish()
    copied = Tensor("copy", "m", read_index(tmp_path / "copy.index")["m"])
    copied.verify()
    assert len(copied.entry.pieces) == 1
    for prefix in ("c", "copy"):
        np.testing.assert_array_equal(tf.train.load_checkpoint(str(tmp_path / prefix)).get_tensor("m"), values)
    with pytest.raises(ValueError, match="are missing"):
        merge(index, contents, {"m": (1, (20, 3), [(0, 20)])})
