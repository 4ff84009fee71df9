"""Files of vectors that are made to break their reader: each is refused in a sentence, soon and without much memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import socket
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embexp.data.vocabularies.vocabulary import token_lines
from embexp.errors import DataError
from embexp.system import compressed
from embexp.vectors import array_files, columnar, word_vectors
from embexp.vectors.file_source import open_vectors

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)


def opened(path: Path, **options):
    return open_vectors(path, cache=path.parent / "cache", **options)


def refused(path: Path, said: str, **options) -> None:
    with pytest.raises(DataError, match=said):
        opened(path, **options).memory_map()


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin-1") + VALUES.tobytes()


HEADERS = {
    "unclosed": ("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3", "its header is"),
    "nested": ("{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 9000, "its header is"),
    "indented": ("  {\n 'descr': '''", "its header is"),
    "code": ("{'descr': '<f4', 'fortran_order': False, 'shape': __import__('os').times()}", "its header is"),
    "huge": ("{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000000000, 3)}", "the file is cut short"),
    "digits": (f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9' * 5000}, 3)}}", "its header is"),
    "negative": ("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 3)}", "its shape is"),
    "no type": ("{'descr': 'spam', 'fortran_order': False, 'shape': (4, 3)}", "its type is 'spam'"),
    "long": ("{" + " " * 20_000, "its header would be 20,001 bytes long"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_of_npy(case: str, tmp_path: Path) -> None:
    header, said = HEADERS[case]
    (tmp_path / "v.npy").write_bytes(npy(header))
    refused(tmp_path / "v.npy", f"v.npy: this is not a .npy file: .*{said}")


def zipped(path: Path, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("m.npy", data)
    return path


def test_a_zip_bomb(tmp_path: Path) -> None:
    bomb = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3)}") + bytes(100_000_000)
    path = zipped(tmp_path / "v.npz", bomb)
    refused(path, r"v.npz: m: found 100,000,115 bytes in the archive, expected 115 according to its header")
    assert not list((tmp_path / "cache").rglob("array.npy"))


def test_an_array_that_has_no_room_when_unpacked_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sizes agree: 8 MB of zeros are an array like any other, in 8 kB."""
    np.savez_compressed(tmp_path / "v.npz", m=np.zeros((2000, 1000), np.float32))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=7_000_000))
    monkeypatch.setattr(array_files, "_unpacked", lambda *_: pytest.fail("it was unpacked"))
    refused(
        tmp_path / "v.npz",
        "v.npz: m: found 8,000,128 bytes when unpacked, but the disk of the cache has only 7,000,000",
    )


def test_unpacking_tells_how_far_it_is(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "v.npz", m=np.zeros((2000, 1000), np.float32))
    said: list[tuple[str, float]] = []
    opened(tmp_path / "v.npz", progress=lambda stage, done: said.append((stage, done)))
    done = [each for stage, each in said if stage == "unpacking v.npz"]
    assert len(done) == 8  # megabytes
    assert done == sorted(done)
    assert done[-1] == 1


@pytest.mark.parametrize("form", ["v.npz", "v.txt.zip"])
def test_an_encrypted_zip(form: str, tmp_path: Path) -> None:
    data = zipped(tmp_path / form, npy("{}")).read_bytes()
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.index(signature) + place
        data = data[:at] + bytes([data[at] | 1]) + data[at + 1 :]
    (tmp_path / form).write_bytes(data)
    refused(tmp_path / form, "encrypted", format="glove" if form == "v.txt.zip" else None)


@pytest.mark.parametrize("how", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_data_in_a_zip(how: int, tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "v.npz", npy("{" + "x" * 300), how).read_bytes())
    data[60:90] = bytes(30)
    (tmp_path / "v.npz").write_bytes(data)
    refused(tmp_path / "v.npz", "v.npz: found no whole .npz file")


ENTRIES = {
    "infinite": '{"m": {"dtype": "F32", "shape": [4, 1e999], "data_offsets": [0, 48]}}',
    "digits": f'{{"m": {{"dtype": "F32", "shape": [4, {"9" * 5000}], "data_offsets": [0, 48]}}}}',
    "nested": "[" * 100_000,
    "negative": '{"m": {"dtype": "F32", "shape": [-4, -3], "data_offsets": [0, 48]}}',
    "no list": '{"m": {"dtype": "F32", "shape": 12, "data_offsets": [0, 48]}}',
    "no object": '{"m": 3}',
    "three": '{"m": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48, 96]}}',
    "surrogate": '{"\\ud800": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]}}',
    "type": '{"m": {"dtype": ["F32"], "shape": [4, 3], "data_offsets": [0, 48]}}',
}


