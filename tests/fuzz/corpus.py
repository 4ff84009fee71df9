"""Small files, good and hostile, of every form that is read. All of them are made here."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embexp.system import digests
from tests.fuzz import contents
from tests.fuzz.contents import Content, Files, lines, plain

VALUES = np.arange(24, dtype=np.float32).reshape(8, 3) / 7
TOKENS = [f"töken{number}" for number in range(8)]
HEADER = b"{'descr': '%s', 'fortran_order': %s, 'shape': %s, }      \n"


def text() -> list[Files]:
    """GloVe, word2vec's text, with a header and without, odd blanks, and long lines."""
    rows = [f"{token} {' '.join(f'{x:.4f}' for x in row)}\n" for token, row in zip(TOKENS, VALUES, strict=True)]
    glove = "".join(rows)
    return [
        {"v.txt": lines(glove)},
        {"v.txt": lines("8 3\n" + glove)},
        {"v.vec": lines("8 3\r\n" + glove.replace("\n", "\r\n"))},
        {"v.txt": lines(glove + "\n" * 40)},
        {"v.txt": lines("\n" * 40 + glove)},
        {"v.txt": lines("a b c 1 2 3\n\td\t1e5\t-2e-5\tnan\ne 1 2 inf  \n")},
        {"v.txt": plain(b"8 100000000000\n" + b"a 1 2 3\n" * 8)},
        {"v.txt": plain(b"9" * 4400 + b" 3\na 1 2 3\n")},
        {"v.txt": plain(b"a " + b"1 " * 60_000 + b"\n")},
        {"v.txt.gz": contents.gzipped(lines(glove))},
        {"v.txt.gz": contents.gzipped(plain(b"\n" * 200_000))},
        {"v.txt.zip": contents.zipped({"v.txt": lines(glove)})},
        {"v.txt.zip": contents.zipped({"v.txt": lines(glove)}, zipfile.ZIP_BZIP2)},
        {"v.txt.zip": contents.zipped({"v.txt": lines(glove)}, zipfile.ZIP_LZMA)},
    ]


def word_tests() -> list[Files]:
    """Rated pairs, analogies and categories."""
    pairs = "Word 1,Word 2,Human (mean)\n" + "".join(
        f"{token},tiger,{number}.5\n" for number, token in enumerate(TOKENS)
    )
    return [
        {"pairs.csv": lines(pairs)},
        {"pairs.tsv": lines("# pairs\n" + pairs.replace(",", "\t"))},
        {"pairs.txt": lines(pairs.partition("\n")[2].replace(",", " "))},
        {"questions.txt": lines(": capitals\nAthens Greece Oslo Norway\n: gram1\n" + "a b c d\n" * 5)},
        {"categories.txt": lines("word,category\n" + "".join(f"{token},{len(token)}\n" for token in TOKENS))},
        {"categories.txt": lines(": kind\ncat dog\n: other\noak\n")},
    ]


def word2vec() -> list[Files]:
    """word2vec's binary form."""
    rows = [token.encode() + b" " + row.tobytes() for token, row in zip(TOKENS, VALUES, strict=True)]
    return [
        {"v.bin": Content((b"8 3\n", *rows))},
        {"v.bin": Content((b"8 3\n", *(row + b"\n" for row in rows)))},
        {"v.bin": plain(b"8 1000000000000000\n" + b"".join(rows))},
        {"v.bin": plain(b"1000000000000 1\n" + b" \0\0\0\0" * 20_000)},
        {"v.bin.gz": contents.gzipped(Content((b"8 3\n", *rows)))},
    ]


def npy() -> list[Files]:
    """`.npy` files of every type and order, and headers that no writer writes."""
    found = [
        {"v.npy": contents.npy(HEADER % (kind, order, b"(8, 3)"), VALUES.astype(kind.decode()).tobytes())}
        for kind in (b"<f4", b">f4", b"<f2", b"<f8", b"<i4", b"|b1")
        for order in (b"False", b"True")
    ]
    hostile = [
        HEADER % (b"|O", b"False", b"(8, 3)"),
        HEADER % (b"<f4", b"False", b"(10000000000000000, 3)"),
        HEADER % (b"<f4", b"False", b"(0, 3)"),
        HEADER % (b"<f4", b"False", b"(-8, 3)"),
        HEADER % (b"<f4", b"False", b"(8, 3"),
        HEADER % (b"<f4", b"1", b"[8, 3]"),
        b"{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (4, 3), }\n",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"(" * 3000 + b"), }\n",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (8, 3), }\n" + b" " * 20_000,
        b"{",
        b"",
    ]
    return found + [{"v.npy": contents.npy(header, VALUES.tobytes())} for header in hostile]


