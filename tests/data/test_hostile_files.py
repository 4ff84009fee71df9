"""Files of data that are made to break their reader: each is refused in a sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embexp.data.columns import columns_of
from embexp.data.files import table_files
from embexp.data.sources.source import source_of
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import ConfigError, DataError
from embexp.fields.texts import sources
from embexp.fields.texts.sources import Corpus, Document
from embexp.specs.freezing import FreezeRows
from embexp.specs.run import data_of
from embexp.specs.tables import Feature
from embexp.system.parallel import quiet
from embexp.training.freezing import policies
from embexp.training.freezing.policies import RowFacts

TABLES = {"user": "users", "item": "items"}
GRAPH = {"source": "entities", "relation": "relations", "candidates": "entities"}
SETTINGS = {
    "csv": ({"label": "y"}, TABLES),
    "recbole": ({"label": "y"}, TABLES),
    "parquet": ({"label": "y"}, TABLES),
    "text": ({}, {"words": "words"}),
    "triples": ({"columns": ["head", "relation", "tail"]}, GRAPH),
}
HEADERS = {"csv": "user,item,y\n", "recbole": "user:token\titem:token\ty:float\n"}


def refused(path: Path, kind: str, said: str, **more) -> None:
    settings, features = SETTINGS[kind]
    data = data_of({"kind": kind, "path": str(path), **settings, **more})
    columns, _ = columns_of(data, {name: Feature(table=table) for name, table in features.items()})
    source = source_of(data)
    source.head_faults(columns)  # raises nothing
    with pytest.raises((DataError, ConfigError), match=said):
        source.encode(columns, cache=path.parent / "cache", progress=quiet)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines may have 4,000 bytes."""
    for module in ("table_files", "text_table"):
        monkeypatch.setattr(f"embexp.data.files.{module}.LONGEST", 4_000)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("kind", ["csv", "recbole"])