@pytest.mark.parametrize("case", ENTRIES)
def test_headers_of_safetensors(case: str, tmp_path: Path) -> None:
    header = ENTRIES[case].encode()
    (tmp_path / "v.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + VALUES.tobytes())
    refused(tmp_path / "v.safetensors", "found a header that lacks dtype, shape or data_offsets|its header is no JSON")


def h5(path: Path, write: Callable[[h5py.File], object]) -> Path:
    with h5py.File(path, "w") as file:
        write(file)
    return path


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((4, 3), "<f4")
    layout[:] = h5py.VirtualSource("secret.h5", "m", (4, 3))
    file.create_virtual_dataset("m", layout)


def some_chunks(file: h5py.File) -> None:
    file.create_dataset("m", (1000, 3), "<f4", chunks=(10, 3))[:10] = 1.0


HDF5 = {
    "never written": (lambda file: file.create_dataset("m", (10**8, 10**8), "<f4"), "found 0 bytes of it in the file"),
    "no chunks": (
        lambda file: file.create_dataset("m", (10**15, 10), "<f4", chunks=(1000, 10)),
        "found 0 of its 1,000,000,000,000 chunks",
    ),
    "some chunks": (some_chunks, "found 1 of its 100 chunks in the file"),
    "huge chunks": (
        lambda file: file.create_dataset("m", (10**9, 1), "<f4", chunks=(10**9, 1), compression="gzip"),
        "found chunks of 4,000,000,000 bytes",
    ),
    "external": (
        lambda file: file.create_dataset("m", (4, 3), "<f4", external=[("secret", 0, 48)]),
        r"m: its values are in other files \(external storage\), which are never read",
    ),
    "virtual": (virtual, "m: it is virtual: its values are in other datasets, which are never read"),
    "external link": (lambda file: file.update({"m": h5py.ExternalLink("secret.h5", "m")}), "found no dataset of two"),
    "soft link": (lambda file: file.update({"m": h5py.SoftLink("/m")}), "found no dataset of two dimensions"),
}


@pytest.mark.parametrize("case", HDF5)
def test_hdf5(case: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["m"] = VALUES
    (tmp_path / "secret").write_bytes(VALUES.tobytes())
    write, said = HDF5[case]
    refused(h5(tmp_path / "v.h5", write), said)


def test_damaged_hdf5(tmp_path: Path) -> None:
    """At every place of a small file; most of them were a RuntimeError, a KeyError or a TypeError."""
    file = io.BytesIO()
    with h5py.File(file, "w", libver="earliest") as made:
        made.create_dataset("m", data=VALUES, chunks=(2, 3), compression="gzip")
    whole, refusals = file.getvalue(), 0
    for at in range(0, min(len(whole), 1600), 7):
        path = tmp_path / f"{at}.h5"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            opened(path).read(0, 4)
        except DataError:
            refusals += 1
    assert refusals > 20


def test_many_strings_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "_FEW_TOKENS", 4)
    monkeypatch.setattr(array_files, "_TOKEN_BYTES", 0)
    rows = 64

    def write(file: h5py.File) -> None:
        file["m"] = np.ones((rows, 2), np.float32)
        file.create_dataset("tokens", data=["x" * 4000] + [""] * (rows - 1), dtype=h5py.string_dtype())

    path = h5(tmp_path / "v.h5", write)
    data = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        first = file["tokens"].id.get_offset()
    data[first : first + 16 * rows] = data[first : first + 16] * rows  # all at the place of the first
    path.write_bytes(data)
    source = opened(path, token_column="tokens")
    with pytest.raises(DataError, match="found strings of more bytes than the file has"):
        source.tokens  # noqa: B018


def arrow(path: Path, array: pa.Array) -> Path:
    batch = pa.record_batch({"token": pa.array(["aa", "bb", "cc", "dd"]), "m": array})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as ipc:
        ipc.write_batch(batch)
    return path


def test_arrow_with_offsets_outside_of_its_numbers(tmp_path: Path) -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 3, 6, 9, 12], pa.int32()), pa.array(VALUES.reshape(-1)))
    path = arrow(tmp_path / "v.arrow", lists)
    data, offsets = path.read_bytes(), struct.pack("<5i", 0, 3, 6, 9, 12)
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, struct.pack("<5i", *(3 * n + 2**30 for n in range(5)))))
    refused(path, "v.arrow: batch 1 can't be read")


def test_arrow_with_tokens_outside_of_its_text(tmp_path: Path) -> None:
    path = arrow(tmp_path / "v.arrow", pa.FixedSizeListArray.from_arrays(pa.array(VALUES.reshape(-1)), 3))
    data, offsets = path.read_bytes(), struct.pack("<5i", 0, 2, 4, 6, 8)
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, struct.pack("<5i", *(2 * n + 2**30 for n in range(5)))))
    with pytest.raises(DataError, match=r"v.arrow: batch 1 can't be read"):
        opened(path).tokens  # noqa: B018


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_lists_of_structs_beside_the_vectors(suffix: str, tmp_path: Path) -> None:
    table = pa.table({"m": VALUES.tolist(), "spans": [[{"start": 0, "stop": 1}]] * 4, "nested": [[[1.0]]] * 4})
    path = tmp_path / f"v{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as ipc:
            ipc.write_table(table)
    np.testing.assert_array_equal(opened(path).memory_map(), VALUES)