def npz() -> list[Files]:
    """`.npz` files: stored, compressed, with several arrays, and with sizes that the header denies."""
    good = contents.npy(HEADER % (b"<f4", b"False", b"(8, 3)"), VALUES.tobytes())
    labels = contents.npy(HEADER % (b"<i8", b"False", b"(8,)"), np.arange(8).tobytes())
    large = contents.npy(HEADER % (b"<f4", b"False", b"(800, 3)"), VALUES.tobytes())
    zeros = contents.npy(HEADER % (b"<f4", b"False", b"(2, 3)"), bytes(100_000))
    return [
        {"v.npz": contents.zipped({"m.npy": good}, zipfile.ZIP_STORED)},
        {"v.npz": contents.zipped({"m.npy": good, "labels.npy": labels})},
        {"v.npz": contents.zipped({"m.npy": good}, zipfile.ZIP_BZIP2)},
        {"v.npz": contents.zipped({"m.npy": good}, zipfile.ZIP_LZMA)},
        {"v.npz": contents.zipped({"m.npy": large})},
        {"v.npz": contents.zipped({"m.npy": zeros})},
        {"v.npz": contents.zipped({"m": good, "../m.npy": good})},
    ]


def safetensors() -> list[Files]:
    """safetensors files."""
    entry = {"dtype": "F32", "shape": [8, 3], "data_offsets": [0, 96]}
    half = {"dtype": "BF16", "shape": [8, 3], "data_offsets": [96, 144]}
    eighth, scale = (
        {"dtype": "I8", "shape": [8, 3], "data_offsets": [96, 120]},
        entry | {"shape": [8, 1], "data_offsets": [0, 32]},
    )
    data = VALUES.tobytes() + bytes(48)
    return [
        {"v.safetensors": contents.safetensors(header, data)}
        for header in (
            {"m": entry},
            {"__metadata__": {"format": "pt"}, "m": entry},
            {"m": half, "ids": {"dtype": "I64", "shape": [12], "data_offsets": [0, 96]}},
            {"m": eighth, "m_scale": scale},
            {"m": eighth, "scale": scale | {"shape": [8]}},
            {"m": entry | {"shape": [8, 1e300]}},
            {"m": entry | {"shape": [True, 24]}},
            {"m": entry | {"data_offsets": [96, 0]}},
            {"m\ud800": entry},
            {"m": "[" * 500},
        )
    ]


def hdf5() -> list[Files]:
    """HDF5 files: whole, in chunks, compressed, with tokens, with links, and with values that are elsewhere."""
    return [{"v.h5": plain(_hdf5(write, latest))} for write in _HDF5 for latest in (False, True)]


def _hdf5(write: Callable[[h5py.File], object], latest: bool) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w", libver="latest" if latest else "earliest") as opened:
        write(opened)
    return file.getvalue()


def _chunked(file: h5py.File) -> None:
    file.create_dataset("g/m", data=VALUES, chunks=(2, 3), compression="gzip", shuffle=True, fletcher32=True)


def _with_tokens(file: h5py.File) -> None:
    file.create_dataset("m", data=VALUES)
    file.create_dataset("tokens", data=TOKENS, dtype=h5py.string_dtype())
    file.create_dataset("short", data=np.array([token.encode()[:4] for token in TOKENS], "S4"))


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((8, 3), "<f4")
    layout[:] = h5py.VirtualSource("/etc/hostname", "m", (8, 3))
    file.create_virtual_dataset("m", layout)


def _linked(file: h5py.File) -> None:
    file["m"] = VALUES
    file["soft"] = h5py.SoftLink("/m")
    file["again"] = h5py.SoftLink("/again")
    file["outside"] = h5py.ExternalLink("/etc/hostname", "/m")
    file["g/g"] = file["/"]


