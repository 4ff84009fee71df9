"""TensorFlow checkpoints, against TensorFlow's writers; and that TensorFlow is not needed to read them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from embexp.errors import DataError
from embexp.system.tensor_bundle.index import read_index
from embexp.vectors import array_files
from embexp.vectors.file_source import open_vectors

ROOT = Path(__file__).resolve().parents[2]
VALUES = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


def opened(path: Path, **options):
    return open_vectors(path, cache=path.parent / "cache", **options)


def object_based(folder: Path, name: str = "c", **values: np.ndarray) -> Path:
    """The prefix of a checkpoint whose tensors are attributes."""
    holder = tf.Module()
    for each, value in values.items():
        setattr(holder, each, tf.Variable(value))
    return Path(tf.train.Checkpoint(m=holder).write(str(folder / name)))


def name_based(prefix: Path, tensors: dict[str, np.ndarray], slices: dict[str, str] | None = None) -> None:
    """The prefix of a checkpoint as `tf.compat.v1.train.Saver` writes it."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[(slices or {}).get(name, "") for name in tensors],
        tensors=[tf.constant(value) for value in tensors.values()],
    )


@pytest.mark.parametrize("how", ["prefix", "index", "folder"])
def test_object_based(how: str, tmp_path: Path) -> None:
    prefix = object_based(tmp_path / "f", table=VALUES, step=np.int64(3))
    path = {"prefix": prefix, "index": prefix.with_name("c.index"), "folder": prefix.parent}[how]
    source = opened(path)
    assert (source.rows, source.dim, source.tokens) == (9, 4, None)
    np.testing.assert_array_equal(source.read(2, 7), VALUES[2:7])
    mapped = source.memory_map()
    assert mapped.ctypes.data % 64 == 0
    np.testing.assert_array_equal(mapped, VALUES)


def test_name_based_with_several_tensors(tmp_path: Path) -> None:
    tensors = {"a/x": VALUES, "b": VALUES[:2].astype(np.float64), "c": np.float32(1), "d": VALUES.astype(np.float16)}
    name_based(tmp_path / "c", {**tensors, "e": tf.cast(VALUES, tf.bfloat16).numpy(), "i": np.ones((2, 2), np.int64)})
    for key in ("a/x", "b", "d", "e"):
        source = opened(tmp_path / "c", key=key)
        expected = tf.train.load_variable(str(tmp_path / "c"), key).astype(np.float32)
        np.testing.assert_array_equal(source.read(0, source.rows), expected)
        np.testing.assert_array_equal(source.memory_map(), expected)
    with pytest.raises(DataError, match=r"found 5 matrices; set key to one of a/x \[9, 4\], b \[2, 4\], d "):
        opened(tmp_path / "c")
    with pytest.raises(DataError, match="i: found a tensor of int64, expected float16, bfloat16"):
        opened(tmp_path / "c", key="i")
    with pytest.raises(DataError, match="found no tensor 'y'; the matrices in it are a/x"):
        opened(tmp_path / "c", key="y")


def test_keys_with_and_without_their_end(tmp_path: Path) -> None:
    prefix = object_based(tmp_path, one=VALUES, two=VALUES + 1)
    for key in ("m/two", "m/two/.ATTRIBUTES/VARIABLE_VALUE"):
        np.testing.assert_array_equal(opened(prefix, key=key).read(0, 9), VALUES + 1)


@pytest.mark.parametrize("name", ["t", "a/b.S_x", "\u00e9"])
def test_tensors_in_slices(name: str, tmp_path: Path) -> None:
    # Enough slices that their first rows don't sort as text.
    parts = []
    values = np.random.default_rng(1).normal(size=(300, 2)).astype(np.float32)
    for number, start in enumerate([0, 1, 9, 70, 130, 256]):
        stop = [1, 9, 70, 130, 256, 300][number]
        parts.append(str(tmp_path / f"part{number}"))
        name_based(Path(parts[-1]), {name: values[start:stop]}, {name: f"300 2 {start},{stop - start}:0,2"})
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(tmp_path / "c"))
    source = opened(tmp_path / "c")
    for start, stop in ((0, 300), (5, 6), (8, 71), (299, 300), (70, 70)):
        np.testing.assert_array_equal(source.read(start, stop), values[start:stop])
    assert not source.in_place
    np.testing.assert_array_equal(source.memory_map(), values)


