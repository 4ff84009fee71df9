"""Lists as programs print them are the lists: Python's and JSON's own readers, and Parquet, say which."""

from __future__ import annotations

import ast
import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from embexp.cli import commands
from embexp.data.columns import Columns
from embexp.data.files.dialect import are_lists, values_of_list
from embexp.data.scan import Scan, encode_in_memory, scan
from embexp.data.sources.source import source_of
from embexp.errors import DataError
from embexp.specs.data import CSV, Parquet
from tests.thoroughness import examples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["it's", 'say "a"', "', '", "\\", "a\nb", "None", "nan", "[x]", "'", '"', "é", "\U0001f600", "\ud7ff", "/"]
)
values = texts | st.integers() | st.none()


def as_tokens(found: list[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in found]


@given(st.lists(values, max_size=5))
def test_pythons_lists(found: list[Any]) -> None:
    assert values_of_list(str(found)) == as_tokens(ast.literal_eval(str(found))) == as_tokens(found)
    assert values_of_list(str(tuple(found))) == as_tokens(found)
    assert values_of_list(f"  {found}\n") == as_tokens(found)


@given(st.sets(st.integers() | texts, max_size=5))
def test_pythons_sets(found: set[Any]) -> None:
    assert values_of_list(str(found)) == as_tokens(list(found))
    assert values_of_list(str(frozenset(found))) == as_tokens(list(frozenset(found)))


@given(st.lists(values, max_size=5), st.booleans(), st.sampled_from([None, (",", ":"), (" , ", ":")]))
def test_jsons_lists(found: list[Any], escapes: bool, separators: Any) -> None:
    text = json.dumps(found, ensure_ascii=escapes, separators=separators)
    assert values_of_list(text) == as_tokens(json.loads(text))


@given(st.lists(st.integers(-(2**62), 2**62), max_size=40) | st.lists(texts.filter(lambda text: "\0" not in text)))
def test_numpys_arrays(found: list[Any]) -> None:
    text = str(np.array(found, object if found and isinstance(found[0], str) else None))
    assert values_of_list(text) == as_tokens(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("nan", []),
        ("None", []),
        ("<NA>", []),
        ("[]", []),
        ("()", []),
        ("set()", []),
        ("('a',)", ["a"]),
        ("[1, 2,]", ["1", "2"]),
        ("['a', nan, None]", ["a", None, None]),
        ("[0.5 1. 2e-3]", ["0.5", "1.", "2e-3"]),
        ("[np.int64(15), np.str_('a'), np.float64(0.5)]", ["15", "a", "0.5"]),
        ("[New York, Rome]", ["New York", "Rome"]),
        ("{a,b}", ["a", "b"]),
        (r"['\x41\u00e9\n']", ["A\u00e9\n"]),
        (r'["\ud83d\ude00\/"]', ["\U0001f600/"]),
    ],
)
def test_other_forms(text: str, expected: list[str | None]) -> None:
    assert values_of_list(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "('a')",
        "(500)",
        "['a', 'b'",
        "['a',, 'b']",
        "['a', 'b' 'c']",
        "[[1, 2], [3]]",
        "[1 2 ... 9]",
        "['a' ... 'b']",
        r"['\ud83d']",
        r"['\q']",
        "[__import__('os').getcwd()]",
        "['a'] + ['b']",
        "[f'{1}']",
        "array([1, 2])",
    ],
)
def test_what_is_no_list(text: str) -> None:
    assert values_of_list(text) is None


@pytest.mark.parametrize(
    "piece", ["'", "1 ", "1,", "[", "\\'", " ", "a", "a,", "np.int64(", "1_", "'a' ", "'a', ", "...,", "{"]
)
def test_a_long_text_is_read_once(piece: str) -> None:
    """Any reading that takes more than linear time would not end."""
    for text in (f"[{piece * 200_000}]", f"['{piece * 200_000}x]", f"[{piece * 200_000}x'"):
        values_of_list(text)


def test_lists_are_recognized() -> None:
    assert are_lists(["['a', 'b']", "[]", "", "['c']"])
    assert are_lists(["[1, 2]", "[3]"])
    assert are_lists(["['a']", "['b']"])
    assert not are_lists(["[REC]", "[UNK]"])
    assert not are_lists(["['a']", "b"])
    assert not are_lists(["[]", ""])


