"""What the cache of scans promises: found by content, whole or not there, and errors that name the line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embexp.data import examples
from embexp.data.columns import SKIP_UNLABELLED, Columns
from embexp.data.scan import Scan, scan
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError, DataError
from embexp.specs.data import CSV, Parquet, RecBole
from embexp.system import caching, digests

COLUMNS = Columns(ids={"user": "user"}, dense=("age",), label="y")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that grows with every reading of the source."""
    made: list[Path] = []
    real = examples.encode

    def counting(chunks: Any, folder: Path, *args: Any, **named: Any) -> None:
        made.append(folder)
        real(chunks, folder, *args, **named)

    monkeypatch.setattr(examples, "encode", counting)
    return made


def lines(count: int, *, bad: dict[int, str] | None = None) -> str:
    """A header and so many lines; `bad` replaces lines by their number in the file."""
    text = ["user,age,y", *(f"u{number % 9},{number},{number % 2}" for number in range(count))]
    for number, line in (bad or {}).items():
        text[number - 1] = line
    return "\n".join(text) + "\n"


def csv_of(path: Path, **more: Any) -> CSV:
    return CSV(path=str(path), label="y", dense_features=("age",), **more)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(lines(50))
    return path


def content(found: Scan) -> list[Any]:
    return [
        found.examples.ids.tolist(),
        found.examples.dense.tolist(),
        {part: rows.tolist() for part, rows in found.splits.items()},
        found.vocabularies["user"].tokens(),
        found.digest,
    ]


def test_a_second_scan_reads_nothing(file: Path, tmp_path: Path, reads: list[Path]) -> None:
    one, other = (scan(csv_of(file), COLUMNS, cache=tmp_path / "cache") for _ in range(2))
    assert len(reads) == 1
    assert content(one) == content(other)


def test_a_touched_or_moved_file_is_known_again(file: Path, tmp_path: Path, reads: list[Path]) -> None:
    one = scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
    os.utime(file, (1e9, 1e9))
    moved = tmp_path / "elsewhere" / "data.csv"
    moved.parent.mkdir()
    for place in (file, Path(shutil.copy(file, moved))):
        assert content(scan(csv_of(place), COLUMNS, cache=tmp_path / "cache")) == content(one)
    assert len(reads) == 1


def test_files_that_are_joined_to_the_examples_have_no_part_in_their_digest(tmp_path: Path) -> None:
    """So that a report ranks runs with and without features of users together."""
    folder = tmp_path / "shop"
    folder.mkdir()
    rows = "".join(f"u{number % 9}\t{number % 2}\n" for number in range(50))
    (folder / "shop.inter").write_text(f"user:token\ty:float\n{rows}")
    users = "".join(f"u{number}\t{number % 3}\n" for number in range(9))
    (folder / "shop.user").write_text(f"user:token\tage:token\n{users}")
    data = RecBole(path=str(folder), label="y")
    alone = scan(data, replace(COLUMNS, dense=()), cache=tmp_path / "cache")
    joined = scan(data, replace(COLUMNS, dense=(), ids={"user": "user", "age": "age"}), cache=tmp_path / "cache")
    assert alone.examples_digest is None
    assert joined.examples_digest == alone.digest != joined.digest


def test_a_changed_file_is_scanned_anew(file: Path, tmp_path: Path, reads: list[Path]) -> None:
    """Also at once, and with a content of the same size."""
    one = scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
    file.write_text(lines(50).replace("u3", "x3"))
    other = scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
    assert len(reads) == 2
    assert one.digest != other.digest
    assert "x3" in other.vocabularies["user"].tokens()
    assert "x3" not in one.vocabularies["user"].tokens()