@pytest.mark.parametrize("content", ["x" * 9_000, HEADERS["csv"] + '"' + "x\n" * 4_000], ids=["a line", "a field"])
def test_long_lines_of_tables(kind: str, content: str, tmp_path: Path) -> None:
    (tmp_path / f"d.{kind}").write_text(content)
    refused(
        tmp_path / f"d.{kind}", kind, "without a line end|larger than field limit|expected name:type|no such column"
    )


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("content", [b"a\t" + b"x" * 9_000, b"x" * 9_000], ids=["behind a label", "no label"])
def test_long_lines_of_texts(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_bytes(content)
    refused(tmp_path / "d.txt", "text", "d.txt, line 1: found more than .* bytes without a line end")
    (tmp_path / "c" / "a").mkdir(parents=True)
    (tmp_path / "c" / "a" / "x.txt").write_bytes(content)
    refused(tmp_path / "c", "text", "x.txt: found a text of more than 4,000 bytes")


def test_a_return_ends_a_line_of_csv_for_texts_as_for_columns(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"label,text\na,b\rc,d\ne,f\n")
    assert [(text.label, text.text) for text in Corpus(tmp_path / "d.csv", "text", "label").texts()] == [
        ("a", "b"),
        ("c", "d"),
        ("e", "f"),
    ]


@pytest.mark.parametrize("kind", ["csv", "recbole", "parquet", "text"])
def test_a_fifo(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "d.csv")
    refused(tmp_path / "d.csv", kind, "found a FIFO, expected a file")
    (tmp_path / "folder" / "a").mkdir(parents=True)
    os.mkfifo(tmp_path / "folder" / "d.txt")
    os.mkfifo(tmp_path / "folder" / "a" / "d.txt")
    if kind in ("csv", "text"):
        refused(tmp_path / "folder" / ("a" if kind == "csv" else ""), kind, "found a FIFO, expected a file")


def test_text_in_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    token = pa.array([b"a", b"\xff\xfe"]).view(pa.string())
    pq.write_table(pa.table({"user": token, "item": [1, 2], "y": [0.0, 1.0]}), tmp_path / "d.parquet")
    refused(tmp_path / "d.parquet", "parquet", "can't be read as Parquet: .*UTF")
    pq.write_table(pa.table({"label": ["a", "b"], "text": token}), tmp_path / "t.parquet")
    refused(tmp_path / "t.parquet", "text", "can't be read as Parquet|can't decode")


def test_damaged_parquet(tmp_path: Path) -> None:
    table = pa.table({"user": ["a", "b"] * 20, "item": [1, 2] * 20, "y": [0.0, 1.0] * 20})
    pq.write_table(table, tmp_path / "whole.parquet")
    whole, refusals = (tmp_path / "whole.parquet").read_bytes(), 0
    for at in range(4, len(whole), 41):
        path = tmp_path / f"{at}.parquet"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            refused(path, "parquet", ".")
            refusals += 1
        except pytest.fail.Exception:
            pass
    assert refusals > 5


def test_classes_with_thousands_of_digits(tmp_path: Path) -> None:
    names = ["10", "9", "1" * 5000, "09"]
    (tmp_path / "d.txt").write_text("".join(f"{name}\ttext\n" for name in names))
    assert sources.class_names(Corpus(tmp_path / "d.txt", "text", "label")) == ("09", "9", "10", "1" * 5000)


def test_long_texts_are_taken_apart_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_CHARACTERS", 25)
    texts = [Document("x" * 10, None, Path("f"), "", 0.0) for _ in range(7)]
    assert [len(some) for some in sources._portions(texts)] == [3, 3, 1]


SIZES = ["1e999", "-1", "9" * 30, "9" * 5000, "true", "2.0", '"3"', "null", "[" * 3000]


@pytest.mark.parametrize("size", SIZES)
def test_vocabularies_of_no_size(size: str, tmp_path: Path) -> None:
    (tmp_path / "item.json").write_text(f'{{"kind": "identity", "size": {size}}}')
    with pytest.raises(DataError, match=r"item\.json is not a vocabulary: expected a JSON object with kind identity"):
        Vocabulary.read(tmp_path / "item")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"token\tfrequency\tkind\n\xff\t1\ttoken\n", b"x" * (1 << 20), b"\0"])
def test_vocabularies_that_are_no_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "item.tsv").write_bytes(content)
    with pytest.raises(DataError, match=r"item\.tsv, line 1: found|item.tsv is not a vocabulary") as refusal:
        Vocabulary.read(tmp_path / "item")
    assert len(str(refusal.value)) < 1000


def test_a_vocabulary_that_is_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "item.json")
    with pytest.raises(DataError, match=r"item\.json: found a FIFO, expected a file"):
        Vocabulary.read(tmp_path / "item")


@pytest.mark.parametrize("header", ["{'descr': '|b1', 'fortran_order': False, 'shape': (8", "'''", "(" * 9000])
def test_masks(header: str, tmp_path: Path) -> None:
    (tmp_path / "m.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(DataError, match=r"m.npy: found no \.npy file of booleans"):
        policies.listed_rows(FreezeRows(mask_file=str(tmp_path / "m.npy")), "freeze", RowFacts(8))


def test_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "LONGEST", 4)
    (tmp_path / "f").write_bytes(b"abc\nab\n\nabc")
    assert list(table_files.lines_of(tmp_path / "f")) == [b"abc\n", b"ab\n", b"\n", b"abc"]
    (tmp_path / "f").write_bytes(b"abc\nabcde")
    with pytest.raises(DataError, match="f, line 2: found more than"):
        list(table_files.lines_of(tmp_path / "f"))


def test_a_mask_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.array([True, False] * 4))
    found = policies.listed_rows(FreezeRows(mask_file=str(tmp_path / "m.npy")), "freeze", RowFacts(8))
    assert json.dumps(found.mask.tolist()) == json.dumps([True, False] * 4)
