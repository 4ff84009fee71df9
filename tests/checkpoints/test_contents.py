"""What checkpoints hold, whoever wrote them, against TensorFlow's and Keras' own readers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import embexp.checkpoints
from embexp.checkpoints.contents import Contents, StoredKind, open_checkpoint
from embexp.checkpoints.difference import statistics
from embexp.errors import CheckpointError, DataError
from embexp.system.tensor_bundle import increments
from tests.checkpoints import made
from tests.thoroughness import examples

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
END = "/.ATTRIBUTES/VARIABLE_VALUE"
VALUES = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


def check_like_tensorflow(contents: Contents, prefix: Path, *, without: Collection[str] = ()) -> None:
    """Keys, shapes, types and values are those that TensorFlow reads; it can't read those of some keys."""
    reader = tf.train.load_checkpoint(str(prefix))
    infos = {key: entry.info for key, entry in contents.entries.items()}
    assert {key: list(info.shape) for key, info in infos.items()} == reader.get_variable_to_shape_map()
    types = reader.get_variable_to_dtype_map()
    assert {key: info.dtype for key, info in infos.items()} == {key: each.name for key, each in types.items()}
    for key in contents.entries.keys() - set(without):
        entry = contents.entries[key]
        expected = np.asarray(reader.get_tensor(key), object if entry.info.dtype == "string" else None)
        found = entry.values.value()
        assert found.shape == expected.shape, key
        np.testing.assert_array_equal(found, expected, err_msg=key)
        if expected.dtype != object:
            assert found.dtype == expected.dtype, key
            assert entry.info.bytes == expected.nbytes, key
        entry.values.verify()
        if entry.info.shape:
            rows = len(expected)
            for start, stop in ((0, rows), (rows // 2, rows), (0, min(1, rows)), (rows, rows)):
                np.testing.assert_array_equal(entry.values.read(start, stop), expected[start:stop], err_msg=key)


def in_groups(contents: Contents) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in contents.entries.values():
        found.setdefault(entry.info.group, []).append(entry.info.short)
    return found


def test_a_keras_model_and_its_optimizer(tmp_path: Path) -> None:
    prefix = made.keras_checkpoint(tmp_path)
    contents = open_checkpoint(tmp_path)
    assert (contents.kind, contents.source, contents.faults) == (StoredKind.OBJECT, prefix, ())
    check_like_tensorflow(contents, prefix)
    groups = in_groups(contents)
    assert list(groups) == ["dense", "optimizer", "step", "object graph"]
    shapes = sorted(contents.entry(key).info.shape for key in groups["dense"])
    assert shapes == [(1,), (3, 4), (4,), (4, 1)]
    kernels = {contents.entry(key).info.variable for key in groups["dense"]}
    view = tf.train.CheckpointView(str(prefix))._object_graph_proto
    names = {each.checkpoint_key: each.full_name for node in view.nodes for each in node.attributes}
    assert kernels == {names[f"{key}{END}"] for key in groups["dense"]}
    assert contents.bytes == sum(entry.info.bytes for entry in contents.entries.values())


def test_a_saver_with_partitioned_variables(tmp_path: Path) -> None:
    values = {
        "dense/kernel": VALUES,
        "by_rows": VALUES + 1,
        "by_columns": VALUES + 2,
        "global_step": np.array(7, np.int64),
        "words": np.array([b"a", b"", b"\xff\x00"], object),
        "nothing": np.zeros((0, 3), np.float32),
    }
    prefix = made.saver_checkpoint(tmp_path / "model.ckpt-7", values, {"by_rows": (0, 3), "by_columns": (1, 2)})
    contents = open_checkpoint(prefix)
    assert contents.kind is StoredKind.NAME
    assert {key: entry.info.variable for key, entry in contents.entries.items()} == {key: key for key in values}
    check_like_tensorflow(contents, prefix)
    for name, value in values.items():
        np.testing.assert_array_equal(contents.entry(name).values.value(), value)
    np.testing.assert_array_equal(embexp.checkpoints.read_rows(prefix, "by_columns", 2, 6), values["by_columns"][2:6])
    assert in_groups(contents)["step"] == ["global_step"]


def test_pieces_in_any_order(tmp_path: Path) -> None:
    """As they come from several machines: a grid of six pieces."""
    places = [(rows, columns) for rows in ((0, 2), (2, 7), (7, 12)) for columns in ((0, 3), (3, 5))]
    values = np.random.default_rng(1).normal(size=(12, 5)).astype(np.float32)
    prefixes = []
    for number in (4, 1, 5, 0, 3, 2):
        (top, bottom), (left, right) = places[number]
        prefixes.append(str(tmp_path / f"part{number}"))
        tf.raw_ops.SaveV2(
            prefix=prefixes[-1],
            tensor_names=["t"],
            shape_and_slices=[f"12 5 {top},{bottom - top}:{left},{right - left}"],
            tensors=[values[top:bottom, left:right]],
        )
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=str(tmp_path / "c"))
    contents = open_checkpoint(tmp_path / "c")
    check_like_tensorflow(contents, tmp_path / "c")
    for start, stop in ((0, 12), (1, 3), (6, 8), (8, 11)):
        np.testing.assert_array_equal(contents.entry("t").values.read(start, stop), values[start:stop])


def test_a_saved_model(tmp_path: Path) -> None:
    made.trained_model().export(tmp_path / "exported", verbose=False)
    contents = open_checkpoint(tmp_path / "exported")
    assert contents.kind is StoredKind.SAVED_MODEL
    check_like_tensorflow(contents, tmp_path / "exported" / "variables" / "variables")
    assert {"hidden/kernel", "top/bias"} <= {entry.info.variable for entry in contents.entries.values()}


@pytest.mark.parametrize("name", ["model.weights.h5", "model.keras"])
def test_keras_weights(name: str, tmp_path: Path) -> None:
    model = made.trained_model()
    (model.save_weights if name.endswith(".h5") else model.save)(tmp_path / name)
    contents = open_checkpoint(tmp_path / name)
    assert (contents.kind, contents.checksums) == (StoredKind.KERAS, False)
    by_name = {entry.info.variable: entry for entry in contents.entries.values()}
    for layer in ("hidden", "top"):
        for number, expected in enumerate(model.get_layer(layer).get_weights()):
            entry = by_name[f"{layer}/{number}"]
            assert (entry.info.dtype, entry.info.shape) == ("float32", expected.shape)
            np.testing.assert_array_equal(entry.values.value(), expected)
            np.testing.assert_array_equal(entry.values.read(1, len(expected)), expected[1:])
            entry.values.verify()
            assert entry.info.group == "dense"
    slots = [entry for entry in contents.entries.values() if entry.info.group == "optimizer"]
    assert sorted(entry.info.shape for entry in slots) == sorted(
        tuple(variable.shape) for variable in model.optimizer.variables
    )


def test_keras_weights_of_other_types(tmp_path: Path) -> None:
    layer = keras.layers.Dense(2, dtype=keras.DTypePolicy("bfloat16"))
    model = keras.Sequential([keras.Input((3,)), layer])
    model.save_weights(tmp_path / "model.weights.h5")
    [kernel, bias] = open_checkpoint(tmp_path / "model.weights.h5").entries.values()
    assert (kernel.info.dtype, bias.info.dtype) == ("bfloat16", "bfloat16")
    assert kernel.values.read(0, 3).dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(kernel.values.value(), np.asarray(layer.kernel))


def test_a_compressed_keras_file(tmp_path: Path) -> None:
    import zipfile

    model = made.trained_model()
    model.save_weights(tmp_path / "model.weights.h5")
    with zipfile.ZipFile(tmp_path / "model.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "model.weights.h5", "model.weights.h5")
    plain, zipped = open_checkpoint(tmp_path / "model.weights.h5"), open_checkpoint(tmp_path / "model.keras")
    assert [entry.info for entry in plain.entries.values()] == [entry.info for entry in zipped.entries.values()]
    for key, entry in plain.entries.items():
        np.testing.assert_array_equal(zipped.entries[key].values.value(), entry.values.value())


def test_other_hdf5_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["words"] = ["a", "ü"]
        file["deep/numbers"] = np.arange(6).reshape(2, 3)
        file["scalar"] = np.float64(2.5)
        file["big_endian"] = np.arange(3, dtype=">f4")
        file["pairs"] = np.zeros(2, [("a", "i4"), ("b", "f4")])
        file["elsewhere"] = h5py.ExternalLink("b.h5", "secret")
    contents = open_checkpoint(tmp_path / "a.h5")
    infos = {key: (entry.info.dtype, entry.info.shape) for key, entry in contents.entries.items()}
    assert infos["words"] == ("string", (2,))
    assert infos["scalar"] == ("float64", ())
    assert "elsewhere" not in infos
    assert contents.entry("words").values.value().tolist() == [b"a", "ü".encode()]
    assert contents.entry("scalar").values.value() == 2.5
    assert contents.entry("big_endian").values.read(1, 3).tobytes() == np.array([1, 2], "<f4").tobytes()
    np.testing.assert_array_equal(contents.entry("deep/numbers").values.read(1, 2), [[3, 4, 5]])
    with pytest.raises(DataError, match=r"a.h5: pairs: NumPy has no type for its values"):
        contents.entry("pairs").values.value()
    with pytest.raises(DataError, match=r"scalar: it is a scalar, so it has no rows"):
        contents.entry("scalar").values.read(0, 1)
    with pytest.raises(DataError, match=r"words: there are no rows 0 to 3, it has 2"):
        contents.entry("words").values.read(0, 3)


def test_tensorflows_own_tpu_embedding(tmp_path: Path) -> None:
    step = tf.Variable(3, dtype=tf.int64)
    prefix = Path(tf.train.Checkpoint(embedding=made.tpu_embedding(), step=step).write(str(tmp_path / "c")))
    contents = open_checkpoint(prefix)
    check_like_tensorflow(contents, prefix)
    infos = [entry.info for entry in contents.entries.values()]
    parts = {info.short: (info.group, info.table, info.slot) for info in infos}
    assert parts == {
        "embedding/item": ("tables", "item", None),
        "embedding/item.Saccumulators": ("slots", "item", "accumulators"),
        "embedding/a..b.Sc": ("tables", "a.b/c", None),
        "step": ("step", None, None),
        "_CHECKPOINTABLE_OBJECT_GRAPH": ("object graph", None, None),
    }
    # Elsewhere than under `embedding`, a table is known by its slots.
    prefix = Path(tf.train.Checkpoint(tpu=made.tpu_embedding()).write(str(tmp_path / "d")))
    groups = in_groups(open_checkpoint(prefix))
    assert (groups["tables"], groups["slots"], groups["tpu"]) == (
        ["tpu/item"], ["tpu/item.Saccumulators"], ["tpu/a..b.Sc"]
    )  # fmt: skip


def test_incremental_checkpoints(tmp_path: Path) -> None:
    """Tables are listed whole, the last change of a row counts."""
    generator = np.random.default_rng(0)
    key = f"embedding/item{END}"
    some = increments.SomeRows((20, 3), "numbers", "rows")
    expected = generator.normal(size=(20, 3)).astype(np.float32)
    prefixes = [tmp_path / f"step_{number}" / "checkpoint" for number in range(3)]
    for number, prefix in enumerate(prefixes):
        prefix.parent.mkdir()
        chosen = np.sort(generator.choice(20, 6, replace=False))
        rows = generator.normal(size=(6, 3)).astype(np.float32)
        values = {"numbers": chosen, "rows": rows} if number else {key: expected.copy()}
        made.saved(prefix, values | {f"step{END}": np.array(number), "_CHECKPOINTABLE_OBJECT_GRAPH": b"\n\0"})
        if number:
            expected[chosen] = rows
            increments.describe(prefix, prefixes[number - 1], {key: some})
        contents = open_checkpoint(tmp_path)
        assert contents.source == prefix
        assert contents.base == (prefixes[number - 1].parent if number else None)
        assert [entry.info.short for entry in contents.entries.values()] == [
            "embedding/item", "step", "_CHECKPOINTABLE_OBJECT_GRAPH"
        ]  # fmt: skip
        table = contents.entry("embedding/item")
        assert (table.info.shape, table.info.bytes) == ((20, 3), 6 * (8 + 12) if number else 240)
        np.testing.assert_array_equal(table.values.value(), expected)
        np.testing.assert_array_equal(np.concatenate([block for _, block in table.blocks(50)]), expected)
        np.testing.assert_array_equal(embexp.checkpoints.read_rows(tmp_path, "embedding/item", 7, 12), expected[7:12])
        table.values.verify()
    made.change_byte(tmp_path / "step_1" / "checkpoint.data-00000-of-00001", 60)
    with pytest.raises(DataError, match=r"step_1/checkpoint.data-\d+-of-\d+: found the checksum"):
        open_checkpoint(tmp_path).entry("embedding/item").values.verify()
    (tmp_path / "step_0" / "checkpoint.data-00000-of-00001").unlink()
    assert "step_0/checkpoint.data" in open_checkpoint(tmp_path).faults[0]
    (tmp_path / "step_0" / "checkpoint.index").unlink()
    with pytest.raises(CheckpointError, match=r"the rows that changed since .*step_0, which is missing"):
        open_checkpoint(tmp_path)


def test_groups_of_names(tmp_path: Path) -> None:
    """As embexp and the optimizers of TensorFlow 1 name variables."""
    names = ["embedding/item", "embedding/item/Adam_1", "embedding/deep/item", "global_step"]
    names += ["dense/kernel", "dense/kernel/Adam", "adam/iteration", "adam/dense_kernel_momentum"]
    contents = open_checkpoint(made.saver_checkpoint(tmp_path / "c", dict.fromkeys(names, VALUES), {}))
    assert in_groups(contents) == {
        "tables": ["embedding/item"],
        "slots": ["embedding/item/Adam_1"],
        "optimizer": ["adam/dense_kernel_momentum", "adam/iteration", "dense/kernel/Adam"],
        "step": ["global_step"],
        "dense": ["dense/kernel", "embedding/deep/item"],
    }
    others = made.saver_checkpoint(tmp_path / "d", dict.fromkeys(("a/b", "a/b/Adam", "c", "step"), VALUES), {})
    assert in_groups(open_checkpoint(others)) == {"optimizer": ["a/b/Adam"], "step": ["step"], "a": ["a/b"], "c": ["c"]}
    info = contents.entry("embedding/item/Adam_1").info
    assert (info.table, info.slot, contents.entry("embedding/item").info.table) == ("item", "Adam_1", "item")


def test_an_optimizer_with_slot_variables(tmp_path: Path) -> None:
    """As those of TensorFlow 1 and Keras 2 have them."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        optimizer = tf.compat.v1.train.AdamOptimizer()
        weight = tf.compat.v1.get_variable("weight", [3], use_resource=True)
        train = optimizer.minimize(tf.reduce_sum(weight**2))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train)
        prefix = Path(tf.compat.v1.train.Checkpoint(weight=weight, opt=optimizer).save(str(tmp_path / "c"), session))
    contents = open_checkpoint(prefix)
    check_like_tensorflow(contents, prefix)
    assert in_groups(contents)["optimizer"] == ["weight/.OPTIMIZER_SLOT/opt/m", "weight/.OPTIMIZER_SLOT/opt/v"]
    assert contents.entry("weight/.OPTIMIZER_SLOT/opt/m").info.variable == "weight/Adam"


FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.complex64]
TYPES = [*FLOATS, np.int8, np.int32, np.int64, np.uint8, np.bool_]
LACKING = (np.float16, ml_dtypes.bfloat16)


@st.composite
def variables(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, int]]]:
    """Values of variables by name, and how some are partitioned."""
    values: dict[str, np.ndarray] = {}
    parts: dict[str, tuple[int, int]] = {}
    for number in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(["w", "layer/kernel", "a.b", "x_"])) + str(number)
        shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=9))
        kind = draw(st.sampled_from([*TYPES, object]))
        if kind is object:
            texts = draw(st.lists(st.binary(max_size=300), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
            value = np.empty(len(texts), object)
            value[:] = texts
            values[name] = value.reshape(shape)
            continue
        seed = draw(st.integers(0, 2**32 - 1))
        raw = np.random.default_rng(seed).integers(0, 100, shape)
        values[name] = np.asarray(raw if kind is not np.bool_ else raw % 2).astype(kind)
        if shape and draw(st.booleans()):
            dimension = draw(st.integers(0, len(shape) - 1))
            parts[name] = (dimension, draw(st.integers(1, shape[dimension])))
    return values, parts


@examples(12)
@given(variables())
def test_whatever_a_saver_writes(tmp_path_factory: pytest.TempPathFactory, given: tuple) -> None:
    values, parts = given
    prefix = made.saver_checkpoint(tmp_path_factory.mktemp("saver") / "c", values, parts)
    contents = open_checkpoint(prefix)
    # TensorFlow's reader lacks partitioned variables of some types.
    check_like_tensorflow(contents, prefix, without=[key for key in parts if values[key].dtype in LACKING])
    assert contents.entries.keys() == values.keys()
    for key, value in values.items():
        np.testing.assert_array_equal(contents.entries[key].values.value(), value)


def test_statistics(tmp_path: Path) -> None:
    numbers = np.array([[1.5, -2.0, np.nan], [np.inf, 0.25, 4.0]], np.float64)
    values = {"n": np.tile(numbers, (3, 1)), "few": numbers, "word": np.array([b"\xff", b"\xc3\xbc"], object)}
    values |= {"c": np.array([3 + 4j], np.complex64), "none": np.zeros((0, 2), np.float32)}
    contents = open_checkpoint(made.saver_checkpoint(tmp_path / "c", values, {}))
    found = {key: statistics(entry) for key, entry in contents.entries.items()}
    finite = numbers[np.isfinite(numbers)]
    assert (found["n"].minimum, found["n"].maximum, found["n"].not_finite) == (-2.0, 4.0, 6)
    assert found["n"].mean == pytest.approx(finite.mean())
    assert found["n"].norm == pytest.approx(np.sqrt(3 * np.sum(finite**2)))
    assert found["n"].values is None
    np.testing.assert_array_equal(found["few"].values, numbers.reshape(-1))
    assert found["word"].values == ("b'\\xff'", "ü")
    assert (found["c"].norm, found["c"].minimum) == (5.0, None)
    assert (found["none"].minimum, found["none"].norm) == (None, 0.0)


def test_the_public_functions(tmp_path: Path) -> None:
    prefix = made.keras_checkpoint(tmp_path)
    found = embexp.checkpoints.keys(prefix)
    assert {key: list(info.shape) for key, info in found.items()} == dict(tf.train.list_variables(str(prefix)))
    key = next(key for key, info in found.items() if info.shape == (3, 4))
    expected = tf.train.load_variable(str(prefix), key)
    for name in (key, found[key].short):
        rows = embexp.checkpoints.read_rows(prefix, name, 1, 3)
        np.testing.assert_array_equal(rows, expected[1:3])
        assert type(rows) is np.ndarray
        with pytest.raises(ValueError, match="read-only"):
            rows[0, 0] = 1
    assert embexp.checkpoints.read_rows(prefix, key, 2, 2).shape == (0, 4)
    assert {"keys", "read_rows"} <= set(dir(embexp.checkpoints))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        embexp.checkpoints.nothing  # noqa: B018


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras", ".index"])
def test_read_only_rows_of_every_format(suffix: str, tmp_path: Path) -> None:
    if suffix == ".index":
        made.keras_checkpoint(tmp_path)
        path = tmp_path / "model-1.index"
    else:
        path = tmp_path / f"m{suffix}"
        (made.trained_model().save_weights if suffix == ".weights.h5" else made.trained_model().save)(path)
    key = next(key for key, info in embexp.checkpoints.keys(path).items() if info.shape == (3, 4))
    assert not embexp.checkpoints.read_rows(path, key, 0, 2).flags.writeable


def test_a_changed_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"a": VALUES, "b": VALUES, "words": np.array([b"one", b"two"], object)}
    prefix = made.saver_checkpoint(tmp_path / "c", values, {"b": (0, 2)})
    data = tmp_path / "c.data-00000-of-00001"
    made.change_byte(data, 0)  # in `a`, which is small, so it is always checked
    read_rows = embexp.checkpoints.read_rows
    with pytest.raises(DataError, match=r"c.data-\d+-of-\d+: found the checksum 0x\w+ of a, expected 0x\w+"):
        read_rows(prefix, "a", 5, 6)
    read_rows(prefix, "a", 5, 6, verify=False)
    monkeypatch.setattr("embexp.checkpoints.contents.CHECKED_BYTES", 1)
    read_rows(prefix, "a", 5, 6)
    for start, verify in ((5, True), (0, None)):
        with pytest.raises(DataError, match=r"found the checksum 0x\w+ of a"):
            read_rows(prefix, "a", start, 7, verify=verify)
    made.change_byte(data, 4 * VALUES.size + 4)
    with pytest.raises(DataError, match=r"found the checksum 0x\w+ of b"):
        read_rows(prefix, "b", 6, 7, verify=True)
    made.change_byte(data, data.stat().st_size - 1)
    with pytest.raises(DataError, match=r"c.data-00000-of-00001: words differs from its checksum"):
        read_rows(prefix, "words", 0, 1)


def test_every_byte_of_an_index_counts(tmp_path: Path) -> None:
    prefix = made.saver_checkpoint(tmp_path / "c", {"a": VALUES, "b": VALUES}, {"b": (0, 2)})
    index = tmp_path / "c.index"
    whole = index.read_bytes()
    expected = {key: entry.info for key, entry in open_checkpoint(prefix).entries.items()}
    noticed = 0
    for at in range(len(whole)):
        made.change_byte(index, at)
        try:
            found = {key: entry.info for key, entry in open_checkpoint(prefix).entries.items()}
        except DataError:
            noticed += 1
        else:  # The block between data and footer is not read, nor is the padding of the footer.
            assert found == expected
        index.write_bytes(whole)
    assert noticed > len(whole) - 64


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    prefix = made.saver_checkpoint(tmp_path / "c", {"a": VALUES, "b": VALUES}, {})
    data = tmp_path / "c.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:200])
    contents = open_checkpoint(prefix)
    assert list(contents.entries) == ["a", "b"]
    assert contents.faults == (
        f"{data}: found 200 bytes, expected 280: the file is cut short, 1 of 2 keys are not in it whole",
    )
    np.testing.assert_array_equal(embexp.checkpoints.read_rows(prefix, "a", 0, 7), VALUES)
    with pytest.raises(DataError, match=r"c.data-00000-of-00001: found 200 bytes, expected 280: .* b is incomplete"):
        embexp.checkpoints.read_rows(prefix, "b", 0, 1)
    data.unlink()
    assert open_checkpoint(prefix).faults == (f"{data}: found no such file, but the index needs it for 2 of 2 keys",)


def test_errors(tmp_path: Path) -> None:
    prefix = made.saver_checkpoint(tmp_path / "c", {"dense/kernel": VALUES, "n": np.array(1)}, {})
    read_rows = embexp.checkpoints.read_rows
    with pytest.raises(DataError, match=r"c: found no key 'dense/kernal'; did you mean dense/kernel\?"):
        read_rows(prefix, "dense/kernal", 0, 1)
    with pytest.raises(DataError, match=r"n: it is a scalar, so it has no rows"):
        read_rows(prefix, "n", 0, 1)
    for start, stop in ((0, 8), (-1, 2), (3, 2)):
        with pytest.raises(DataError, match=rf"dense/kernel: there are no rows {start} to {stop}, it has 7"):
            read_rows(prefix, "dense/kernel", start, stop)
    with pytest.raises(DataError, match=r"nowhere: there is no such file or folder; give a run's directory, a check"):
        open_checkpoint(tmp_path / "nowhere")
    (tmp_path / "text.txt").write_text("no checkpoint")
    with pytest.raises(DataError, match=r"text.txt: it is not a file of weights; give a run's directory"):
        open_checkpoint(tmp_path / "text.txt")
    with pytest.raises(DataError, match=r"d.index: found no such file, expected the index of a checkpoint"):
        open_checkpoint(tmp_path / "d.index")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: found no checkpoint in this folder; give a run's directory"):
        open_checkpoint(tmp_path / "empty")
    (tmp_path / "sweep" / "0" / "checkpoints").mkdir(parents=True)
    with pytest.raises(DataError, match=r"sweep: found no checkpoint in this folder; its folders 0 have checkpoints"):
        open_checkpoint(tmp_path / "sweep")
    (tmp_path / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\nrest")
    with pytest.raises(DataError, match=r"bad.h5: found no whole HDF5 file"):
        open_checkpoint(tmp_path / "bad.h5")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(DataError, match=r"saved: found a SavedModel without variables"):
        open_checkpoint(tmp_path / "saved")


def test_zips_that_are_no_keras_file(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(DataError, match=r"m.keras: found 0 files \*.weights.h5 in the zip, expected one"):
        open_checkpoint(tmp_path / "m.keras")
    made.trained_model().save(tmp_path / "n.keras")
    whole = (tmp_path / "n.keras").read_bytes()
    (tmp_path / "n.keras").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"n.keras: found no complete zip file"):
        open_checkpoint(tmp_path / "n.keras")


@pytest.mark.parametrize("name", ["model.weights.h5", "model.keras"])
def test_damaged_keras_files(name: str, tmp_path: Path) -> None:
    """There are no checksums, but what no longer fits is an error of ours, not of a library."""
    model = made.trained_model()
    (model.save_weights if name.endswith(".h5") else model.save)(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    generator = np.random.default_rng(0)
    noticed = 0
    for at in generator.integers(0, len(whole), 25):
        (tmp_path / name).write_bytes(whole[:at] + generator.bytes(8) + whole[at + 8 :])
        try:
            for entry in open_checkpoint(tmp_path / name).entries.values():
                entry.values.verify()
        except DataError:
            noticed += 1
    assert noticed


@pytest.mark.parametrize("folder", ["plain", "a[64,32]", "b*?", "{c} ü='%", "back\\slash"])
def test_which_checkpoint_a_folder_stands_for(folder: str, tmp_path: Path) -> None:
    run = tmp_path / folder

    def write(name: str, value: float) -> Path:
        # tf.train.Saver takes some of these names for patterns, so it writes elsewhere.
        made.saver_checkpoint(tmp_path / "aside" / "c", {"v": np.array([value])}, {})
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        for file in (tmp_path / "aside").glob("c.*"):
            file.rename((run / name).with_name((run / name).name + file.suffix))
        return run / name

    def found(path: Path) -> float:
        return float(embexp.checkpoints.read_rows(path, "v", 0, 1)[0])

    best = write("checkpoints/best/checkpoint", 0)
    assert found(run) == 0
    write("checkpoints/step_9/checkpoint", 9)
    write("checkpoints/step_10/checkpoint", 10)
    (run / "checkpoints" / "step_11").mkdir()  # torn: it has no index
    assert found(run) == found(run / "checkpoints") == 10
    write("checkpoints/final/checkpoint", 100)
    assert found(run) == found(run / "checkpoints") == 100
    assert found(best) == found(best.parent) == found(best.with_name("checkpoint.index")) == 0
    assert found(best.with_name("checkpoint.data-00000-of-00001")) == 0
    other = write("several/c-1", 1)
    newer = write("several/c-2", 2)
    assert found(run / "several") == 2
    (run / "several" / "checkpoint").write_text('model_checkpoint_path: "/gone/c-1"\n')
    assert found(run / "several") == 1
    other.with_name("c-1.index").rename(other.with_name("\u00fc'1.index"))
    other.with_name("c-1.data-00000-of-00001").rename(other.with_name("\u00fc'1.data-00000-of-00001"))
    assert found(run / "several") == 2
    (run / "several" / "checkpoint").write_text('model_checkpoint_path: "\\303\\274\\\'1"\n')
    assert found(run / "several") == 1
    assert found(newer) == 2


def test_without_tensorflow(tmp_path: Path) -> None:
    made.keras_checkpoint(tmp_path)
    made.trained_model().save(tmp_path / "m.keras")
    script = (
        "import sys, embexp.checkpoints as c\n"
        "for path in sys.argv[1:]:\n"
        "    key = next(key for key, info in c.keys(path).items() if info.shape == (3, 4))\n"
        "    c.read_rows(path, key, 0, 1, verify=True)\n"
        "print([name for name in ('tensorflow', 'keras', 'rich', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model-1"), str(tmp_path / "m.keras")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.stdout == "[]\n"
