"""Data that are cut by a column: rows as they are in the file, in order; and what a column must have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embexp.data import parts
from embexp.errors import ConfigError, DataError
from embexp.specs.data import CSV, JSONLines, Parquet
from embexp.specs.studies import Period

ROWS = [
    ("u1", "2024-05-31"),
    ('u "2"', "2024-06-03T23:00:00"),
    ("u\n3", "2024-06-01"),
    ("", "2024-05-31"),
    ("ü", "2025-01-01"),
]


def csv(path: Path, rows: list[tuple[str, str]], end: str = "\n") -> Path:
    quoted = ['"' + user.replace('"', '""') + '",' + when for user, when in rows]
    path.write_bytes((end.join(["user,when", *quoted]) + end).encode())
    return path


def cut(
    folder: Path, data: CSV | JSONLines | Parquet, column: str = "when", period: Period | None = None
) -> dict[str, Path]:
    parts.cut(data, column, period, folder)
    return {path.stem: path for path in sorted((folder / "parts").iterdir())}


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (None, ["001-2024-05-31", "002-2024-06-01", "003-2024-06-03T23_00_00", "004-2025-01-01"]),
        (Period.DAY, ["001-2024-05-31", "002-2024-06-01", "003-2024-06-03", "004-2025-01-01"]),
        (Period.WEEK, ["001-2024-W22", "002-2024-W23", "003-2025-W01"]),
        (Period.MONTH, ["001-2024-05", "002-2024-06", "003-2025-01"]),
    ],
)
def test_text_goes_over_byte_for_byte(tmp_path: Path, period: Period | None, expected: list[str]) -> None:
    path = csv(tmp_path / "all.csv", ROWS, "\r\n")
    found = cut(tmp_path, CSV(path=str(path), label="user"), period=period)
    assert list(found) == expected
    assert all(each.read_bytes().startswith(b"user,when\r\n") for each in found.values())
    rows = [each.read_bytes().partition(b"\r\n")[2] for each in found.values()]
    assert sorted(b"".join(rows)) == sorted(path.read_bytes().partition(b"\r\n")[2])
    assert rows[0].startswith(b'"u1",2024-05-31\r\n"",2024-05-31\r\n') or period is Period.WEEK


def test_numbers_are_in_order_and_times_in_seconds(tmp_path: Path) -> None:
    lines = ["a\t10", "b\t9", "c\t-1.5", "d\t10"]
    (tmp_path / "one.tsv").write_text("\n".join(lines[:2]))  # without an end
    with gzip.open(tmp_path / "two.tsv.gz", "wt") as file:
        file.write("\n".join(lines[2:]))
    paths = (str(tmp_path / "one.tsv"), str(tmp_path / "two.tsv.gz"))
    data = CSV(path=paths, label="a", delimiter="tab", names=("user", "when"))
    found = cut(tmp_path, data)
    assert {name: path.read_text() for name, path in found.items()} == {
        "001--1.5": "c\t-1.5\n",
        "002-9": "b\t9\n",
        "003-10": "a\t10\nd\t10\n",
    }
    (tmp_path / "times").mkdir()
    path = csv(tmp_path / "times.csv", [("a", "86400"), ("b", "1717200000000"), ("c", "1e6")])
    found = cut(tmp_path / "times", CSV(path=str(path), label="user"), period=Period.DAY)
    assert list(found) == ["001-1970-01-02", "002-1970-01-12", "003-2024-06-01"]


def test_json_and_parquet(tmp_path: Path) -> None:
    lines = [json.dumps({"user": user, "at": {"when": when}}) for user, when in ROWS]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    (tmp_path / "json").mkdir()
    found = cut(tmp_path / "json", JSONLines(path=str(tmp_path / "all.jsonl"), label="user"), "at.when", Period.MONTH)
    assert [path.read_text().splitlines() for path in found.values()] == [[lines[0], lines[3]], lines[1:3], lines[4:]]
    times = pa.array([when for _, when in ROWS]).cast(pa.timestamp("ms"))
    table = pa.table({"user": [user for user, _ in ROWS], "when": times, "list": [[1], [], [2, 3], None, [4]]})
    for name, column in (
        ("stamps", times),
        ("days", times.cast(pa.date32())),
        ("names", times.cast(pa.string()).dictionary_encode()),
    ):
        (tmp_path / name).mkdir()
        one = table.set_column(1, "when", column)
        pq.write_table(one, tmp_path / f"{name}.parquet")
        found = cut(tmp_path / name, Parquet(path=str(tmp_path / f"{name}.parquet"), label="user"), period=Period.MONTH)
        assert list(found) == ["001-2024-05", "002-2024-06", "003-2025-01"]
        for path, rows in zip(found.values(), ([0, 3], [1, 2], [4]), strict=True):
            assert pq.read_table(path).equals(one.take(rows))


@pytest.mark.parametrize(
    ("rows", "column", "period", "message"),
    [
        (ROWS, "day", None, r"study\.column = 'day': .*its columns are user, when"),
        ([("u", "monday")] * 9, "when", None, r"study\.column = 'when': the column has only monday, .* at least 3"),
        ([*ROWS, ("x", " ")], "when", None, r"all\.csv, line 8: found no value in column when"),
        ([*ROWS, ("x", "NaN")], "when", None, r"line 8: found no value"),
        ([*ROWS, ("x", "31.5.2024")], "when", Period.DAY, r"line 8: found '31\.5\.2024', expected a date or time such"),
        ([*ROWS, ("x", "1e300")], "when", Period.DAY, r"line 8: found '1e300'"),
        ([("u", str(number)) for number in range(501)], "when", None, r"study\.period = null: .* more than 500 values"),
    ],
)
def test_what_cannot_be_cut(
    tmp_path: Path, rows: list[tuple[str, str]], column: str, period: Period | None, message: str
) -> None:
    path = csv(tmp_path / "all.csv", rows)
    with pytest.raises((ConfigError, DataError), match=message):
        cut(tmp_path, CSV(path=str(path), label="user"), column, period)
    assert [each.name for each in tmp_path.iterdir()] == ["all.csv"]  # nothing is left


def test_files_with_other_columns_are_not_mixed(tmp_path: Path) -> None:
    one, two = csv(tmp_path / "one.csv", ROWS), tmp_path / "two.csv"
    two.write_text("when,user\n2024-05-31,u1\n")
    with pytest.raises(ConfigError, match=r"two\.csv.: its columns differ from those of .*one\.csv"):
        cut(tmp_path, CSV(path=(str(one), str(two)), label="user"))