def test_the_digest_of_a_settled_file_is_remembered(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    real = digests.of_file
    monkeypatch.setattr(digests, "of_file", lambda path, *rest: asked.append(path) or real(path))
    for _ in range(2):  # written a moment ago: it could change again without its time showing it
        assert caching.file_digest(file, cache=tmp_path / "cache") == real(file)
    assert len(asked) == 2
    os.utime(file, (1e9, 1e9))
    for _ in range(3):
        assert caching.file_digest(file, cache=tmp_path / "cache") == real(file)
    assert len(asked) == 3
    file.write_text(lines(51))
    os.utime(file, (1e9, 1e9))  # the size tells
    assert caching.file_digest(file, cache=tmp_path / "cache") == real(file)
    os.utime(file, (1e9 + 1, 1e9 + 1))  # the time tells
    caching.file_digest(file, cache=tmp_path / "cache")
    assert len(asked) == 5


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"stamp": 1}', "null"])
def test_a_spoilt_record_of_a_digest_is_not_believed(file: Path, tmp_path: Path, garbage: str) -> None:
    os.utime(file, (1e9, 1e9))
    caching.file_digest(file, cache=tmp_path / "cache")
    [record] = (tmp_path / "cache" / "digests").iterdir()
    record.write_text(garbage)
    assert caching.file_digest(file, cache=tmp_path / "cache") == digests.of_file(file)


def test_another_split_reads_no_file_again(file: Path, tmp_path: Path, reads: list[Path]) -> None:
    for fold in range(3):
        scan(csv_of(file, split={"kind": "folds"}, folds=3, fold=fold), COLUMNS, cache=tmp_path / "cache")
    scan(csv_of(file, vocabulary={"min_frequency": 3}), COLUMNS, cache=tmp_path / "cache")
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        ({"label_threshold": 0.5}, COLUMNS),
        ({"delimiter": ";"}, COLUMNS),
        ({"list_columns": ("user",)}, COLUMNS),
        ({"timestamp": "age", "split": {"kind": "time"}}, COLUMNS),
        ({"timestamp": "age", "split": {"kind": "leave_one_out", "group": "user"}}, COLUMNS),
        ({}, Columns(ids={"age": "user"}, dense=("age",), label="y")),
        ({}, Columns(ids={"user": "user", "age": "user"}, dense=("age",), label="y")),
        ({}, Columns(ids={"user": "user", "age": "age"}, dense=("age",), label="y")),
        ({}, Columns(ids={"user": "user"}, dense=(), label="y")),
        ({}, Columns(ids={"user": "user"}, dense=("age",), label="age")),
    ],
)  # fmt: skip
def test_another_reading_of_the_file_is_another_scan(
    file: Path, tmp_path: Path, reads: list[Path], data: dict[str, Any], columns: Columns
) -> None:
    scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
    if data.get("delimiter"):
        with pytest.raises(ConfigError):
            scan(csv_of(file, **data), columns, cache=tmp_path / "cache")
        return
    again = scan(csv_of(file, **data), columns, cache=tmp_path / "cache")
    fresh = scan(csv_of(file, **data), columns, cache=tmp_path / "fresh")
    assert len(reads) == 3
    assert content(again) == content(fresh)


def test_the_digest_alone_needs_no_scan(file: Path, tmp_path: Path, reads: list[Path]) -> None:
    digest = source_of(csv_of(file)).digest(COLUMNS, cache=tmp_path / "cache")
    assert reads == []
    assert digest == scan(csv_of(file), COLUMNS, cache=tmp_path / "cache").digest


def test_arrays_are_mapped_and_aligned(file: Path, tmp_path: Path) -> None:
    found = scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
    for array in (found.examples.ids, found.examples.dense, found.examples.labels, *found.splits.values()):
        assert array is not None
        assert array.ctypes.data % 64 == 0
        assert isinstance(array.base, np.memmap)


def test_others_may_read_the_cache(file: Path, tmp_path: Path) -> None:
    scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
    umask = os.umask(0)
    os.umask(umask)
    for made in (tmp_path / "cache").glob("*-*"):
        assert made.stat().st_mode & 0o777 == 0o777 & ~umask


class TestHalfMade:
    KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from embexp.data.columns import Columns
from embexp.data.scan import scan
from embexp.specs.data import CSV

def die(what, part):
    if what == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

