"""Checkpoints that are made to break their reader: each is refused in a sentence."""

from __future__ import annotations

import json
import os
import zipfile
from contextlib import closing
from pathlib import Path

import google_crc32c
import h5py
import numpy as np
import pytest

from embexp.checkpoints import contents
from embexp.checkpoints.contents import open_checkpoint
from embexp.errors import CheckpointError, DataError
from embexp.system.tensor_bundle import increments, index
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.increments import SomeRows
from embexp.system.tensor_bundle.index import FOOTER_BYTES, MAGIC, masked, read_encoded, read_index
from embexp.system.tensor_bundle.writer import BundleWriter, index_content
from tests.fuzz import bundles

VALUES = np.arange(24, dtype=np.float32).reshape(8, 3)


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def block(content: bytes) -> bytes:
    content += bytes(4) + (1).to_bytes(4, "little")  # one restart, at the beginning
    return content + b"\0" + masked(google_crc32c.value(content + b"\0")).to_bytes(4, "little")


def table(data: bytes, handles: list[tuple[int, int]]) -> bytes:
    """An index of these data blocks."""
    entries = b""
    for number, (offset, size) in enumerate(handles):
        value = varint(offset) + varint(size)
        entries += b"\0\4" + varint(len(value)) + number.to_bytes(4, "big") + value
    index = block(entries)
    footer = b"\0\0" + varint(len(data)) + varint(len(index) - 5)
    return data + index + footer.ljust(FOOTER_BYTES - 8, b"\0") + MAGIC.to_bytes(8, "little")