def test_slices_of_columns(tmp_path: Path) -> None:
    parts = []
    for start in (0, 2):
        parts.append(str(tmp_path / f"part{start}"))
        name_based(Path(parts[-1]), {"t": VALUES[:, start : start + 2]}, {"t": f"9 4 0,9:{start},2"})
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(tmp_path / "c"))
    source = opened(tmp_path / "c")
    np.testing.assert_array_equal(source.read(2, 5), VALUES[2:5])
    np.testing.assert_array_equal(source.memory_map(), VALUES)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    name_based(tmp_path / "c", {"t": VALUES})
    data = tmp_path / "c.data-00000-of-00001"
    whole = bytearray(data.read_bytes())
    whole[20] ^= 1
    data.write_bytes(whole)
    source = opened(tmp_path / "c")
    for use in (lambda: source.read(0, 1), source.memory_map):
        with pytest.raises(
            DataError, match=r"c.data-\d+-of-\d+: found the checksum 0x\w+ of t, expected 0x\w+: .* dam"
        ):
            use()


def test_a_file_that_is_cut_short_after_it_was_opened(tmp_path: Path) -> None:
    name_based(tmp_path / "c", {"t": VALUES})
    stored = array_files.read_tensor(tmp_path / "c.index", "t")
    data = tmp_path / "c.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(
        DataError, match=r"c.data-00000-of-00001: found 143 bytes, expected 144: the file is cut short, so t is"
    ):
        stored.check()


def test_truncated_and_missing_files(tmp_path: Path) -> None:
    name_based(tmp_path / "c", {"t": VALUES})
    data, index = tmp_path / "c.data-00000-of-00001", tmp_path / "c.index"
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(
        DataError, match=r"c.data-00000-of-00001: found 143 bytes, expected 144: the file is cut short, so t is"
    ):
        opened(tmp_path / "c")
    data.unlink()
    with pytest.raises(DataError, match=r"c.data-00000-of-00001: found no such file, expected t in it"):
        opened(tmp_path / "c")
    whole = index.read_bytes()
    for length in range(0, len(whole), 7):
        index.write_bytes(whole[:length])
        with pytest.raises(DataError, match="found no whole index of a TensorFlow checkpoint"):
            opened(tmp_path / "c")


def test_a_folder_of_several(tmp_path: Path) -> None:
    object_based(tmp_path, "c-1", t=VALUES)
    object_based(tmp_path, "c-2", t=VALUES + 1)
    with pytest.raises(DataError, match="found 2 checkpoints, expected the one to read: c-1, c-2"):
        opened(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "c-1"\nall_model_checkpoint_paths: "c-1"\n')
    np.testing.assert_array_equal(opened(tmp_path).read(0, 9), VALUES)


def test_the_whole_index_of_a_large_checkpoint(tmp_path: Path) -> None:
    tensors = {f"layer{n}/kernel_{n % 7}": np.full((1 + n % 3, 2), n, np.float32) for n in range(3000)}
    name_based(tmp_path / "c", tensors)
    found = read_index(tmp_path / "c.index")
    assert {name: entry.shape for name, entry in found.items()} == {n: t.shape for n, t in tensors.items()}
    for name in list(tensors)[::251]:
        np.testing.assert_array_equal(opened(tmp_path / "c", key=name).read(0, len(tensors[name])), tensors[name])


def test_tensorflow_is_not_imported(tmp_path: Path) -> None:
    prefix = object_based(tmp_path, table=VALUES)
    script = (
        "import sys\nfrom pathlib import Path\nfrom embexp.vectors.file_source import open_vectors\n"
        f"source = open_vectors(Path({str(prefix)!r}), cache=Path({str(tmp_path)!r}))\n"
        "source.memory_map()\nprint([n for n in ('tensorflow', 'keras', 'h5py') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