_HDF5: tuple[Callable[[h5py.File], object], ...] = (
    lambda file: file.create_dataset("m", data=VALUES),
    _chunked,
    _with_tokens,
    _virtual,
    _linked,
    lambda file: file.create_dataset("m", (10**15, 10), "<f4", chunks=(1000, 10)),
    lambda file: file.create_dataset("m", (10**8, 10**8), "<f4"),
    lambda file: file.create_dataset("m", (8, 3), "<f4", external=[("/etc/hostname", 0, 96)]),
    lambda file: file.create_dataset("m", data=VALUES, chunks=(4, 3), compression="lzf", scaleoffset=None),
)


def arrow() -> list[Files]:
    """Arrow files: lists of one length and of several, columns, compressed, and with columns that nobody asks for."""
    options = (None, "lz4", "zstd")
    return [{"v.arrow": plain(_arrow(table, options[number % 3]))} for number, table in enumerate(tables() * 2)]


def parquet() -> list[Files]:
    """Parquet files of the same tables."""
    how = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
    return [
        {"v.parquet": plain(_parquet(table, how[number % 6], number % 4 < 2))}
        for number, table in enumerate(tables() * 2)
    ]


def tables() -> list[pa.Table]:
    """Vectors as the columns of tables, with tokens and with other columns."""
    flat = pa.array(VALUES.reshape(-1))
    fixed = pa.FixedSizeListArray.from_arrays(flat, 3)
    several = pa.ListArray.from_arrays(pa.array(range(0, 25, 3), pa.int32()), flat)
    large = pa.LargeListArray.from_arrays(pa.array(range(0, 25, 3), pa.int64()), flat.cast(pa.float64()))
    tokens = pa.array(TOKENS)
    extra = pa.array([[{"a": 1, "b": "x"}]] * 8)
    found = [
        {"m": fixed},
        {"token": tokens, "m": several},
        {"token": tokens.dictionary_encode(), "m": large},
        {"token": tokens.cast(pa.large_string()), "m": fixed, "extra": extra},
        {"a": pa.array(VALUES[:, 0]), "b": pa.array(VALUES[:, 1]), "n": pa.array(range(8))},
        {"m": fixed.cast(pa.list_(pa.float16(), 3)), "when": pa.array([0] * 8, pa.timestamp("s"))},
        {"m": pa.array([[1.0, 2.0], None, [3.0, None]] * 2, pa.list_(pa.float32()))},
    ]
    return [pa.table(columns) for columns in found]


def _arrow(table: pa.Table, compression: str | None) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as ipc:
        ipc.write_table(table, max_chunksize=3)
    return file.getvalue()


def _parquet(table: pa.Table, compression: str, dictionary: bool) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=3, compression=compression, use_dictionary=dictionary)
    return file.getvalue()


def checkpoints() -> list[Files]:
    """TensorFlow's checkpoints: by name, by object, in parts, incremental."""
    from tests.fuzz import bundles

    return bundles.all_kinds()


def keras() -> list[Files]:
    """Keras' files of weights, and other HDF5 files."""
    weights = _hdf5(_weights, False)
    return [
        {"m.weights.h5": plain(weights)},
        {"m.weights.h5": plain(_hdf5(_weights, True))},
        *({"m.weights.h5": files["v.h5"]} for files in hdf5()),
        *(
            {"m.keras": contents.zipped({"config.json": plain(b"{}"), "model.weights.h5": plain(weights)}, how)}
            for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        ),
    ]


def _weights(file: h5py.File) -> None:
    group = file.create_group("layers/dense")
    group["vars/0"] = VALUES
    group["vars"].attrs["name"] = "hidden"
    stored = group.create_dataset("vars/1", data=VALUES.astype(np.float16).view("V2"))
    stored.attrs["dtype"] = "bfloat16"
    file["optimizer/vars/0"] = np.int64(3)
    file["vars/10"] = np.array([b"text", b"more"], "S4")


USERS = "user,item,tags,rating,time\n" + "".join(f"u{n % 5},i{n % 7},a b,{n % 5 + 0.5},{n}\n" for n in range(40))


