"""A matrix as one array that can be used where it lies."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError, RunError
from embexp.initialization import method
from embexp.system.machine import PeakMemory, anonymous_bytes


class Read:
    """Rows that can only be read, and remember in which pieces they were."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, (self.rows, self.dim) = values, values.shape
        self.reads: list[int] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        self.reads.append(stop - start)
        return self.values[start:stop]


def aligned(rows: int, dim: int) -> np.ndarray:
    """An array whose memory begins at a multiple of 64."""
    memory = np.empty(rows * dim * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 64
    values = memory[start : start + rows * dim * 4].view(np.float32).reshape(rows, dim)
    values[...] = np.arange(rows * dim).reshape(rows, dim)
    return values


def usable(array: np.ndarray) -> bool:
    return (
        type(array) is np.ndarray
        and array.dtype == np.float32
        and array.flags.c_contiguous
        and array.ctypes.data % 64 == 0
    )


def mapped_file_of(array: np.ndarray) -> object:
    """The mapping that an array's memory belongs to, or None."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def test_an_array_of_the_right_form_is_taken_as_it_is() -> None:
    values = aligned(5, 3)
    assert method.mapped(values).ctypes.data == values.ctypes.data


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_a_mapped_file_is_taken_as_it_is(tmp_path: Path, mode: str) -> None:
    np.save(tmp_path / "m.npy", aligned(5, 3))
    values = np.load(tmp_path / "m.npy", mmap_mode=mode)  # type: ignore[call-overload]
    found = method.mapped(values)
    assert usable(found)
    assert found.ctypes.data == values.ctypes.data


def test_a_file_is_mapped_and_never_written_to(tmp_path: Path) -> None:
    path = tmp_path / "m.npy"
    np.save(path, aligned(5, 3))
    before = path.read_bytes()
    found = method.mapped(path)
    assert usable(found)
    np.testing.assert_array_equal(found, aligned(5, 3))
    found[:] = 7
    del found
    assert path.read_bytes() == before
    np.testing.assert_array_equal(method.mapped(str(path)), aligned(5, 3))


@given(
    st.integers(1, 60),
    st.integers(1, 7),
    st.sampled_from(["float16", "float64", "bfloat16", ">f4", "unaligned", "fortran", "every second", "read"]),
)
def test_every_other_form_becomes_a_mapped_file(rows: int, dim: int, form: str) -> None:
    values = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float16)
    source: method.Source
    match form:
        case "bfloat16":
            values = source = values.astype(ml_dtypes.bfloat16)
        case "unaligned":
            source = np.empty(rows * dim * 4 + 64, np.uint8)[1 : 1 + rows * dim * 4].view(np.float32).reshape(rows, dim)
            source[...] = values
        case "fortran":
            source = np.asfortranarray(values.astype(np.float32).repeat(2, 0).repeat(2, 1))[::2, ::2]
        case "every second":
            source = np.repeat(values.astype(np.float32), 2, axis=0)[::2]
        case "read":
            source = Read(values.astype(np.float32))
        case _:
            source = values.astype(form)
    found = method.mapped(source)
    assert usable(found)
    np.testing.assert_array_equal(found, values.astype(np.float32))


def test_a_source_that_is_mapped_itself_is_not_read() -> None:
    class Mapped(Read):
        def memory_map(self) -> np.ndarray:
            return self.values

    source = Mapped(aligned(5, 3))
    assert method.mapped(source).ctypes.data == source.values.ctypes.data
    assert source.reads == []


@pytest.mark.skipif(anonymous_bytes() is None, reason="this system has no /proc/self/status")
def test_the_whole_is_never_in_anonymous_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.ones((200_000, 100), np.float64))
    with PeakMemory() as memory:
        found = method.mapped(tmp_path / "m.npy", folder=tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "m.npy"], "the file has no name"
    assert found.shape == (200_000, 100)
    assert float(found.sum(dtype=np.float64)) == 20_000_000
    assert memory.added is not None
    assert memory.added < 50_000_000  # of 80,000,000


def test_it_is_read_in_pieces() -> None:
    source = Read(np.zeros((100_000, 100), np.float32))
    method.mapped(source)
    assert sum(source.reads) == 100_000
    assert max(source.reads) * 400 <= 16 * 1024 * 1024


def test_where_there_is_no_room(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"file of 24 bytes for a matrix of 3 × 2 can't be written to .*gone: No such"):
        method.mapped(Read(np.zeros((3, 2), np.float32)), folder=tmp_path / "gone")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(3, np.float32), r"the array: found float32 of shape \(3,\), expected floating-point numbers"),
        (np.zeros((3, 2), np.int32), r"found int32 of shape \(3, 2\)"),
        (np.zeros((0, 2), np.float32), r"found float32 of shape \(0, 2\)"),
        (np.array([[None]]), r"found object of shape \(1, 1\)"),
    ],
    ids=["vector", "integers", "empty", "objects"],
)
def test_no_matrix(array: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        method.mapped(array)


def test_no_file_of_a_matrix(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npy: there is no such file"):
        method.mapped(tmp_path / "none.npy")
    (tmp_path / "text.npy").write_text("king 1 2\n")
    with pytest.raises(DataError, match=r"text\.npy: found no \.npy file of a matrix of floating-point numbers"):
        method.mapped(tmp_path / "text.npy")
    np.save(tmp_path / "method.npy", np.arange(6).reshape(2, 3))
    with pytest.raises(DataError, match=r"found int64 of shape \(2, 3\)"):
        method.mapped(tmp_path / "method.npy")
    np.save(tmp_path / "objects.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects"):
        method.mapped(tmp_path / "objects.npy")
    with pytest.raises(DataError, match=r"glove\.txt: there is no such file"):
        method.mapped(tmp_path / "glove.txt")


def test_a_source_that_gives_other_rows_than_it_says() -> None:
    source = Read(np.zeros((3, 2), np.float32))
    source.rows = 4
    with pytest.raises(ValueError, match=r"a source gave values of shape \(3, 2\), expected \(4, 2\)"):
        method.mapped(source)