def test_parquet_of_one_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And some rows at a time, from whichever place."""
    monkeypatch.setattr(columnar, "_BATCH_ROWS", 7)
    values = np.arange(600, dtype=np.float32).reshape(200, 3)
    pq.write_table(pa.table({"m": values.tolist()}), tmp_path / "v.parquet")
    source = opened(tmp_path / "v.parquet")
    for start, stop in ((0, 10), (10, 50), (50, 51), (190, 200), (3, 3), (5, 180), (0, 200)):
        np.testing.assert_array_equal(source.read(start, stop), values[start:stop])


def test_text_in_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    token = pa.array([b"a", b"\xff\xfe", b"c", b"d"]).view(pa.string())
    pq.write_table(pa.table({"token": token, "m": VALUES.tolist()}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match=r"column 'token' can't be read: .*UTF"):
        opened(tmp_path / "v.parquet").tokens  # noqa: B018


TEXTS = {
    "digits": (b"9" * 5000 + b" 3\na 1 2 3\n", "found 1 field after the first|found a token and 3 numbers"),
    "a line": (b"a" + b" 1" * (1 << 20) + b"\n", "bytes without a line end, expected lines of vectors"),
    "blank lines before": (b"\n" * (1 << 20) + b"a 1 2\n", "line 1: found an empty line"),
    "blank lines between": (b"a 1 2\n" + b" \n" * (1 << 20) + b"b 1 2\n", "line 2: found an empty line"),
    "blank": (b"\n \n" * (1 << 20), "found only whitespace"),
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("case", TEXTS)
def test_texts(case: str, suffix: str, tmp_path: Path) -> None:
    data, said = TEXTS[case]
    path = tmp_path / f"v.txt{suffix}"
    path.write_bytes(gzip.compress(data, 1) if suffix else data)
    refused(path, said)


@pytest.mark.parametrize(
    ("content", "most"),
    [(b"\n" * (1 << 23), 1 << 21), (b"a 1 2\n" + b" \n" * (1 << 22), 1 << 21), (b"a" * (1 << 23), 1 << 22)],
    ids=["blank lines", "blanks behind", "a line"],
)
def test_what_waits_for_its_end_stays_small(content: bytes, most: int, tmp_path: Path) -> None:
    """Each block used to be joined with all that came before, so that memory and time grew with its square."""
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with compressed.opened(path) as (data, _):
            blocks = sum(1 for _ in word_vectors._blocks(str(path), data.read))
    except DataError:
        blocks = 0
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert blocks <= 1
    assert peak < most


def test_blank_lines_behind_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "_BLOCK_BYTES", 5)
    (tmp_path / "v.txt").write_bytes(b"a 1 2\nb 3 4" + b"\n \t\r\n" * 40 + b"  ")
    assert opened(tmp_path / "v.txt").memory_map().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("header", [b"3 1000000000000000\n", b"3 " + b"9" * 200 + b"\n"])
def test_word2vec_of_a_huge_dimension(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "v.bin").write_bytes(header + b"a " + bytes(100))
    refused(tmp_path / "v.bin", "found the dimension .*, expected at most 1,048,576")


KINDS = {
    "a FIFO": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a device": None,
    "a socket": None,
}


@pytest.mark.parametrize(
    "suffix", [".txt", ".bin", ".npy", ".npz", ".safetensors", ".h5", ".arrow", ".parquet", ".txt.gz"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file(kind: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    path = Path(f"v{suffix}")
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "a device":
            path.symlink_to("/dev/zero")
        elif kind == "a socket":
            listening.bind(str(path))
        else:
            KINDS[kind](path)
        refused(path, rf"v{suffix}: found {kind}, expected a file|found a folder without a checkpoint")


def test_a_fifo_of_tokens(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokens")
    np.save(tmp_path / "v.npy", VALUES)
    refused(tmp_path / "v.npy", "tokens: found a FIFO, expected a file", tokens_file=tmp_path / "tokens")
    with pytest.raises(DataError, match="found a FIFO, expected a file"):
        token_lines(tmp_path / "tokens")


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"v\xff.safetensors")
    header = json.dumps({"m": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + VALUES.tobytes())
    with pytest.raises(DataError) as caught:
        opened(path)
    assert "its name is not valid UTF-8" in str(caught.value)
    (tmp_path / "link.safetensors").symlink_to(path)
    np.testing.assert_array_equal(opened(tmp_path / "link.safetensors").memory_map(), VALUES)
