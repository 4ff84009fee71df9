"""Files that are mapped as 16 bits, or as 8 bits with a scale for each row."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from embexp.errors import DataError
from embexp.specs.pretrained import NonFinite
from embexp.specs.tables import RowType
from embexp.system import arrays
from embexp.vectors import stored
from embexp.vectors.file_source import FileSource, open_vectors

NARROW = {RowType.BFLOAT16: np.dtype(ml_dtypes.bfloat16), RowType.FLOAT16: np.dtype(np.float16)}
BOUND = 0.5 + 2.0**-16
"""Of an error, in scales: half a step by rounding to the nearest, and the rounding of int8 × scale to float32, which is
127 × 2**-24 of a scale at most."""


def matrix(rows: int = 7, dim: int = 4) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, dim)).astype(np.float32)


def opened(path: Path, kind: RowType, **options: object) -> FileSource:
    found = open_vectors(path, cache=path.parent / "cache", **options)  # type: ignore[arg-type]
    found.map_as(kind)
    return found


def converted(path: Path) -> list[Path]:
    return list((path.parent / "cache").glob("vectors-*"))


def bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint16)


def save(path: Path, tensors: dict[str, np.ndarray], beyond: int = 0) -> None:
    """A safetensors file whose data begins so many bytes beyond a multiple of 64."""
    data = safetensors.numpy.save(tensors)
    length = int.from_bytes(data[:8], "little")
    room = (beyond - 8 - length) % 64
    path.write_bytes((length + room).to_bytes(8, "little") + data[8 : 8 + length] + b" " * room + data[8 + length :])


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
@pytest.mark.parametrize("kind", NARROW)
def test_a_file_of_16_bits_is_mapped_in_place(tmp_path: Path, kind: RowType, suffix: str) -> None:
    values, path = matrix().astype(NARROW[kind]), tmp_path / f"v{suffix}"
    np.save(path, values) if suffix == ".npy" else save(path, {"v": values})
    source = opened(path, kind)
    mapping = source.memory_map()
    assert (mapping.dtype, source.dtype, source.in_place) == (values.dtype, values.dtype, True)
    np.testing.assert_array_equal(bits(mapping), bits(values))
    np.testing.assert_array_equal(source.read(2, 5), values[2:5].astype(np.float32), strict=True)
    assert arrays.can_be_taken_over(mapping)
    assert not converted(path)


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("stored_as", ["<f4", "<f8", ">f4", "unaligned"])
def test_other_files_are_converted_once(
    tmp_path: Path, kind: RowType, stored_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "CHUNK_BYTES", 40)  # blocks of two rows
    values, path = matrix(), tmp_path / "v.npy"
    if stored_as == "unaligned":
        path = tmp_path / "v.safetensors"
        values = values.astype(NARROW[kind])
        save(path, {"v": values}, beyond=8)
    else:
        np.save(path, values.astype(stored_as))
    expected = values.astype(NARROW[kind])
    for _ in range(2):
        source = opened(path, kind)
        np.testing.assert_array_equal(source.read(1, 4), expected[1:4].astype(np.float32), strict=True)
        np.testing.assert_array_equal(bits(source.memory_map()), bits(expected))
    assert len(converted(path)) == 1
    wide = open_vectors(path, cache=tmp_path / "cache")
    np.testing.assert_array_equal(wide.memory_map(), values.astype(np.float32), strict=True)  # the other is no answer


def test_a_number_beyond_float16_says_so(tmp_path: Path) -> None:
    values = matrix()
    values[3, 1] = -70_000
    np.save(tmp_path / "v.npy", values)
    with pytest.raises(
        DataError, match=r"row 4: found 70000, but the largest float16 number is 65,504; " r".*dtype=bfloat16"
    ):
        opened(tmp_path / "v.npy", RowType.FLOAT16).memory_map()
    assert np.isinf(opened(tmp_path / "v.npy", RowType.FLOAT16, non_finite=NonFinite.KEEP).memory_map()[3, 1])
    assert opened(tmp_path / "v.npy", RowType.BFLOAT16).memory_map()[3, 1] == -70_144  # 137 × 512


ROWS = arrays_of.arrays(
    np.float32,
    arrays_of.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@given(ROWS)
@example(np.array([[np.finfo(np.float32).max]], np.float32))
def test_8_bits_are_off_by_half_a_scale_at_most(values: np.ndarray) -> None:
    numbers, scales = stored.quantised(values)
    assert (numbers.dtype, scales.dtype, scales.shape) == (np.int8, np.float32, (len(values),))
    largest = np.abs(values).max(axis=1)
    below = np.float32(2.0**128 / 127 * (1 - 2.0**-23))  # 127 times it is finite
    np.testing.assert_array_equal(scales, np.clip(largest / np.float32(127), np.float32(2.0**-126), below))
    read = arrays.widened(numbers, scales)
    wide = scales.astype(np.float64)[:, None]
    assert (np.abs(read - values.astype(np.float64)) <= BOUND * wide).all()
    # Symmetric, and to the nearest: no other number of 8 bits is nearer.
    np.testing.assert_array_equal(stored.quantised(-values)[0], -numbers)
    for other in (-1, 1):
        apart = np.abs((numbers.astype(np.float64) + other) * wide - values)
        assert (apart >= np.abs(numbers * wide - values) - 2.0**-40 * wide).all()


def test_ties_go_to_even_numbers() -> None:
    scale = 2.0**-3
    values = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]], np.float32) * np.float32(scale)
    numbers, scales = stored.quantised(values)
    assert scales.tolist() == [scale]
    assert numbers.tolist() == [[127, 0, 2, 2, 0, -2, -2]]


def test_rows_of_8_bits_have_the_direction_of_the_files(tmp_path: Path) -> None:
    values = matrix(2_000, 64)
    np.save(tmp_path / "v.npy", values)
    source = opened(tmp_path / "v.npy", RowType.INT8)
    read, exact = source.read(0, 2_000).astype(np.float64), values.astype(np.float64)
    lengths = [np.linalg.norm(each, axis=1) for each in (read, exact)]
    cosine = (read * exact).sum(axis=1) / lengths[0] / lengths[1]
    # The angle between v and v + e is at most arcsin(|e| / |v|), and |e| ≤ √dim × the bound of a number.
    error = np.sqrt(64) * BOUND * np.abs(exact).max(axis=1) / 127 * (1 + 2.0**-23)
    worst = np.sqrt(1 - (error / lengths[1]) ** 2)
    assert (cosine >= worst).all()
    assert worst.min() >= 0.999


def test_a_float_file_is_mapped_as_8_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "CHUNK_BYTES", 40)
    values = matrix()
    np.save(tmp_path / "v.npy", values)
    numbers, scales = stored.quantised(values)
    for _ in range(2):
        source = opened(tmp_path / "v.npy", RowType.INT8)
        np.testing.assert_array_equal(source.read(2, 6), arrays.widened(numbers, scales)[2:6], strict=True)
        np.testing.assert_array_equal(source.memory_map(), numbers, strict=True)
        np.testing.assert_array_equal(source.scales, scales, strict=True)
        assert arrays.can_be_taken_over(source.memory_map())
        assert arrays.can_be_taken_over(source.scales)
    assert len(converted(tmp_path / "v.npy")) == 1


@pytest.mark.parametrize("beyond", [0, 8])
@pytest.mark.parametrize(("name", "shape"), [("scale", (16,)), ("v.scale", (16, 1)), ("v_scale", (16,))])
def test_a_file_of_8_bits_keeps_its_numbers(tmp_path: Path, beyond: int, name: str, shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(0).integers(-90, 90, (16, 4)).astype(np.int8)  # none of 127, as others may scale
    scales = np.random.default_rng(1).uniform(0.01, 0.02, 16).astype(np.float32)
    path = tmp_path / "v.safetensors"
    save(path, {"v": numbers, name: scales.reshape(shape)}, beyond)
    source = opened(path, RowType.INT8)
    np.testing.assert_array_equal(source.memory_map(), numbers, strict=True)
    np.testing.assert_array_equal(source.scales, scales, strict=True)
    assert bool(converted(path)) == (beyond > 0)
    expected = numbers.astype(np.float32) * scales[:, None]
    np.testing.assert_array_equal(source.read(1, 6), expected[1:6], strict=True)
    wide = open_vectors(path, cache=tmp_path / "cache")
    assert (wide.dtype, wide.scales) == (np.int8, None)
    np.testing.assert_array_equal(wide.read(0, 16), expected, strict=True)
    np.testing.assert_array_equal(wide.memory_map(), expected, strict=True)
    np.testing.assert_array_equal(wide.read(0, 16), expected, strict=True)  # as before the conversion


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"v": np.zeros((7, 4), np.int8)},
            r"v: found numbers of type I8, expected a tensor v_scale, v\.scale or scale",
        ),
        (
            {"v": np.zeros((7, 4), np.int8), "scale": np.ones((4,), np.float32)},
            r"scale: found the shape \[4\], .*\[7\]",
        ),
        ({"v": np.zeros((7, 4), np.int8), "scale": np.ones((7,), np.int32)}, "scale: found numbers of type I32"),
        ({"v": np.zeros((7, 4), np.int8), "scale": np.full(7, 3e37, np.float32)}, "row 1: found the scale 3"),
        ({"v": np.zeros((7, 4), np.int8), "scale": np.full(7, np.nan, np.float32)}, "row 1: found the scale nan"),
    ],
)
def test_faults_of_scales(tmp_path: Path, tensors: dict[str, np.ndarray], message: str) -> None:
    safetensors.numpy.save_file(tensors, tmp_path / "v.safetensors")
    with pytest.raises(DataError, match=message):
        opened(tmp_path / "v.safetensors", RowType.INT8).memory_map()


def test_8_bits_hold_no_nan(tmp_path: Path) -> None:
    values = matrix()
    values[2, 3] = np.nan
    np.save(tmp_path / "v.npy", values)
    for policy in (NonFinite.ERROR, NonFinite.KEEP):
        with pytest.raises(DataError, match="row 3: found nan at place 4 of 4"):
            opened(tmp_path / "v.npy", RowType.INT8, non_finite=policy).memory_map()
    values[2, 3] = 0
    source = opened(tmp_path / "v.npy", RowType.INT8, non_finite=NonFinite.ZERO)
    np.testing.assert_array_equal(source.memory_map(), stored.quantised(values)[0], strict=True)


def test_other_files_hold_no_int8(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((7, 4), np.int8))
    with pytest.raises(DataError, match="in safetensors files, int8 with one scale per row"):
        opened(tmp_path / "v.npy", RowType.INT8)
