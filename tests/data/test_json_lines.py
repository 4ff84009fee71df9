"""JSON Lines: what a run reads of them, whatever the blocks that they are read in."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embexp.data.columns import Wanted
from embexp.data.files.arrow_columns import chunks_of_files
from embexp.data.sources import jsonl
from embexp.errors import ConfigError, DataError


def written(folder: Path, lines: Iterable[Any], name: str = "d.jsonl") -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder / name


def values(path: Path, *wanted: Wanted) -> list[list[Any]]:
    """The values of each column, those of lists by row."""
    found: list[list[Any]] = [[] for _ in wanted]
    for chunk in chunks_of_files(jsonl.locate([path], wanted), wanted):
        for one, column in zip(wanted, found, strict=True):
            part = (chunk.tokens if one.tokens else chunk.numbers)[one.name]
            plain = (
                [str(value) if value is not None else None for value in part.values.to_pylist()]
                if one.tokens
                else part.values.tolist()
            )
            if part.splits is None:
                column += plain
            else:
                column += [plain[start:stop] for start, stop in zip(part.splits[:-1], part.splits[1:], strict=True)]
    return found


def token(name: str) -> Wanted:
    return Wanted(name, "features", tokens=True)


def number(name: str) -> Wanted:
    return Wanted(name, "data.dense_features", numbers=True, may_be_missing=True)


_BIG = 2**53 + 1
ROWS = [
    {"id": 1, "x": 1, "tags": ["a", "b"], "at": {"place": "x"}, "late": None},
    {"id": "1", "x": 2.5, "tags": [], "at": None},
    {"id": 7.0, "x": "3", "tags": None, "at": {"place": None}, "late": 5},
    {"id": True, "x": None, "tags": "c", "at": {"place": 4}, "late": 0.5},
    {"id": _BIG, "x": False, "at": {}, "late": "2024-05-31"},
    "",
    {"id": 0.5, "x": "NaN", "tags": [1, None, 2.0], "other": [{"a": 1}]},
]
TOKENS = [["1", "1", "7", "1", str(_BIG), "0.5"], [["a", "b"], [], [], ["c"], [], ["1", None, "2"]]]
PLACES, LATE = ["x", None, None, "4", None, None], [None, None, "5", "0.5", "2024-05-31", None]


@pytest.mark.parametrize("name", ["d.jsonl", "d.ndjson.gz"])
@pytest.mark.parametrize("block", [1, 100, 1 << 20])
def test_values_do_not_depend_on_blocks(name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_BLOCK_BYTES", block)
    path = written(tmp_path, ROWS, name)
    ids, tags, places, late = values(path, token("id"), token("tags"), token("at.place"), token("late"))
    assert [ids, tags] == TOKENS
    assert [places, late] == [PLACES, LATE]
    [numbers] = values(path, number("x"))
    np.testing.assert_array_equal(numbers, [1, 2.5, 3, np.nan, 0, np.nan])


@pytest.mark.parametrize(
    ("early", "late", "expected"),
    [
        (1, 2.5, ["1", "2.5"]),
        (None, "a", [None, "a"]),
        (2.0, _BIG, ["2", str(_BIG)]),
        ("2024-05-31", "x", ["2024-05-31", "x"]),
    ],
)
def test_types_that_change_behind_the_first_lines_are_read_exactly(
    early: Any, late: Any, expected: Sequence[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "HEAD_ROWS", 2)
    monkeypatch.setattr(jsonl, "_BLOCK_BYTES", 64)
    jsonl._found.cache_clear()
    path = written(tmp_path, [{"k": early}] * 20 + [{"k": late, "rare": 3}] * 20)
    [found] = values(path, token("k"))
    assert (found[:20], found[20:]) == ([expected[0]] * 20, [expected[1]] * 20)
    assert values(path, number("rare"))[0][20:] == [3.0] * 20
    jsonl._found.cache_clear()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{'k': 1}", "line 2: found \"{'k': 1}\", expected an object in JSON on each line"),
        ("[1]", "line 2: found '[1]', expected an object"),
        ('{"k": 1} {"k": 2}', "line 2: found"),
        ("[" * 100_000, "line 2: found"),
        ('{"k": {"a": 1}}', "line 2: found '{\"a\": 1}' in column 'k', expected one value"),
        ('{"k": [1]}', "line 2: found '[1]' in column 'k', expected one value"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "HEAD_ROWS", 1)
    with pytest.raises(DataError, match="line 2: ") as raised:
        values(written(tmp_path, [{"k": 1}, line]), token("k"))
    assert said in str(raised.value)
    assert str(raised.value).count("d.jsonl") == 1


def test_bytes_that_are_not_utf_8_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "HEAD_ROWS", 1)
    (tmp_path / "d.jsonl").write_bytes(b'\xef\xbb\xbf{"k": "a"}\n{"k": "\xff"}\n')
    with pytest.raises(DataError, match="line 2: found the byte 0xFF, expected text in UTF-8"):
        values(tmp_path / "d.jsonl", token("k"))


@pytest.mark.parametrize(
    ("rows", "column", "said"),
    [
        ([{"k": [{"a": 1}]}], "k", "its values must be text or integers"),
        ([{"k": 1}, {"k": {"a": 1}}], "k.a", "its values must be text or integers"),
        ([{"k": 1}], "j", "has no such column"),
        ([{"a": {"b": 1}, "a.b": 2}], "a.b", "has 2 columns with this name"),
        ([], "k", "holds no examples"),
    ],
)
def test_columns_that_cannot_be_read_are_faults(rows: list[Any], column: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        jsonl.locate([written(tmp_path, rows)], [token(column)])


def test_the_first_lines_are_looked_at_before_a_run(tmp_path: Path) -> None:
    [table] = jsonl.locate([written(tmp_path, [{"k": 1}, {"k": "x"}])], [number("k")]).tables
    assert table.head_fault([number("k")], rows=10) == "row 2: found 'x' in column 'k', expected a finite number"
    assert not table.holds_numbers("k", rows=10)
