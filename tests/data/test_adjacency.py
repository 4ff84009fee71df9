"""Adjacency lists, against a plain-Python reading of their lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.columns import Columns, columns_of
from embexp.data.scan import Scan, scan
from embexp.data.sources import adjacency
from embexp.data.sources.source import source_of
from embexp.errors import DataError
from embexp.specs.data import Adjacency
from embexp.specs.tables import Feature
from tests.thoroughness import examples

COLUMNS = Columns(ids={"user": "users", "item": "items"})
NAME = st.sampled_from(["0", "7", "12", "é", "a-b", "\u2003x"])


def pairs(found: Scan) -> list[tuple[str, str]]:
    users, items = (found.vocabularies[name].tokens() for name in ("users", "items"))
    return [(users[user], items[item]) for user, item in found.examples.ids]


def read(path: Path) -> Scan:
    data = Adjacency(path=str(path), split={"validation": 0.0, "test": 0.0})  # type: ignore[arg-type]
    assert source_of(data).head_faults(COLUMNS) == []
    return scan(data, COLUMNS, cache=path.parent / "cache")


@examples(10)
@given(
    lists=st.lists(st.tuples(NAME, st.lists(NAME, max_size=4)), min_size=1),
    blank=st.sampled_from([" ", "\t", "  "]),
    end=st.sampled_from(["\n", "\r\n", " \n", "\n\n"]),
    block=st.sampled_from([1, 20, 1 << 20]),
)
def test_every_item_of_a_line_is_an_interaction(
    lists: list[tuple[str, list[str]]], blank: str, end: str, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lists = [*lists, ("u", ["i"])]
    path = tmp_path_factory.mktemp("lists") / "train.txt"
    path.write_bytes("".join(blank.join([user, *items]) + end for user, items in lists).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacency, "_BLOCK_BYTES", block)
        assert pairs(read(path)) == [(user, item) for user, items in lists for item in items]


def test_compressed_files_and_several(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "a.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf0 1 2\n1\n"))
    (tmp_path / "lists" / "b.txt").write_text("2 1")
    assert pairs(read(tmp_path / "lists")) == [("0", "1"), ("0", "2"), ("2", "1")]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "the file is empty; each line must hold a user and its items"),
        (b"0 1\n1 \xff\n", "line 2: found the byte 0xFF, expected text in UTF-8"),
    ],
)
def test_faults(content: bytes, rule: str, tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_bytes(content)
    [fault] = source_of(Adjacency(path=str(tmp_path / "d.txt"))).head_faults(COLUMNS)
    assert (fault.path, fault.value, fault.rule) == ("data.path", repr(str(tmp_path / "d.txt")), rule)


def test_a_late_fault_names_its_line_and_users_without_items_are_no_examples(tmp_path: Path) -> None:
    (tmp_path / "late.txt").write_bytes(b"0 1\n" * 1500 + b"1 \xff\n")
    with pytest.raises(DataError, match=r"late\.txt, line 1501: found the byte 0xFF"):
        read(tmp_path / "late.txt")
    (tmp_path / "none.txt").write_text("0\n1\n")
    with pytest.raises(DataError, match="the data holds no examples"):
        read(tmp_path / "none.txt")


def test_lists_have_two_columns_of_ids(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("0 1\n")
    data = Adjacency(path=str(tmp_path / "d.txt"), dense_features=["item"], label="y")
    features = {"user": Feature(table="users"), "genre": Feature(table="genres")}
    faults = source_of(data).head_faults(columns_of(data, features)[0])
    assert [(fault.path, fault.value) for fault in faults] == [
        ("features.genre", "'genre'"), ("data.label", "'y'"), ("data.dense_features", "'item'")
    ]  # fmt: skip
