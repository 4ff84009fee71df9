"""Strings that TensorFlow wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from embexp.errors import DataError
from embexp.system.tensor_bundle.index import read_index
from embexp.system.tensor_bundle.tensor import read_strings

STRINGS = {
    "scalar": b"a" * 300,
    "vector": [b"", b"\x00\xff", b"b" * 20_000],
    "matrix": [[b"a", b"b"], [b"c", "ü".encode()]],
    "none": [],
}


def written(prefix: Path) -> Path:
    tensors = [tf.constant(value, tf.string) for value in STRINGS.values()]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=list(STRINGS), shape_and_slices=[""] * len(STRINGS), tensors=tensors
    )
    return Path(f"{prefix}.index")


def test_all_strings_are_read(tmp_path: Path) -> None:
    for key, entry in read_index(written(tmp_path / "strings")).items():
        assert read_strings(key, entry) == tf.reshape(tf.constant(STRINGS[key], tf.string), [-1]).numpy().tolist()


def test_each_damaged_byte_is_found(tmp_path: Path) -> None:
    entry = read_index(written(tmp_path / "strings"))["matrix"]
    piece = entry.pieces[0]
    whole = piece.path.read_bytes()
    for at in range(piece.offset, piece.offset + piece.size):
        piece.path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with pytest.raises(DataError, match="damaged"):
            read_strings("matrix", entry)
    piece.path.write_bytes(whole[: piece.offset + 2])
    with pytest.raises(DataError, match="cut short"):
        read_strings("matrix", entry)
    piece.path.unlink()
    with pytest.raises(DataError, match="found no such file, expected matrix in it"):
        read_strings("matrix", entry)


def test_numbers_are_no_strings(tmp_path: Path) -> None:
    prefix = str(tmp_path / "numbers")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.zeros([2])])
    with pytest.raises(DataError, match="found a of TensorFlow's type 1, expected strings"):
        read_strings("a", read_index(Path(f"{prefix}.index"))["a"])