DATES = "".join(f"u{n % 5},i{n % 7},a b,{n % 5},2024-05-{n % 28 + 1:02}\n" for n in range(40))


def csv() -> list[Files]:
    """CSV files: quoted, with line ends in fields, with a mark, cut short."""
    return [
        {"d.csv": lines(USERS)},
        {"d.csv": lines(USERS.replace("\n", "\r\n"))},
        {"d.csv": lines("\ufeff" + USERS.replace("u1", '"u,1"').replace("u2", '"u\n""2"'))},
        {"d.csv": plain((USERS + '"').encode() + b"x" * 100_000)},
        {"d.csv": plain(b"user," * 20_000 + b"item,tags,rating,time\n1,2,3,4,5\n")},
        {"d.csv": plain(b"\n" * 100_000)},
        {"colons.csv": lines(USERS.replace(",", "::"))},
        {"blanks.csv": lines(USERS.replace("a b", "a").replace(",", " \t"))},
        {"utf16.csv": plain(USERS.encode("utf-16"))},
        {"headless.csv": lines(USERS.partition("\n")[2])},
        {"dates.csv": lines(USERS.partition("\n")[0] + "\n" + DATES)},
        {"d.csv.gz": contents.gzipped(lines(USERS))},
        {"d.csv.gz": contents.gzipped(plain(b"\n" * 200_000))},
        {"d.csv.zip": contents.zipped({"d.csv": lines(USERS)})},
        {"d.csv.xz": plain(lzma.compress(USERS.encode()))},
        {"d.csv.bz2": plain(bz2.compress(USERS.encode()))},
    ]


def recbole() -> list[Files]:
    """RecBole's atomic files, with those that are joined to them."""
    inter = "user_id:token\titem_id:token\ttags:token_seq\trating:float\ttime:float\n"
    inter += "".join(f"u{n % 5}\ti{n % 7}\ta b\t{n % 5 + 0.5}\t{n}\n" for n in range(40))
    item = "item_id:token\tprice:float\tgenre:token_seq\n" + "".join(f"i{n}\t{n}.5\tx y\n" for n in range(7))
    return [
        {"d.inter": lines(inter)},
        {"d.inter": lines(inter), "d.item": lines(item)},
        {"d.inter": lines(inter), "d.item": lines(item + "i0\t1\tz\n")},
    ]


def data_parquet() -> list[Files]:
    """Parquet files of examples."""
    table = pa.table(
        {
            "user": [f"u{n % 5}" for n in range(40)],
            "item": [n % 7 for n in range(40)],
            "tags": [["a", "b"][: n % 3] for n in range(40)],
            "rating": [n / 3 for n in range(40)],
            "time": pa.array(range(40), pa.timestamp("s")),
        }
    )
    typed = table.set_column(0, "user", table["user"].combine_chunks().dictionary_encode())
    how = ("none", "snappy", "gzip", "zstd")
    return [
        {"d.parquet": plain(_parquet(each, how[number % 4], number % 2 == 0))}
        for number, each in enumerate((table, typed, table.slice(0, 3), typed, table))
    ]


def data_json_lines() -> list[Files]:
    """JSON Lines of examples."""
    rows = [
        {"user": f"u{n % 5}", "item": {"id": n % 7}, "tags": ["a", "b"][: n % 3], "rating": n / 3 if n % 4 else None}
        for n in range(40)
    ]
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    return [{"d.jsonl": lines(whole)}, {"d.jsonl": lines(whole.replace("1.0", '"1"'))}]


def texts() -> list[Files]:
    """Labelled texts in lines, in CSV, in Parquet."""
    written = [(f"{'ab'[n % 2]}", f"wörd{n % 3} other words {n}") for n in range(30)]
    as_csv = "label,text\n" + "".join(f'{label},"{text}, ""quoted"""\n' for label, text in written)
    table = pa.table({"label": [label for label, _ in written], "text": [text for _, text in written]})
    return [
        {"d.txt": lines("".join(f"{label}\t{text}\n" for label, text in written))},
        {"d.txt": lines("".join(f"{n % 3}\t{text}\n" for n, (_, text) in enumerate(written)))},
        {"d.csv": lines(as_csv)},
        {"d.csv": lines(as_csv.replace("\n", "\r"))},
        {"d.csv": plain(as_csv.encode() + b'a,"' + b"x" * 100_000)},
        {"d.parquet": plain(_parquet(table, "snappy", True))},
        {"d.parquet": plain(_parquet(table, "none", False))},
    ]


