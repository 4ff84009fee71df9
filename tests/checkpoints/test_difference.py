"""How far values moved between checkpoints, against float64 NumPy."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.checkpoints import difference as compared
from embexp.checkpoints.contents import Contents, open_checkpoint
from embexp.checkpoints.difference import Change, difference
from tests.checkpoints import made
from tests.thoroughness import examples

END = "/.ATTRIBUTES/VARIABLE_VALUE"


def written(prefix: Path, values: dict[str, np.ndarray]) -> Contents:
    """A checkpoint with these keys; one that is called a graph makes it object-based."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=[tf.constant(value, tf.string if value.dtype == object else None) for value in values.values()],
    )
    return open_checkpoint(prefix)


def changes(a: Contents, b: Contents, **options) -> dict[str, Change]:
    return {each.info.short: each for each in difference(a, b, rows=3, **options).changes}


TYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int64,
    np.uint8,
    np.bool_,
    np.complex64,
    np.complex128,
]


@examples(40)
@given(
    kind=st.sampled_from(TYPES),
    shape=st.sampled_from([(), (1,), (7,), (5, 3), (40, 2), (3, 2, 2), (0, 4), (4, 0)]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_figures_are_numpys(
    tmp_path_factory: pytest.TempPathFactory, kind: type, shape: tuple[int, ...], share: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    first = np.asarray(generator.normal(0, 3, shape)).astype(kind)
    chosen = np.asarray(generator.random(shape) < share)
    second = np.where(chosen, np.asarray(generator.normal(0, 3, shape)).astype(kind), first).astype(kind)
    folder = tmp_path_factory.mktemp("c")
    a, b = written(folder / "a", {"v": first}), written(folder / "b", {"v": second})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compared, "_BLOCK_BYTES", 64)
        found = difference(a, b, rows=3)
    [change] = found.changes
    wide = np.complex128 if kind in (np.complex64, np.complex128) else np.float64
    rows_a, rows_b = (
        np.reshape(each.astype(wide), (shape[0] if shape else 1, math.prod(shape[1:]))) for each in (first, second)
    )
    changed = np.any(rows_a != rows_b, axis=1)
    assert (change.compared, change.changed) == (len(rows_a), changed.sum())
    assert found.empty == (not changed.any())
    move = np.abs(rows_b - rows_a)
    assert change.largest == pytest.approx(move.max(initial=0.0), rel=1e-12)
    norm = np.linalg.norm(rows_a)
    expected = np.linalg.norm(move) / norm if norm else (math.inf if changed.any() else 0.0)
    assert change.relative == pytest.approx(expected, rel=1e-12)


def test_bits_decide(tmp_path: Path) -> None:
    """Equal NaN and infinities have not moved, 0 and -0 differ, and what became NaN has moved to NaN."""
    first = np.array([[np.nan, 1], [np.inf, 1], [0.0, 1], [1, 1], [np.nan, 1], [np.inf, 1]], np.float32)
    second = np.array([[np.nan, 1], [np.inf, 1], [-0.0, 1], [2, 1], [np.nan, 4], [np.inf, 3]], np.float32)
    a = written(tmp_path / "a", {"v": first, "w": first[2:4], "z": np.zeros(2), "word": np.array([b"a", b"b"], object)})
    b = written(
        tmp_path / "b",
        {"v": second, "w": first[:2], "z": np.ones(2), "word": np.array([b"a", b"c"], object)},
    )
    found = changes(a, b)
    assert (found["v"].compared, found["v"].changed, found["v"].largest) == (6, 4, 3.0)
    assert found["w"].changed == 2
    assert math.isnan(found["w"].largest)
    assert found["z"].relative == math.inf
    assert (found["word"].changed, found["word"].largest, found["word"].relative) == (1, None, None)


def graphed(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With the ends and the key that an object-based checkpoint has."""
    return {f"{key}{END}": value for key, value in values.items()} | {
        "_CHECKPOINTABLE_OBJECT_GRAPH": np.array(b"", object)
    }


def test_the_rows_that_moved_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    first = generator.normal(size=(200, 4)).astype(np.float32)
    second = first.copy()
    moved = generator.permutation(200)[:50]
    second[moved] += generator.normal(size=(50, 4)).astype(np.float32)
    a = written(tmp_path / "a", graphed({"embedding/item": first, "embedding/item.Sm": first, "other": first}))
    b = written(tmp_path / "b", graphed({"embedding/item": second, "embedding/item.Sm": second, "other": second}))
    monkeypatch.setattr(compared, "_BLOCK_BYTES", 16 * 17)
    distances = np.linalg.norm(second.astype(np.float64) - first, axis=1)
    expected = np.argsort(-distances)[:3]
    found = changes(a, b)
    moves = found["embedding/item"].moved
    assert [each.row for each in moves] == expected.tolist()
    np.testing.assert_allclose([each.distance for each in moves], distances[expected], rtol=1e-12)
    norms = np.linalg.norm(first[expected].astype(np.float64), axis=1)
    np.testing.assert_allclose([each.norm for each in moves], norms, rtol=1e-12)
    assert found["embedding/item"].changed == 50
    assert (found["embedding/item.Sm"].moved, found["other"].moved) == ((), ())
    assert difference(a, b, rows=0).changes[0].moved == ()


def test_rows_matched_by_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = np.arange(12, dtype=np.float32).reshape(6, 2)
    second = first[[3, 1, 5, 0]] + np.array([[0], [0], [1], [0]], np.float32)
    a, b = written(tmp_path / "a", {"t": first}), written(tmp_path / "b", {"t": second})
    partner = np.array([3, 1, -1, 0, -1, 2])
    monkeypatch.setattr(compared, "_BLOCK_BYTES", 16)
    [change] = difference(a, b, rows=2, matches={"t": lambda start, stop: partner[start:stop]}).changes
    assert (change.compared, change.changed, change.largest, change.unmatched) == (4, 1, 1.0, (2, 0))


@pytest.mark.parametrize("block", [16, 1000])
def test_rows_that_became_nan_moved_farthest(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "_BLOCK_BYTES", block)
    first = np.full((4, 2), 1e100)
    second = first + np.array([[0, 0], [0, 1e90], [0, np.nan], [1e120, 0]])
    # The squares of `huge` are larger than float64's largest number.
    a = written(tmp_path / "a", graphed({"embedding/item": first, "huge": first * 1e100}))
    b = written(tmp_path / "b", graphed({"embedding/item": second, "huge": second * 1e100}))
    [change] = [each for each in difference(a, b, rows=2).changes if each.moved]
    assert [each.row for each in change.moved] == [2, 3]
    assert math.isnan(change.relative)


def test_keys_shapes_and_types(tmp_path: Path) -> None:
    one = np.ones((2, 3), np.float32)
    a = written(tmp_path / "a", {"same": one, "gone": one, "shape": one, "type": one})
    b = written(tmp_path / "b", {"same": one, "new": one, "shape": one.T, "type": one.astype(np.float64)})
    found = difference(a, b, rows=5)
    assert [each.key for each in found.only_a] == ["gone"]
    assert [each.key for each in found.only_b] == ["new"]
    assert [(x.key, x.shape, y.shape, x.dtype, y.dtype) for x, y in found.unlike] == [
        ("shape", (2, 3), (3, 2), "float32", "float32"),
        ("type", (2, 3), (2, 3), "float32", "float64"),
    ]
    assert ([each.info.key for each in found.changes], found.empty, found.by_variable) == (["same"], False, False)


def test_an_object_based_and_a_name_based_one(tmp_path: Path) -> None:
    """Keys are matched by the names of variables."""
    prefix = made.keras_checkpoint(tmp_path / "objects")
    objects = open_checkpoint(prefix)
    values = {entry.info.variable: entry.values.value() for entry in objects.entries.values() if entry.info.variable}
    values["top/bias"] = values["top/bias"] + 1
    names = open_checkpoint(made.saver_checkpoint(tmp_path / "names" / "c", values, {}))
    for a, b in ((objects, names), (names, objects)):
        found = difference(a, b, rows=0)
        assert (found.by_variable, found.only_a, found.only_b) == (True, (), ())
        assert [each.info.variable for each in found.changes if each.changed] == ["top/bias"]
        assert found.changes[0].key_of_b != found.changes[0].info.key