COLUMNS = Columns(ids={"user": "user", "tags": "tag"}, label="y")


def of_frame(folder: Path, tags: list[list[Any] | None]) -> tuple[Scan, Scan]:
    """A frame as pandas writes it to CSV, and to Parquet."""
    rows = [(f"u{number % 3}", found, number % 2) for number, found in enumerate(tags)]
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("user", "tags", "y"), *((user, "" if t is None else str(t), y) for user, t, y in rows)])
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(dict(zip(("user", "tags", "y"), columns, strict=True))), folder / "a.parquet")
    written = CSV(path=str(folder / "a.csv"), label="y", list_columns=("tags",), list_separator="brackets")
    found = [
        scan(data, COLUMNS, cache=folder / "cache")
        for data in (written, Parquet(path=str(folder / "a.parquet"), label="y"))
    ]
    return found[0], found[1]


lists = st.lists(
    st.none() | st.lists(texts.filter(lambda text: "\0" not in text) | st.none(), max_size=4), min_size=4, max_size=12
) | st.lists(st.none() | st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=4), min_size=4, max_size=12)


@settings(examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lists)
@example([["b", "a"], [], None, ["it's", '"'], ["a", None]])
def test_the_tokens_are_those_of_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tags: list[Any]) -> None:
    if not any(isinstance(value, str | int) for found in tags for value in found or ()):
        tags = [["a"], *tags]  # Parquet has no type for lists without any value
    if any(isinstance(value, str) for found in tags for value in found or ()):
        tags = [found and [None if value is None else str(value) for value in found] for found in tags]
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    printed, real = of_frame(folder, tags)
    assert printed.vocabularies["tag"].tokens() == real.vocabularies["tag"].tokens()
    for ours, theirs in zip(
        (printed.examples.lists["tags"].values, printed.examples.lists["tags"].splits),
        (real.examples.lists["tags"].values, real.examples.lists["tags"].splits),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_frame_of_text_is_read_as_the_file_was(tmp_path: Path) -> None:
    printed, _ = of_frame(tmp_path, [["a", "b"], ["c"], [], ["a"]] * 3)
    data = CSV(path=str(tmp_path / "a.csv"), label="y", list_columns=("tags",), list_separator="brackets")
    columns = Columns(ids=COLUMNS.ids)
    frame = {"user": ["u0", "u1"], "tags": ["['b', 'a']", None]}
    found = encode_in_memory(frame, source_of(data), columns, printed.vocabularies)
    tokens = printed.vocabularies["tag"].tokens()
    assert [tokens[row] for row in found.lists["tags"].values] == ["b", "a"]
    assert found.lists["tags"].splits.tolist() == [0, 2, 2]
    with pytest.raises(DataError, match="tags"):
        encode_in_memory({**frame, "tags": ["a", "b"]}, source_of(data), columns, printed.vocabularies)


def test_a_value_that_is_no_list_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,tags,y\n" + "u1,\"['a', 'b']\",1\nu2,[],0\n" * 2_000 + "u3,\"['a', 'b\",1\n")
    data = CSV(path=str(path), label="y", list_columns=("tags",), list_separator="brackets")
    with pytest.raises(DataError, match=r"line 4002: found .*\['a', 'b.* in column 'tags', expected a list"):
        scan(data, COLUMNS, cache=tmp_path / "cache")
    path.write_text("user,tags,y\nu1,[1 2 ... 9],1\n")
    [fault] = source_of(data).head_faults(COLUMNS)
    assert "line 2" in fault.rule
    assert ".tolist()" in fault.rule


def test_new_writes_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"u{n % 9},\"['p{n % 7}', 'p{n % 5}']\",{n % 2}" for n in range(200)]
    (tmp_path / "a.csv").write_text("\n".join(["user,seen,click", *lines, "u1,[],0"]) + "\n")
    assert commands.main(["new", str(tmp_path / "a.csv"), "--label", "click", "--out", str(tmp_path / "mine")]) == 0
    text = (tmp_path / "mine/experiment/a.yaml").read_text()
    assert 'list_separator: "brackets"' in text
    assert "list_columns: [seen]" in text
    assert "p0" in capsys.readouterr().out