def refused(path: Path, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_index(path)


def test_a_key_that_is_repeated_by_its_beginning(tmp_path: Path) -> None:
    """40 bytes of each entry stand for a key of 60,000: a megabyte would be gigabytes in memory."""
    long = b"k" * 60_000
    content = b"\0" + varint(len(long)) + b"\1" + long + b"v"
    content += b"".join(varint(60_000) + b"\3\1" + number.to_bytes(3, "big") + b"v" for number in range(10_000))
    data = block(content)
    (tmp_path / "a.index").write_bytes(table(data, [(0, len(data) - 5)]))
    refused(tmp_path / "a.index", "its keys are too long for a file of its size")


def test_a_block_that_is_named_many_times(tmp_path: Path) -> None:
    data = block(b"\0\1\1kv" * 100)
    (tmp_path / "a.index").write_bytes(table(data, [(0, len(data) - 5)] * 1000))
    refused(tmp_path / "a.index", "its blocks overlap")


def test_a_number_without_an_end() -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        index.varint(b"\x80" * 1_000_000, 0)


ENTRIES = {
    "many dimensions": (b"\x08\x01" + bundles._message(2, bundles._message(2, b"\x08\x01") * 30) * 2, "has the shape"),
    "a huge shape": (
        b"\x08\x01" + bundles._message(2, bundles._message(2, b"\x08" + varint(1 << 59))),
        "has the shape",
    ),
    "a piece outside": (bundles._entry((8, 3), slices=(((5, 9), (0, 3)),)), "has a piece outside that shape"),
    "a piece of another rank": (
        bundles._entry((8, 3), slices=(((0, 8),),)),
        "has pieces with a different number of dimensions",
    ),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_tensors_that_can_not_be(case: str, tmp_path: Path) -> None:
    entry, said = ENTRIES[case]
    entries = {b"a": entry}
    if "piece" in case:
        entries[bundles.slice_prefix(b"a") + b"\0"] = bundles._entry((8, 3), 0, VALUES.tobytes())
    (tmp_path / "a.index").write_bytes(index_content(dict(sorted(entries.items())), 1))
    refused(tmp_path / "a.index", f"found no whole index of a TensorFlow checkpoint: .*{said}")


def test_pieces_that_are_all_the_same_bytes(tmp_path: Path) -> None:
    entries = {b"a": bundles._entry((80, 3), slices=tuple(((8 * n, 8), (0, 3)) for n in range(10)))}
    for number in range(10):
        entries[bundles.slice_prefix(b"a") + bytes([number])] = bundles._entry((8, 3), 0, VALUES.tobytes())
    (tmp_path / "a.index").write_bytes(index_content(dict(sorted(entries.items())), 1))
    (tmp_path / "a.data-00000-of-00001").write_bytes(VALUES.tobytes())
    with pytest.raises(DataError, match="found pieces of 960 bytes together, in files of 96"):
        open_checkpoint(tmp_path / "a").entry("a").values.value()


@pytest.mark.parametrize(
    "base", ["../../etc/passwd", "/etc/passwd", "../..", "../a/..", "../../../x/y", "a/b", "../a/b/c"]
)
def test_a_base_elsewhere(base: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with closing(BundleWriter(tmp_path / name / "checkpoint")) as writer:
            writer.add("t", (8, 3), [VALUES])
            writer.finish()
    increments.describe(
        tmp_path / "two" / "checkpoint", tmp_path / "one" / "checkpoint", {"t": SomeRows((8, 3), "n", "r")}
    )
    described = tmp_path / "two" / "checkpoint.increment.json"
    described.write_text(json.dumps(json.loads(described.read_text()) | {"base": base}))
    with pytest.raises(CheckpointError, match="expected a checkpoint in a folder next to it"):
        open_checkpoint(tmp_path / "two")


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"base": "../a/b", "base_digest": "", "matrices": {"t": {"shape": [1e999, 3]}}}']
)
def test_descriptions_of_increments(content: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.increment.json").write_text(content)
    with pytest.raises(CheckpointError, match="found no description of an incremental checkpoint"):
        increments.link(tmp_path / "checkpoint")


@pytest.mark.parametrize("name", [rb"\9", rb"\777", rb"\377", rb"a\0b", b"\xff", rb"a\101"])
def test_the_name_of_the_latest(name: bytes, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b'model_checkpoint_path: "%s"\n' % name)
    found = bundle_index.marked_latest(tmp_path)
    assert found is not None
    assert found.parent == tmp_path
    if name == rb"a\101":
        assert found.name == "aA.index"


def test_a_fifo(tmp_path: Path) -> None:
    for name in ("a", "a.index", "b.keras"):
        os.mkfifo(tmp_path / name)
    for name in ("a", "a.index", "b.keras"):
        with pytest.raises(DataError, match=r"found a FIFO, expected a file|found no such file"):
            open_checkpoint(tmp_path / name)
    refused(tmp_path / "a.index", "a.index: found a FIFO, expected a file")
    with pytest.raises(DataError, match=r"a\.index: found a FIFO, expected a file"):
        read_encoded(tmp_path / "a.index")


def test_keys_with_thousands_of_digits() -> None:
    keys = ["a/" + "1" * 5000, "a/10", "a/9", "a/b"]
    assert sorted(keys, key=lambda key: contents.groups_in_order("dense", key)) == [
        "a/9",
        "a/10",
        "a/" + "1" * 5000,
        "a/b",
    ]


def keras(path: Path, weights: bytes, how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("model.weights.h5", weights)
    return path


def weights(path: Path) -> bytes:
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = VALUES
        file["layers/dense/vars"].attrs["name"] = "hidden"
        file["huge"] = np.zeros(0, np.float32)
        file.create_dataset("never", (10**15, 10), "<f4", chunks=(1000, 10))
        file.create_dataset("outside", (2,), "<f4", external=[("/etc/hostname", 0, 8)])
    return path.read_bytes()


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, None])
def test_keras(how: int | None, tmp_path: Path) -> None:
    data = weights(tmp_path / "m.weights.h5")
    path = tmp_path / "m.weights.h5" if how is None else keras(tmp_path / "m.keras", data, how)
    contents = open_checkpoint(path)
    np.testing.assert_array_equal(contents.entry("layers/dense/vars/0").values.value(), VALUES)
    assert contents.entry("layers/dense/vars/0").info.variable == "hidden/0"
    for key, said in (("never", "found 0 of its 1,000,000,000,000 chunks"), ("outside", "or they are in other files")):
        with pytest.raises(DataError, match=said):
            contents.entry(key).values.read(0, 1)


def test_a_keras_file_that_is_a_bomb(tmp_path: Path) -> None:
    path = keras(tmp_path / "m.keras", bytes(30_000_000), zipfile.ZIP_BZIP2)
    with pytest.raises(DataError, match="it is compressed, and has 30,000,000 bytes; Keras does not compress it"):
        open_checkpoint(path)


def test_damaged_keras_files(tmp_path: Path) -> None:
    """Among these mutations are some that h5py, in this process, would end it with."""
    whole, found = weights(tmp_path / "m.weights.h5"), []
    for at in range(0, len(whole), 97):
        path = tmp_path / "d.weights.h5"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            for entry in open_checkpoint(path).entries.values():
                entry.values.verify()
        except DataError:
            found.append(at)
    assert len(found) > 10