def triples() -> list[Files]:
    """Graphs."""
    found = [f"e{n}\tknows\te{(n * 3 + 1) % 9}\n" for n in range(9)]
    graph = {
        "train.txt": lines("".join(found[:6])),
        "valid.txt": lines(found[6]),
        "test.txt": lines("".join(found[7:])),
    }
    numbered = {
        "entity2id.txt": lines("9\n" + "".join(f"e{n}\t{n}\n" for n in range(9))),
        "relation2id.txt": lines("1\nknows\t0\n"),
        "train2id.txt": lines("6\n" + "".join(f"{n} {(n * 3 + 1) % 9} 0\n" for n in range(6))),
        "valid2id.txt": lines("1\n6 1 0\n"),
        "test2id.txt": lines("2\n7 4 0\n8 7 0\n"),
    }
    return [graph, graph | {"train.txt": plain(b"\n" * 50_000)}, numbered]


def adjacency() -> list[Files]:
    """Adjacency lists."""
    users = "".join(f"u{n} {' '.join(f'i{(n + k) % 7}' for k in range(n % 4))}\n" for n in range(20))
    return [
        {"d.txt": lines(users)},
        {"d.txt": lines("\ufeff" + users.replace(" ", " \t"))},
        {"d.txt": plain(b"\n" * 100_000)},
        {"d.txt": plain(b"u" + b" i" * 100_000)},
        {"d.txt.gz": contents.gzipped(lines(users))},
    ]


def vocabularies() -> list[Files]:
    """Vocabularies as runs write them, and files of tokens."""
    rows = "".join(f"{token}\t{9 - number}\ttoken\n" for number, token in enumerate(TOKENS))
    special = "<oov 0>\t3\toov\n<oov 1>\t0\toov\n<missing>\t1\tmissing\n<rare>\t2\trare\n"
    return [
        {"item.tsv": lines("token\tfrequency\tkind\n<oov>\t3\toov\n" + rows)},
        {"item.tsv": lines("token\tfrequency\tkind\n" + rows + "a\\tb\\\\\\n\t1\ttoken\n")},
        {"item.json": plain(b'{"kind": "identity", "size": 12}\n')},
        {"item.json": plain(b'{"kind": "identity", "size": 1e999}')},
        {"item.tsv": lines(f"token\tfrequency\tkind\n{special}{rows}z\t0\trare_token\n")},
        {"item.json": plain(b'{"kind": "hash", "function": "farmhash.Fingerprint64", "buckets": 9, "missing": true}')},
        {"item.json": plain(b'{"kind": "buckets", "boundaries": [18.0, 25.5, 1e30]}')},
        {"item.json": plain(b"[" * 5000)},
        {"item.tokens.txt": lines("".join(f"{token}\n" for token in TOKENS))},
    ]


def numeric_columns() -> list[Files]:
    """What a run fitted to its numeric columns, as it writes it."""
    column = {"name": "age", "transform": ["log1p"], "fill": 1.5, "indicator": True, "mean": 0.0, "scale": 1.0}
    columns = [column | {"quantiles": []}, column | {"transform": ["quantile"], "quantiles": [0.0, 1.0]}]
    written = {"columns": columns, "digest": digests.of_json(columns)}
    return [{"numeric_columns.json": plain(json.dumps(each).encode())} for each in (written, {"columns": 3}, [])]


def masks() -> list[Files]:
    """Lists of rows to freeze."""
    good = contents.npy(HEADER % (b"|b1", b"False", b"(8,)"), bytes([0, 1] * 4))
    return [{"m.npy": good}, *({"m.npy": files["v.npy"]} for files in npy()[10:])]


def written(files: Mapping[str, bytes], folder: Path) -> Path:
    """Writes files into a folder; the path of the first."""
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder / next(iter(files))


def temporary() -> TemporaryDirectory[str]:
    """A folder in memory where there is one, as a file is written for every input."""
    return TemporaryDirectory(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
