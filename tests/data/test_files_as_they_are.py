"""CSV files in the forms in which strangers have them: all of them hold the same table."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embexp.data.columns import Columns
from embexp.data.files import text_table
from embexp.data.scan import Scan, encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError, DataError
from embexp.specs.data import CSV

COLUMNS = Columns(ids={"user": "user", "item": "item"}, label="y")
NAMES = ("user", "item", "y", "t")
ROWS = [(f"é{number % 7}", f"i{number % 5}", str(number % 2), str(1_700_000_000 + number)) for number in range(60)]
HEADER = ",".join(NAMES) + "\n"
BY_TIME = {"timestamp": "t", "split": {"kind": "time"}}


def text(delimiter: str = ",", *, header: bool = True, rows: list[tuple[str, ...]] = ROWS) -> str:
    lines = [delimiter.join(row) for row in ([NAMES] if header else []) + rows]
    return "\n".join(lines) + "\n"


def zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def zipped(content: bytes, names: tuple[str, ...] = ("d.csv",)) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zst, "zip": zipped
}  # fmt: skip


def read(path: Path | list[str], cache: Path, **more: Any) -> Scan:
    given_path = path if isinstance(path, list) else str(path)
    data = CSV(path=given_path, label="y", **(BY_TIME | more))  # type: ignore[arg-type]
    assert source_of(data).head_faults(COLUMNS) == []
    return scan(data, COLUMNS, cache=cache)


def check(found: Scan, rows: list[tuple[str, ...]] = ROWS) -> None:
    """The table, word by word."""
    labels = found.examples.labels
    assert labels is not None
    assert labels.tolist() == [float(row[2]) for row in rows]
    # The last tenth tests by time, and ids are those of the training split or unknown.
    assert found.splits["test"].tolist() == list(range(len(rows) - len(rows) // 10, len(rows)))
    for place, name in enumerate(("user", "item")):
        words = found.vocabularies[name].tokens()
        ids = found.examples.ids[:, found.examples.id_columns.index(name)]
        assert [words[row] for row in ids] == [row[place] for row in rows]


@pytest.mark.parametrize(
    ("content", "settings_"),
    [
        (text("::", header=False).encode(), {"names": NAMES, "delimiter": "::"}),
        (text("::").encode(), {"delimiter": "::"}),
        (text("\t").encode(), {"delimiter": "tab"}),
        (text(";").encode(), {"delimiter": "semicolon"}),
        (text(" ").encode(), {"delimiter": "space"}),
        (text("|").encode(), {"delimiter": "pipe"}),
        (text(" \t ").replace("\n", "  \r\n ").encode(), {"delimiter": "whitespace"}),
        (b"\n \t\n" + text(" ", header=False).encode(), {"delimiter": "whitespace", "names": NAMES}),
        (text().encode("latin-1"), {"encoding": "latin-1"}),
        (text().encode("utf-16"), {"encoding": "UTF-16"}),
        (b"\xef\xbb\xbf" + text("||").encode(), {"delimiter": "||"}),
        (text("::", header=False).encode("cp1252"), {"names": NAMES, "delimiter": "::", "encoding": "windows-1252"}),
        ("\n\n".join(text(header=False).splitlines()).encode(), {"names": NAMES}),
    ],
    ids=[
        "::",
        ":: and header",
        "tab",
        "semicolon",
        "space",
        "pipe",
        "whitespace",
        "headless",
        "latin-1",
        "utf-16",
        "||",
        "1252",
        "blank",
    ],
)
def test_the_same_table_in_other_forms(content: bytes, settings_: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(content)
    check(read(tmp_path / "d.csv", tmp_path / "cache", **settings_))


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_compressed_files(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"d.csv.{suffix}"
    whole = COMPRESSED[suffix](text().encode())
    path.write_bytes(whole)
    check(read(path, tmp_path / "cache"))
    for damaged in (whole[: len(whole) // 2], b"no such data" * 9):
        path.write_bytes(damaged)
        data = CSV(path=str(path), label="y")
        [fault] = source_of(data).head_faults(COLUMNS)
        assert f"expected a {suffix} file" in fault.rule
        with pytest.raises((DataError, ConfigError), match=f"found damaged data, expected a {suffix} file"):
            scan(data, COLUMNS, cache=tmp_path / "cache")


def test_an_archive_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "d.zip").write_bytes(zipped(text().encode(), ("a.csv", "b.csv")))
    [fault] = source_of(CSV(path=str(tmp_path / "d.zip"), label="y")).head_faults(COLUMNS)
    assert fault.rule == "found 2 files in the archive, expected one"


def test_data_that_is_damaged_beyond_the_first_lines(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [(str(u), "i", "1", "2") for u in random.integers(0, 10**9, 50_000)]
    whole = gzip.compress(text(rows=rows).encode())
    (tmp_path / "d.csv.gz").write_bytes(whole[: len(whole) // 2])
    data = CSV(path=str(tmp_path / "d.csv.gz"), label="y")
    assert source_of(data).head_faults(COLUMNS) == []
    with pytest.raises(DataError, match=r"d\.csv\.gz: found damaged data, expected a gz file"):
        scan(data, COLUMNS, cache=tmp_path / "cache")


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_a_bomb_is_refused(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("table_files", "text_table"):
        monkeypatch.setattr(f"embexp.data.files.{module}.LONGEST", 4_000)
    for name, content in (("line", bytes(1 << 20)), ("lines", HEADER.encode() + b'"' + b"\n" * (1 << 20))):
        path = tmp_path / f"{name}.csv.{suffix}"
        path.write_bytes(COMPRESSED[suffix](content))
        with pytest.raises((DataError, ConfigError), match=r"without a line end|larger than field limit"):
            scan(CSV(path=str(path), label="y"), COLUMNS, cache=tmp_path / "cache")


def test_several_files(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"day_{number}.csv").write_text(text(rows=ROWS[20 * number : 20 * number + 20]))
    (tmp_path / "day_1.csv.gz").write_bytes(gzip.compress((tmp_path / "day_1.csv").read_bytes()))
    (tmp_path / "day_1.csv").unlink()
    (tmp_path / "other.txt").write_text("not this one")
    check(read(tmp_path / "day_*", tmp_path / "cache"))
    check(read([str(tmp_path / "day_0.csv"), str(tmp_path / "day_[12].csv*")], tmp_path / "cache"))
    for path, rule in (("day_?", "no file matches this pattern"), (["day_0.csv"] * 2, "read more than once")):
        paths = [str(tmp_path / each) for each in ([path] if isinstance(path, str) else path)]
        [fault] = source_of(CSV(path=paths, label="y")).head_faults(COLUMNS)  # type: ignore[arg-type]
        assert rule in fault.rule


def test_a_row_is_found_in_a_file_of_an_equal_name(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "d.csv").write_text(text(rows=ROWS[30 * number : 30 * number + 30]))
    found = read(tmp_path / "*" / "*.csv", tmp_path / "cache")
    check(found)
    layout = (
        source_of(CSV(path=str(tmp_path / "*" / "*.csv"), label="y", **BY_TIME))
        .encode(  # type: ignore[arg-type]
            COLUMNS, cache=tmp_path / "cache", progress=lambda stage, done: None
        )
        .layout
    )
    assert layout.files == [["d.csv", 30], ["d.csv", 30]]


def test_a_record_that_is_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f'"{"long" * 200 * (number % 3)} \n{user}"', item, y, t) for number, (user, item, y, t) in enumerate(ROWS)]
    (tmp_path / "d.csv").write_text(text(rows=rows))
    whole = read(tmp_path / "d.csv", tmp_path / "whole")
    monkeypatch.setattr(text_table, "_BLOCK_BYTES", 512)
    pieces = read(tmp_path / "d.csv", tmp_path / "pieces")
    np.testing.assert_array_equal(pieces.examples.ids, whole.examples.ids)
    assert whole.vocabularies["user"].digest == pieces.vocabularies["user"].digest


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans need not each reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


REUSE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
letters = st.characters(codec="cp1252", exclude_categories=["Cc", "Cs"], exclude_characters=' \t"|')
words = st.text(letters, min_size=1, max_size=12).filter(lambda word: word == word.strip())


@REUSE
@given(
    table=st.lists(st.tuples(words, words), min_size=3, max_size=8),
    delimiter=st.sampled_from(["||", "<|>", "\t", "whitespace"]),
    encoding=st.sampled_from(["utf-8", "cp1252", "utf-16"]),
    suffix=st.sampled_from([None, "gz"]),
)
def test_any_table_as_it_was_written(
    table: list[tuple[str, str]], delimiter: str, encoding: str, suffix: str | None, tmp_path: Path
) -> None:
    between = "  \t" if delimiter == "whitespace" else delimiter
    content = "".join(f"{user}{between}{item}{between}1\n" for user, item in table).encode(encoding)
    path = tmp_path / ("d.txt" if suffix is None else f"d.txt.{suffix}")
    path.write_bytes(content if suffix is None else COMPRESSED[suffix](content))
    data = CSV(
        path=str(path), label="y", names=("user", "item", "y"), delimiter=delimiter, encoding=encoding,
        split={"validation": 0, "test": 0}, quoting=False,
    )  # fmt: skip
    found = scan(data, COLUMNS, cache=tmp_path / "cache")
    for place, name in enumerate(("user", "item")):
        tokens = found.vocabularies[name].tokens()
        assert [tokens[row] for row in found.examples.ids[:, place]] == [row[place] for row in table]


class TestDates:
    def times(self, tmp_path: Path, values: list[str], **more: Any) -> list[float]:
        (tmp_path / "d.csv").write_text("user;item;y;t\n" + "".join(f"u;i;1;{value}\n" for value in values))
        split = {"kind": "time", "validation": 0, "test": 0}
        data = CSV(path=str(tmp_path / "d.csv"), label="y", delimiter=";", timestamp="t", split=split, **more)
        assert source_of(data).head_faults(COLUMNS) == []
        made = source_of(data).encode(COLUMNS, cache=tmp_path / "cache", progress=lambda stage, done: None)
        return np.load(made.folder / "timestamps.npy").tolist()

    @REUSE
    @given(
        moments=st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), min_size=1, max_size=5),
        zone=st.sampled_from(["", "Z", "+02:00", "-0530"]),
        unit=st.sampled_from(["minutes", "seconds", "microseconds"]),
        between=st.sampled_from("T "),
    )
    def test_iso(self, moments: list[datetime], zone: str, unit: str, between: str, tmp_path: Path) -> None:
        values = [moment.isoformat(between, unit) + zone for moment in moments]
        expected = [datetime.fromisoformat(value) for value in values]
        assert self.times(tmp_path, values) == [
            pytest.approx((each if each.tzinfo else each.replace(tzinfo=UTC)).timestamp(), abs=1e-5)
            for each in expected
        ]

    def test_days_and_times_with_and_without_a_zone(self, tmp_path: Path) -> None:
        values = ["2024-05-31", "1970-01-01T00:00:01Z", "1970-01-01 02:00+02:00"]
        assert self.times(tmp_path, values) == [19_874 * 86_400.0, 1.0, 0.0]

    def test_a_format_of_one_s_own(self, tmp_path: Path) -> None:
        values = ["01.02.1970 03:04", "31.12.1969 23:59"]
        expected = [31 * 86_400 + 3 * 3_600 + 4 * 60, -60]
        assert self.times(tmp_path, values, timestamp_format="%d.%m.%Y %H:%M") == expected

    def test_numbers_stay_numbers(self, tmp_path: Path) -> None:
        assert self.times(tmp_path, ["2024", "1e3"]) == [2024.0, 1000.0]

    @pytest.mark.parametrize(
        ("values", "more", "found"),
        [
            (["2024-05-31", "2024-13-31"], {}, "line 3: found '2024-13-31' in column 't', expected a date or time"),
            (["2024-02-28", "2023-02-29"], {}, "line 3: found '2023-02-29' in column 't', expected a date or time"),
            (["2024-05-31", ""], {}, "line 3: found nothing in column 't', expected a date or time"),
            (["2024-05-31", "17"], {}, "line 3: found '17' in column 't', expected a date or time"),
            (["17", "2024-05-31"], {}, "line 3: found '2024-05-31' in column 't', expected a finite number"),
            (["yesterday"], {}, "line 2: found 'yesterday' in column 't', expected a finite number"),
            (["1.2.70"], {"timestamp_format": "%d.%m.%Y"}, "line 2: found '1.2.70' in column 't', expected %d.%m.%Y"),
        ],
    )
    def test_faults(self, values: list[str], more: dict[str, Any], found: str, tmp_path: Path) -> None:
        good = [values[0]] * 1500 if len(values) > 1 else []
        for lines in (values, [*good, *values[1:]]) if good else (values,):
            (tmp_path / "d.csv").write_text("user,item,y,t\n" + "".join(f"u,i,1,{value}\n" for value in lines))
            data = CSV(path=str(tmp_path / "d.csv"), label="y", **(BY_TIME | more))  # type: ignore[arg-type]
            told = found if lines is values else found.replace("line 3", "line 1502")
            with pytest.raises(DataError) as refusal:
                scan(data, COLUMNS, cache=tmp_path / "cache")
            assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "more", "told"),
    [
        (text(), {"names": ("user", "item", "y")}, "has 4 fields in its first line, but these are 3 names"),
        (text(), {"names": NAMES}, "looks like a header: 'user', 'item', 'y', 't'"),
        (text(), {"names": ("user", "item", "y", "when")}, "looks like a header"),
        (text(header=False), {}, "its first line looks like data; if it has no header, name its columns: data.names="),
        (text(";"), {}, "its first line is a single field: 'user;item;y;t'; perhaps data.delimiter=semicolon"),
        (text("::"), {"delimiter": "|"}, "perhaps data.delimiter=colons"),
        (
            text("|", header=False),
            {},
            "perhaps data.delimiter=pipe, and, because it seems to have no header, data.names=[",
        ),
        ("0 1 2 3\n1 4\n2\n", {}, "each line looks like a user with all its items: choose data=adjacency"),
        ("0 1 2 3\n1 4\n2\n", {"delimiter": "whitespace"}, "a user with all its items: choose data=adjacency"),
    ],
)
def test_what_the_first_line_tells(content: str, more: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(content)
    faults = source_of(CSV(path=str(tmp_path / "d.csv"), label="y", **more)).head_faults(COLUMNS)
    assert faults
    assert all(told in str(fault) for fault in faults)


@pytest.mark.parametrize(
    ("left_out", "readable"),
    [
        ((), True),
        (("y",), True),
        (("id", "y", "note"), True),
        (("id", "y"), False),  # they might be y and note, which come later
        (("id", "y", "note", "item"), False),
    ],
)
def test_a_file_to_predict_without_header_may_lack_what_can_be_told(
    left_out: tuple[str, ...], readable: bool, tmp_path: Path
) -> None:
    names = ("id", "user", "y", "item", "note")
    rows = [
        dict(zip(names, (f"{row}", f"u{row % 7}", f"{row % 2}", f"i{row % 5}", "x"), strict=True)) for row in range(60)
    ]
    for file, kept in (("own.csv", names), ("new.csv", [name for name in names if name not in left_out])):
        (tmp_path / file).write_text("".join(",".join(row[name] for name in kept) + "\n" for row in rows))
    data = CSV(path=str(tmp_path / "own.csv"), label="y", names=names)
    found = scan(data, COLUMNS, cache=tmp_path / "cache")
    to_predict = Columns(ids=COLUMNS.ids)

    def read(columns: Columns) -> Any:
        return encode_file(tmp_path / "new.csv", data, columns, found.vocabularies, cache=tmp_path / "cache")

    if readable:
        assert read(to_predict).ids.tolist() == found.examples.ids.tolist()
    else:
        with pytest.raises(ConfigError, match="an empty name to a field that is not used; y may be omitted; its first"):
            read(to_predict)
    if left_out:
        with pytest.raises(ConfigError, match="an empty name to a field that is not used; its first line is"):
            read(COLUMNS)