columns = Columns(ids={"user": "user"}, dense=("age",), label="y")
data = CSV(path=sys.argv[1], label="y", dense_features=("age",))
scan(data, columns, cache=Path(sys.argv[2]), progress=die)
"""

    @pytest.mark.parametrize("stage", ["reading the data", "splitting the examples", "building vocabularies"])
    def test_a_killed_scan_leaves_nothing_that_is_read(self, file: Path, tmp_path: Path, stage: str) -> None:
        command = [sys.executable, "-c", self.KILLED, str(file), str(tmp_path / "cache"), stage]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        left = sorted(each.name for each in (tmp_path / "cache").iterdir())
        assert any(name.startswith(".making-") for name in left)
        again = scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
        assert not list((tmp_path / "cache").glob(".making-*"))
        assert content(again) == content(scan(csv_of(file), COLUMNS, cache=tmp_path / "fresh"))

    def test_a_failed_scan_leaves_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "data.csv"
        file.write_text(lines(50, bad={30: "u1,x,1"}))
        with pytest.raises(DataError):
            scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
        assert list((tmp_path / "cache").glob("[!d]*")) == []
        assert list((tmp_path / "cache").glob(".*")) == []

    def test_an_interrupted_scan_leaves_nothing(self, file: Path, tmp_path: Path) -> None:
        def interrupt(what: str, part: float | None) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            scan(csv_of(file), COLUMNS, cache=tmp_path / "cache", progress=interrupt)
        assert list((tmp_path / "cache").glob("[!d]*")) == []
        assert list((tmp_path / "cache").glob(".*")) == []

    def test_of_two_makers_the_first_to_finish_wins(self, tmp_path: Path) -> None:
        def make(folder: Path) -> None:
            def other(folder: Path) -> None:
                (folder / "who").write_text("first")

            caching.folder(tmp_path, "kind", "key", other)
            (folder / "who").write_text("second")

        place = caching.folder(tmp_path, "kind", "key", make)
        assert (place / "who").read_text() == "first"
        assert [each.name for each in tmp_path.iterdir()] == ["kind-key"]

    def test_two_processes_at_once(self, tmp_path: Path) -> None:
        file = tmp_path / "data.csv"
        file.write_text(lines(20_000))
        code = self.KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "pass")
        command = [sys.executable, "-c", code, str(file), str(tmp_path / "cache"), ""]
        running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
        said = [process.communicate()[1].decode() for process in running]
        assert [process.returncode for process in running] == [0, 0, 0], said
        assert not [each for each in (tmp_path / "cache").iterdir() if each.name.startswith(".making-")]
        assert content(scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")) == content(
            scan(csv_of(file), COLUMNS, cache=tmp_path / "fresh")
        )


class TestLaterFaults:
    """Beyond the lines that are looked at before a run."""

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("u1,5", "found 2 fields, expected 3 fields"),
            ("u1,5,1,9", "found 4 fields, expected 3 fields"),
            ("u1,old,1", "found 'old' in column 'age', expected a finite number"),
            ("u1,5,", "found nothing in column 'y', expected a finite number; " + SKIP_UNLABELLED),
            ("u1,5,nan", "found 'nan' in column 'y', expected a finite number; " + SKIP_UNLABELLED),
            (
                "u1,1e39,1",
                "found '1e39' in column 'age', expected a finite number that fits into float32, at most 3.4e+38",
            ),
            (
                "u1,inf,1",
                "found 'inf' in column 'age', expected a finite number that fits into float32, at most 3.4e+38",
            ),
            ("u1," + "9" * 90 + "x,1", f"found '{'9' * 60}…' in column 'age', expected a finite number"),
        ],
    )
    @pytest.mark.parametrize("number", [2, 1002, 30_000])
    def test_of_a_text_file_name_the_line(self, tmp_path: Path, line: str, text: str, number: int) -> None:
        file = tmp_path / "data.csv"
        file.write_text(lines(30_000, bad={number: line}))
        with pytest.raises(DataError) as caught:
            scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")
        assert str(caught.value) == f"{file}, line {number}: {text}"

    def test_lines_are_counted_as_an_editor_does(self, tmp_path: Path) -> None:
        file = tmp_path / "data.csv"
        file.write_text('user,age,y\n\n"a\nb",1,1\n\n"c ""d""",2,0\ne,x,1\n')
        with pytest.raises(DataError, match=r"data\.csv, line 7: found 'x' in column 'age'"):
            scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")

    def test_bytes_that_are_not_utf8(self, tmp_path: Path) -> None:
        file = tmp_path / "data.csv"
        file.write_bytes(lines(2000, bad={1500: "?,1,1"}).encode().replace(b"?", "é".encode("latin1")))
        text = r"line 1500: found the byte 0xE9 in column 'user', expected text in UTF-8: if .* set data.encoding"
        with pytest.raises(DataError, match=text):
            scan(csv_of(file), COLUMNS, cache=tmp_path / "cache")

    def test_in_a_folder_name_the_file(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "1.csv").write_text(lines(3000))
        (folder / "2.csv").write_text(lines(3000, bad={2500: "u,1"}))
        with pytest.raises(DataError, match=r"folder/2\.csv, line 2500: found 2 fields, expected 3 fields"):
            scan(csv_of(folder), COLUMNS, cache=tmp_path / "cache")

    @pytest.mark.parametrize(("value", "found"), [(None, "nothing"), (float("nan"), "nan"), (float("inf"), "inf")])
    def test_of_a_parquet_file_name_the_row(self, tmp_path: Path, value: float | None, found: str) -> None:
        table = {"user": [1] * 5000, "age": [1.0] * 5000, "y": [1.0] * 3210 + [value] + [0.0] * 1789}
        pq.write_table(pa.table(table), tmp_path / "d.parquet", row_group_size=700)
        data = Parquet(path=str(tmp_path / "d.parquet"), label="y", dense_features=("age",))
        with pytest.raises(
            DataError, match=rf"d\.parquet, row 3211: found {found} in column 'y', expected a finite number"
        ):
            scan(data, COLUMNS, cache=tmp_path / "cache")

    def test_a_cut_parquet_file(self, tmp_path: Path) -> None:
        path = tmp_path / "d.parquet"
        random = np.random.default_rng(0)
        pq.write_table(
            pa.table(
                {"user": random.integers(0, 10**9, 50_000), "age": random.random(50_000), "y": random.random(50_000)}
            ),
            path,
        )
        content = bytearray(path.read_bytes())
        content[1000:9000] = bytes(8000)
        path.write_bytes(content)
        data = Parquet(path=str(path), label="y", dense_features=("age",))
        with pytest.raises(DataError, match=r"d\.parquet"):
            scan(data, COLUMNS, cache=tmp_path / "cache")

    def test_weights_of_another_number(self, tmp_path: Path) -> None:
        file = tmp_path / "data.csv"
        file.write_text("tags,times,y\n" + "a b,1 2,1\n" * 1500 + "a b,1,1\n")
        columns = Columns(ids={"tags": "tag"}, weights={"times": "tags"}, label="y")
        data = CSV(path=str(file), label="y", list_columns=("tags", "times"))
        text = "line 1502: found 1 weight in column 'times', expected 2, one per value in column 'tags'"
        with pytest.raises(DataError, match=text):
            scan(data, columns, cache=tmp_path / "cache")

    def test_a_split_by_time_without_a_time(self, file: Path, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match=r"data\.timestamp = null: data\.split.kind=time needs the column of timestamps"
        ):
            scan(csv_of(file, split={"kind": "time"}), COLUMNS, cache=tmp_path / "cache")


@pytest.mark.parametrize("name", ["codes-*/labels.npy", "scan-*/ids.npy", "scan-*/facts.json", "codes-*/layout.json"])
def test_encoded_data_that_was_cut_off_is_encoded_again(name: str, file: Path, tmp_path: Path) -> None:
    """It would fail every later run otherwise."""
    cache = tmp_path / "cache"
    one = content(scan(csv_of(file), COLUMNS, cache=cache))
    [damaged] = cache.glob(name)
    os.truncate(damaged, damaged.stat().st_size // 2)
    assert content(scan(csv_of(file), COLUMNS, cache=cache)) == one
