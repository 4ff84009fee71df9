"""Files that hold arrays, against the packages that write them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.specs.pretrained import Format, NonFinite
from embexp.vectors.file_source import open_vectors

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
TOKENS = [f"t{n}" for n in range(7)]


def matrix(dtype: object = np.float32, rows: int = 7, dim: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, dim)).astype(dtype)


def write(path: Path, values: np.ndarray) -> None:
    """A matrix by the package of its form."""
    match path.suffix:
        case ".npy":
            np.save(path, values)
        case ".npz":
            np.savez(path, m=values)
        case ".safetensors":
            safetensors.numpy.save_file({"m": values}, path)
        case ".h5":
            with h5py.File(path, "w") as file:
                file.create_dataset("g/m", data=values)
        case ".parquet":
            pq.write_table(lists(values), path, row_group_size=2)
        case ".arrow":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, lists(values).schema) as ipc:
                ipc.write_table(lists(values), max_chunksize=2)


def lists(values: np.ndarray) -> pa.Table:
    flat = pa.array(values.reshape(-1))
    return pa.table({"m": pa.FixedSizeListArray.from_arrays(flat, values.shape[1])})


def opened(path: Path, **options):
    return open_vectors(path, cache=path.parent / "cache", **options)


def read_all(path: Path) -> tuple[object, np.ndarray]:
    source = opened(path)
    return source.tokens, source.read(0, source.rows)


def check(source, values: np.ndarray) -> None:
    """Whole, in every range, and mapped."""
    expected = values.astype(np.float32)
    rows, dim = values.shape
    assert (source.rows, source.dim) == (rows, dim)
    for start in range(rows + 1):
        for stop in range(start, rows + 1):
            read = source.read(start, stop)
            assert read.dtype == np.float32
            np.testing.assert_array_equal(read, expected[start:stop])
    mapped = source.memory_map()
    assert type(mapped) is np.ndarray
    assert mapped.dtype == np.float32
    assert mapped.flags.c_contiguous
    assert mapped.ctypes.data % 64 == 0
    np.testing.assert_array_equal(mapped, expected)
    mapped[:] = 0  # a private copy
    np.testing.assert_array_equal(source.read(0, rows), expected)
    with pytest.raises(IndexError, match="has no rows"):
        source.read(0, rows + 1)


FORMS = [".npy", ".npz", ".safetensors", ".h5", ".parquet", ".arrow"]


LITTLE_ONLY = (".safetensors", ".parquet", ".arrow")


@pytest.mark.parametrize(
    ("suffix", "dtype"), [(s, d) for s in FORMS for d in DTYPES if not (d[0] == ">" and s in LITTLE_ONLY)]
)
def test_every_type(suffix: str, dtype: str, tmp_path: Path) -> None:
    values = matrix(dtype)
    write(tmp_path / f"v{suffix}", values)
    source = opened(tmp_path / f"v{suffix}")
    assert source.dtype.newbyteorder("=") == np.dtype(dtype).newbyteorder("=")
    assert source.tokens is None
    check(source, values)


def test_bfloat16(tmp_path: Path) -> None:
    values = matrix(BFLOAT16)
    safetensors.numpy.save_file({"m": values}, tmp_path / "v.safetensors")
    source = opened(tmp_path / "v.safetensors")
    assert source.dtype == BFLOAT16
    check(source, values)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5"])
def test_nothing_is_copied_where_it_need_not_be(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"v{suffix}", matrix(rows=64, dim=16))
    source = opened(tmp_path / f"v{suffix}", non_finite=NonFinite.KEEP)
    before = set(tmp_path.rglob("*"))
    source.memory_map()
    if source.in_place:
        assert set(tmp_path.rglob("*")) == before
    assert source.in_place or suffix == ".h5"


def test_columns_in_the_order_of_fortran(tmp_path: Path) -> None:
    values = np.asfortranarray(matrix())
    np.save(tmp_path / "v.npy", values)
    np.savez_compressed(tmp_path / "v.npz", m=values)
    check(opened(tmp_path / "v.npy"), values)
    check(opened(tmp_path / "v.npz"), values)


def test_a_chosen_array(tmp_path: Path) -> None:
    one, two = matrix(), matrix(rows=2)
    arrays = {"one": one, "two": two, "three": np.ones(3, np.float32)}
    np.savez(tmp_path / "v.npz", **arrays)
    safetensors.numpy.save_file(arrays, tmp_path / "v.safetensors")
    with h5py.File(tmp_path / "v.h5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, chunks=array.shape, compression="gzip")
    for path in (tmp_path / "v.npz", tmp_path / "v.safetensors", tmp_path / "v.h5"):
        check(opened(path, key="two"), two)
        check(opened(path, key="one"), one)
        with pytest.raises(DataError, match=r"found 2 matrices; set key to one of one \[7, 3\], two"):
            opened(path)
        with pytest.raises(DataError, match=r"found no \w+ 'four'; the matrices in it are one \[7, 3\]"):
            opened(path, key="four")
        with pytest.raises(DataError, match=r"three: found an array of 1 dimensions, \(3,\), expected 2, rows and dim"):
            opened(path, key="three")
    np.save(tmp_path / "v.npy", one)
    with pytest.raises(DataError, match=r"found a key, 'one', but a .npy file holds one array only"):
        opened(tmp_path / "v.npy", key="one")


def test_pickles_are_never_read(tmp_path: Path) -> None:
    objects = np.array([["a", 1], ["b", None]], object)
    np.save(tmp_path / "v.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "v.npz", m=objects)
    for name in ("v.npy", "v.npz"):
        with pytest.raises(DataError, match="found pickled Python objects, which are never read"):
            opened(tmp_path / name)


@pytest.mark.parametrize("suffix", FORMS)
def test_truncated(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"v{suffix}"
    write(path, matrix(rows=100))
    whole = path.read_bytes()
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=rf"v\{suffix}"):
            read_all(path)


@pytest.mark.parametrize("suffix", FORMS)
def test_no_such_numbers(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"v{suffix}"
    write(path, np.arange(6).reshape(2, 3))
    with pytest.raises(DataError, match=r"expected float16, bfloat16|of type I64|no column of lists or of floating"):
        opened(path)
    if suffix != ".arrow":
        write(path, np.zeros((0, 3), np.float32))
        with pytest.raises(DataError, match=r"found 0 rows of dimension 3, expected at least one|no whole"):
            opened(path)


BROKEN = {
    "huge header": ((1 << 40).to_bytes(8, "little") + b"{}", "its header would be"),
    "no JSON": ((4).to_bytes(8, "little") + b"{ab}", "its header is no JSON"),
    "no object": ((2).to_bytes(8, "little") + b"[]", "its header is no JSON object"),
    "no offsets": ((22).to_bytes(8, "little") + b'{"m":{"shape":[2, 3]}}', "lacks dtype, shape or data_offsets"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_safetensors(case: str, tmp_path: Path) -> None:
    data, said = BROKEN[case]
    (tmp_path / "v.safetensors").write_bytes(data)
    with pytest.raises(DataError, match=said):
        opened(tmp_path / "v.safetensors")


def test_safetensors_whose_offsets_disagree(tmp_path: Path) -> None:
    header = json.dumps({"m": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 20]}}).encode()
    (tmp_path / "v.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    with pytest.raises(DataError, match=r"m: found 20 bytes, expected 24 for the shape \[2, 3\]"):
        opened(tmp_path / "v.safetensors")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_tables(suffix: str, tmp_path: Path) -> None:
    values = matrix()
    columns = {
        "fixed": lists(values)["m"],
        "any": pa.array(values.tolist(), pa.list_(pa.float32())),
        "large": pa.array(values.tolist(), pa.large_list(pa.float64())),
    }
    tables = {
        "with tokens": (pa.table({"word": TOKENS, "m": columns["fixed"]}), TOKENS),
        "list": (pa.table({"m": columns["any"], "word": TOKENS}), TOKENS),
        "large list": (pa.table({"m": columns["large"]}), None),
        "columns": (pa.table({"n": range(7), "word": TOKENS, **{f"d{n}": values[:, n] for n in range(3)}}), TOKENS),
        "dictionary": (pa.table({"word": pa.array(TOKENS).dictionary_encode(), "m": columns["fixed"]}), TOKENS),
    }  # fmt: skip
    path = tmp_path / f"v{suffix}"
    for table, tokens in tables.values():
        save(table, path)
        source = opened(path)
        assert (None if source.tokens is None else source.tokens.to_pylist()) == tokens
        check(source, values)


def save(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as ipc:
            ipc.write_table(table, max_chunksize=3)


WRONG_TABLES = {
    "null row": ({"m": [[1.0], [2.0], [3.0], [4.0], None]}, "row 5: found null, expected 1 numbers"),
    "null number": ({"m": [[1.0, 1.0]] * 4 + [[2.0, None]]}, "row 5: found null at place 2, expected 2 numbers"),
    "another length": ({"m": [[1.0, 1.0]] * 4 + [[2.0]]}, "row 5: found 1 numbers, expected 2"),
    "null token": ({"t": ["a", None], "m": [[1.0], [2.0]]}, "row 2: found null in column 't', expected a token"),
    "two columns of text": ({"t": ["a"], "u": ["b"], "m": [[1.0]]}, "found 2 columns of text; set token_column"),
    "two columns of lists": ({"m": [[1.0]], "n": [[1.0]]}, "found 2 columns of lists, expected a key .*: m, n"),
    "types of columns": ({"a": pa.array([1.0], "f4"), "b": [1.0]}, "several types, .*: a float, b double"),
    "no numbers": ({"t": ["a"]}, "found no column of lists or of floating-point numbers"),
}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("case", WRONG_TABLES)
def test_wrong_tables(case: str, suffix: str, tmp_path: Path) -> None:
    columns, said = WRONG_TABLES[case]
    save(pa.table(columns), tmp_path / f"v{suffix}")
    with pytest.raises(DataError, match=said):
        read_all(tmp_path / f"v{suffix}")


def test_chosen_columns(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    save(pa.table({"t": ["a"], "u": ["b"], "m": [[1.0]], "n": [[2.0]]}), path)
    source = opened(path, key="n", token_column="u")
    assert (source.tokens.to_pylist(), source.read(0, 1).tolist()) == (["b"], [[2.0]])
    with pytest.raises(DataError, match=r"found no column of text 'm'; it has t, u, m, n"):
        opened(path, token_column="m")
    with pytest.raises(DataError, match=r"found no column of lists 't'; those in it are m, n"):
        opened(path, key="t", token_column="u")


def test_tokens_of_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as file:
        file["m"], file["words"], file["few"] = matrix(rows=2), ["café", "x y"], ["a"]
    assert opened(path, token_column="words").tokens.to_pylist() == ["café", "x y"]
    with pytest.raises(DataError, match=r"few: found object \[1\], expected 2 strings, one for each row"):
        assert opened(path, token_column="few").tokens
    with pytest.raises(DataError, match=r"found no dataset 'w'; those of one dimension are few, words"):
        opened(path, token_column="w")


def test_conversions_with_other_tokens(tmp_path: Path) -> None:
    save(pa.table({"t": ["a"], "u": ["b"], "m": [[1.0]]}), tmp_path / "v.parquet")
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["m"], file["t"], file["u"] = np.array([[1.0]]), ["a"], ["b"]
    for path, columns in (("v.parquet", ("t", "u")), ("v.h5", (None, "t", "u"))):
        for column in columns:
            source = opened(tmp_path / path, token_column=column)
            source.memory_map()
            tokens = None if source.tokens is None else source.tokens.to_pylist()
            assert tokens == {None: None, "t": ["a"], "u": ["b"]}[column]


def test_a_file_of_tokens(tmp_path: Path) -> None:
    values = matrix(rows=2)
    np.save(tmp_path / "v.npy", values)
    (tmp_path / "other.txt").write_bytes("é\r\nb c\r\n".encode())
    source = opened(tmp_path / "v.npy", tokens_file=tmp_path / "other.txt")
    assert source.tokens.to_pylist() == ["é", "b c"]
    assert source.digest != opened(tmp_path / "v.npy").digest
    (tmp_path / "v.tokens.txt").write_text("a\nb\n")
    assert opened(tmp_path / "v.npy").tokens.to_pylist() == ["a", "b"]
    (tmp_path / "v.tokens.txt").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match=r"v.tokens.txt: found 3 lines, expected 2, one for each row"):
        assert opened(tmp_path / "v.npy").tokens
    (tmp_path / "v.tokens.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match=r"v.tokens.txt, line 2: found bytes that are not UTF-8 \(b'\\xff'\)"):
        assert opened(tmp_path / "v.npy").tokens
    with pytest.raises(DataError, match=r"nowhere: there is no such file of tokens"):
        opened(tmp_path / "v.npy", tokens_file=tmp_path / "nowhere")


def test_formats_by_suffix_and_stated(tmp_path: Path) -> None:
    values = matrix()
    np.save(tmp_path / "v.npy", values)
    (tmp_path / "v.npy").rename(tmp_path / "v.data")
    with pytest.raises(DataError, match=r"the suffix '.data' does not determine the format; set it to one of npy, npz"):
        opened(tmp_path / "v.data")
    check(opened(tmp_path / "v.data", format=Format.NPY), values)
    with pytest.raises(DataError, match=r"v.data: found no .npy file|v.data: found no safetensors file"):
        opened(tmp_path / "v.data", format=Format.SAFETENSORS)
    with pytest.raises(DataError, match="there is no such file"):
        opened(tmp_path / "w.npy")
    with pytest.raises(DataError, match="found a folder without a checkpoint, expected a file of vectors"):
        opened(tmp_path)
    with zipfile.ZipFile(tmp_path / "v.npy.zip", "w") as archive:
        archive.write(tmp_path / "v.data", "v.npy")
    with pytest.raises(DataError, match="found a compressed file of format npy; only these may be: text"):
        opened(tmp_path / "v.npy.zip")
    with pytest.raises(DataError, match="only hdf5, parquet, arrow can have a token_column, but this is npy"):
        opened(tmp_path / "v.data", format=Format.NPY, token_column="x")


@given(
    suffix=st.sampled_from([".npy", ".safetensors", ".parquet", ".h5"]),
    rows=st.integers(1, 40),
    dim=st.integers(1, 5),
    step=st.integers(1, 40),
    dtype=st.sampled_from(["<f2", "<f4", "<f8"]),
)
def test_ranges_hold_what_was_written(suffix, rows, dim, step, dtype, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("arrays") / f"v{suffix}"
    values = matrix(dtype, rows, dim)
    write(path, values)
    source = opened(path)
    read = np.concatenate([source.read(start, min(rows, start + step)) for start in range(0, rows, step)])
    np.testing.assert_array_equal(read, values.astype(np.float32))
