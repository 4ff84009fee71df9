"""Sources on disk, read by us and by brute force: CSV, RecBole atomic files, Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import shutil
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embexp.data import splits
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.files import arrow_table as parquet_source
from embexp.data.files import samples, text_table
from embexp.data.scan import Scan, encode_file, scan
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import ConfigError, DataError, VocabularyError
from embexp.specs.data import CSV, Parquet, RecBole
from tests.thoroughness import examples

COLUMNS = Columns(
    ids={"user": "user", "item": "item", "seen": "item", "tags": "tag"},
    weights={"strength": "tags"},
    dense=("price", "age"),
    label="rating",
)
HEADER = ["user", "item", "seen", "tags", "strength", "price", "age", "rating"]
LISTS = ("seen", "tags", "strength")
REUSE = settings(examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of scans need not each reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)
names = words | st.sampled_from(['a"b', '"', "a,b", "a\nb", "x\r\ny", "é", "ſ", "\t", " pad ", "NULL", "1", "01", "-"])
parts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=" "), min_size=1, max_size=4)
numbers = st.floats(-1e6, 1e6, allow_subnormal=False) | st.integers(-1000, 1000).map(float)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    tags = draw(st.lists(parts, max_size=4))
    return {
        "user": draw(names | st.just("")),
        "item": draw(parts | st.just("")),
        "seen": draw(st.lists(parts, max_size=4)),
        "tags": tags,
        "strength": draw(st.lists(numbers, min_size=len(tags), max_size=len(tags))),
        "price": draw(numbers),
        "age": draw(numbers),
        "rating": draw(numbers),
    }


def write_csv(
    path: Path, table: Sequence[Row], *, delimiter: str = ",", end: str = "\n", header: Sequence[str] = HEADER
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerow(header)
    for row in table:
        cells = [" ".join(map(str, row[name])) if name in LISTS else row[name] for name in header]
        writer.writerow(cells)
    path.write_bytes(text.getvalue().encode())


def write_parquet(path: Path, table: Sequence[Row], **types: pa.DataType) -> None:
    kinds = {"user": pa.string(), "item": pa.string(), "seen": pa.list_(pa.string()), "tags": pa.list_(pa.string())}
    kinds |= {"strength": pa.list_(pa.float64())} | types
    arrays = {name: pa.array([row[name] for row in table], kinds.get(name, pa.float64())) for name in HEADER}
    pq.write_table(pa.table(arrays), path, row_group_size=3)


def csv_of(path: Path, **more: Any) -> CSV:
    return CSV(path=str(path), label="rating", dense_features=("price", "age"), list_columns=LISTS, **more)


def decoded(examples: Examples, vocabularies: Mapping[str, Vocabulary], columns: Columns) -> list[Row]:
    """The examples in words, so that they can be compared with what was written."""
    tokens = {table: vocabularies[table].tokens() for table in set(columns.ids.values())}
    result = []
    for example in range(examples.count):
        row: Row = {}
        for name, table in columns.ids.items():
            if name in examples.lists:
                column = examples.lists[name]
                begin, end = column.splits[example : example + 2]
                row[name] = [tokens[table][place] for place in column.values[begin:end]]
                for weight, weighed in columns.weights.items():
                    if weighed == name:
                        row[weight] = examples.weights[weight][begin:end].tolist()
            else:
                row[name] = tokens[table][examples.ids[example, examples.id_columns.index(name)]]
        row |= {name: float(examples.dense[example, place]) for place, name in enumerate(columns.dense)}
        if examples.labels is not None and columns.label is not None:
            row[columns.label] = float(examples.labels[example])
        result.append(row)
    return result


def single(number: float) -> float:
    return float(np.float32(number))


def expected(table: Sequence[Row], train: np.ndarray, columns: Columns = COLUMNS) -> list[Row]:
    """By the rules: a value that the training split lacks, or a missing one, is out of the vocabulary."""
    counted: dict[str, Counter[str]] = {name: Counter() for name in columns.ids.values()}
    for number in train:
        for name, vocabulary in columns.ids.items():
            value = table[number][name]
            counted[vocabulary].update(value if name in LISTS else [value])
    result = []
    for written in table:
        row: Row = {}
        for name in [*columns.ids, *columns.weights, *columns.dense, columns.label or "rating"]:
            value = written[name]
            if name in columns.ids:
                known = counted[columns.ids[name]]
                row[name] = (
                    [each if each and each in known else "<oov>" for each in value]
                    if name in LISTS
                    else (value if value and value in known else "<oov>")
                )
            else:
                row[name] = [single(each) for each in value] if name in LISTS else single(value)
        result.append(row)
    return result


@REUSE
@given(
    table=st.lists(rows(), min_size=4, max_size=12),
    delimiter=st.sampled_from([",", "\t", ";", "|"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_csv_as_written(table: list[Row], delimiter: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    write_csv(path, table, delimiter=delimiter, end=end)
    found = scan(csv_of(path, delimiter=delimiter), COLUMNS, cache=tmp_path / "cache")
    assert decoded(found.examples, found.vocabularies, COLUMNS) == expected(table, found.splits["train"])


@REUSE
@given(table=st.lists(rows(), min_size=4, max_size=12))
def test_the_same_table_is_the_same_through_csv_and_parquet(table: list[Row], tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", table)
    write_parquet(tmp_path / "data.parquet", table)
    parquet = Parquet(path=str(tmp_path / "data.parquet"), label="rating", dense_features=("price", "age"))
    one = scan(csv_of(tmp_path / "data.csv"), COLUMNS, cache=tmp_path / "cache")
    other = scan(parquet, COLUMNS, cache=tmp_path / "cache")
    assert same(one, other)
    assert decoded(other.examples, other.vocabularies, COLUMNS) == expected(table, other.splits["train"])


def same(one: Scan, other: Scan) -> bool:
    arrays = [
        [
            each.examples.ids,
            each.examples.dense,
            each.examples.labels,
            *(array for column in each.examples.lists.values() for array in (column.values, column.splits)),
            *each.examples.weights.values(),
            *each.splits.values(),
        ]
        for each in (one, other)
    ]
    return (
        all(np.array_equal(a, b) for a, b in zip(*arrays, strict=True))
        and {name: v.digest for name, v in one.vocabularies.items()}
        == {name: v.digest for name, v in other.vocabularies.items()}
        and one.label_mean == other.label_mean
    )


TABLE: list[Row] = [
    {
        "user": f"u{number % 7}",
        "item": f"i{number % 5}",
        "seen": [f"i{other}" for other in range(number % 4)],
        "tags": ["a", "b"][: number % 3],
        "strength": [0.5, 2.0][: number % 3],
        "price": number / 2,
        "age": float(number),
        "rating": float(number % 5 + 1),
    }
    for number in range(40)
]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_csv(tmp_path / "data.csv", TABLE)
    return tmp_path / "data.csv"


def test_a_shared_table_has_one_vocabulary_of_both_columns(written: Path, tmp_path: Path) -> None:
    found = scan(csv_of(written), COLUMNS, cache=tmp_path / "cache")
    counted: Counter[str] = Counter()
    for number in found.splits["train"]:
        counted.update([TABLE[number]["item"], *TABLE[number]["seen"]])
    assert found.vocabularies["item"].tokens()[1:] == sorted(counted, key=lambda token: (-counted[token], token))
    assert found.vocabularies["item"].frequencies[1:].tolist() == sorted(counted.values(), reverse=True)  # type: ignore[attr-defined]


def test_vocabularies_know_the_training_part_only(tmp_path: Path) -> None:
    table = [{**row, "user": f"only in {number}"} for number, row in enumerate(TABLE)]
    write_csv(tmp_path / "data.csv", table)
    split = {"validation": 0.2, "test": 0.3}
    found = scan(csv_of(tmp_path / "data.csv", split=split), COLUMNS, cache=tmp_path / "cache")
    users = found.examples.ids[:, found.examples.id_columns.index("user")]
    assert set(found.vocabularies["user"].tokens()) == {"<oov>"} | {f"only in {n}" for n in found.splits["train"]}
    assert (users[found.splits["train"]] > 0).all()
    assert (users[found.splits["test"]] == 0).all()
    assert (users[found.splits["validation"]] == 0).all()


def test_label_mean_is_that_of_the_training_split(written: Path, tmp_path: Path) -> None:
    found = scan(csv_of(written, split={"test": 0.5}), COLUMNS, cache=tmp_path / "cache")
    labels = [TABLE[number]["rating"] for number in found.splits["train"]]
    assert found.label_mean == pytest.approx(sum(labels) / len(labels), rel=1e-12)


def test_a_threshold_makes_clicks_of_ratings(written: Path, tmp_path: Path) -> None:
    found = scan(csv_of(written, label_threshold=4), COLUMNS, cache=tmp_path / "cache")
    assert found.examples.labels is not None
    assert found.examples.labels.tolist() == [float(row["rating"] >= 4) for row in TABLE]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_how_the_file_ends_makes_no_difference(written: Path, tmp_path: Path, end: str) -> None:
    write_csv(tmp_path / "other.csv", TABLE, end=end)
    content = (tmp_path / "other.csv").read_bytes().removesuffix(end.encode())
    (tmp_path / "other.csv").write_bytes(b"\xef\xbb\xbf" + content)
    cut = scan(csv_of(tmp_path / "other.csv"), COLUMNS, cache=tmp_path / "cache")
    assert same(cut, scan(csv_of(written), COLUMNS, cache=tmp_path / "cache"))


def test_a_folder_of_files_is_one_table_in_the_order_of_names(written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    # The columns may stand in another order; hidden files and marks of success are passed over.
    write_csv(folder / "part-2.csv", TABLE[25:], header=HEADER[::-1])
    write_csv(folder / "part-1.csv", TABLE[:25])
    (folder / "_SUCCESS").touch()
    (folder / ".part-1.csv.crc").write_text("x")
    assert same(
        scan(csv_of(folder), COLUMNS, cache=tmp_path / "cache"),
        scan(csv_of(written), COLUMNS, cache=tmp_path / "cache"),
    )


def test_a_folder_of_parquet_files(written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_parquet(folder / "0.parquet", TABLE[:11], user=pa.dictionary(pa.int32(), pa.string()))
    write_parquet(folder / "1.parquet", TABLE[11:], user=pa.large_string(), strength=pa.large_list(pa.float32()))
    parquet = Parquet(path=str(folder), label="rating", dense_features=("price", "age"))
    one = scan(parquet, COLUMNS, cache=tmp_path / "cache")
    assert same(one, scan(csv_of(written), COLUMNS, cache=tmp_path / "cache"))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()])
def test_integers_are_tokens_by_their_decimal_text(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "data.parquet"
    ids = [3, 100, 3, None, 7, 3, 100, 0]
    lists = [[1, 2], [], None, [2, None], [2], [], [1], [1]]
    table = {"a": pa.array(ids, kind), "b": pa.array(lists, pa.list_(kind)), "y": pa.array([True] * 8)}
    pq.write_table(pa.table(table), path)
    columns = Columns(ids={"a": "a", "b": "b"}, label="y")
    parquet = Parquet(path=str(path), label="y", split={"validation": 0, "test": 0})
    found = scan(parquet, columns, cache=tmp_path / "cache")
    assert found.vocabularies["a"].tokens() == ["<oov>", "3", "100", "0", "7"]
    assert [row["a"] for row in decoded(found.examples, found.vocabularies, columns)] == [
        "<oov>" if each is None else str(each) for each in ids
    ]
    assert [row["b"] for row in decoded(found.examples, found.vocabularies, columns)] == [
        ["<oov>" if value is None else str(value) for value in each or []] for each in lists
    ]


def test_fixed_size_lists_and_times(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    lists = pa.array([[1, 2], [3, 4], None, [5, 5]], pa.list_(pa.int64(), 2))
    times = pa.array([40, 10, 30, 20], pa.timestamp("ms"))
    pq.write_table(pa.table({"x": lists, "t": times, "y": [0.0, 1.0, 2.0, 3.0]}), path)
    columns = Columns(ids={"x": "x"}, label="y")
    parquet = Parquet(
        path=str(path), label="y", timestamp="t", split={"kind": "time", "validation": 0.25, "test": 0.25}
    )
    found = scan(parquet, columns, cache=tmp_path / "cache")
    assert [found.splits[part].tolist() for part in ("train", "validation", "test")] == [[1, 3], [2], [0]]
    assert [row["x"] for row in decoded(found.examples, found.vocabularies, columns)] == [
        ["<oov>", "<oov>"], ["3", "4"], [], ["5", "5"]
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")] + [pa.date64(), pa.date32()])
def test_times_are_seconds_since_1970_whatever_their_unit(tmp_path: Path, kind: pa.DataType) -> None:
    path, columns = tmp_path / "data.parquet", Columns(ids={"x": "x"}, dense=("t",), label="y")
    days = pa.array([0, 1, 20_000, -3], pa.int32()).cast(pa.date32()).cast(kind)
    pq.write_table(pa.table({"x": ["a"] * 4, "t": days, "y": [0.0, 1.0, 2.0, 3.0]}), path)
    parquet = Parquet(path=str(path), label="y", dense_features=("t",))
    found = scan(parquet, columns, cache=tmp_path / "cache").examples
    assert found.dense[:, 0].tolist() == [0.0, 86_400.0, 20_000 * 86_400.0, -3 * 86_400.0]


class TestRecBole:
    COLUMNS = Columns(
        ids={"user_id": "user", "item_id": "item", "class": "genre", "city": "city", "recent": "item"},
        weights={"when": "recent"},
        dense=("age",),
        label="rating",
    )

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "toy"
        folder.mkdir()
        (folder / "toy.inter").write_text(
            "user_id:token\titem_id:token\trating:float\trecent:token_seq\twhen:float_seq\n"
            "1\ta\t3\ta b\t1 2.5\n2\tb\t4.5\t\t\n1\tc\t1e0\tb\t-1\n2\ta\t5\tc b a\t1 2 3\n"
        )
        (folder / "toy.user").write_text('user_id:token\tage:float\tcity:token\n2\t40\t"Ulm\n1\t20.5\tBad Ems\n')
        (folder / "toy.item").write_text("item_id:token\tclass:token_seq\nb\tDrama\na\tComedy Drama\n")
        return folder

    def data(self, path: Path, **more: Any) -> RecBole:
        options = {"split": {"validation": 0, "test": 0}, **more}
        return RecBole(path=str(path), label="rating", dense_features=("age",), **options)

    def test_side_files_are_joined_by_their_key(self, folder: Path, tmp_path: Path) -> None:
        found = scan(self.data(folder), self.COLUMNS, cache=tmp_path / "cache")
        assert decoded(found.examples, found.vocabularies, self.COLUMNS) == [
            {"user_id": "1", "item_id": "a", "class": ["Comedy", "Drama"], "city": "Bad Ems", "recent": ["a", "b"],
             "when": [1.0, 2.5], "age": 20.5, "rating": 3.0},
            {"user_id": "2", "item_id": "b", "class": ["Drama"], "city": '"Ulm', "recent": [],
             "when": [], "age": 40.0, "rating": 4.5},
            {"user_id": "1", "item_id": "c", "class": [], "city": "Bad Ems", "recent": ["b"],
             "when": [-1.0], "age": 20.5, "rating": 1.0},
            {"user_id": "2", "item_id": "a", "class": ["Comedy", "Drama"], "city": '"Ulm', "recent": ["c", "b", "a"],
             "when": [1.0, 2.0, 3.0], "age": 40.0, "rating": 5.0},
        ]  # fmt: skip

    def test_the_inter_file_may_be_named_itself(self, folder: Path, tmp_path: Path) -> None:
        one = scan(self.data(folder), self.COLUMNS, cache=tmp_path / "cache")
        assert same(one, scan(self.data(folder / "toy.inter"), self.COLUMNS, cache=tmp_path / "cache"))

    def test_each_file_may_be_compressed(self, folder: Path, tmp_path: Path) -> None:
        plain = scan(self.data(folder), self.COLUMNS, cache=tmp_path / "cache")
        packed = tmp_path / "packed"
        packed.mkdir()
        (packed / "toy.inter.gz").write_bytes(gzip.compress((folder / "toy.inter").read_bytes()))
        with zipfile.ZipFile(packed / "toy.user.zip", "w") as archive:
            archive.write(folder / "toy.user", "toy.user")
        shutil.copy(folder / "toy.item", packed)
        for path in (packed, packed / "toy.inter.gz"):
            assert same(plain, scan(self.data(path), self.COLUMNS, cache=tmp_path / "cache"))
        assert samples.sample(packed).columns == samples.sample(folder).columns
        shutil.copy(folder / "toy.user", packed)
        with pytest.raises(ConfigError, match=r"must hold toy\.user or toy\.user\.zip, but it has both"):
            scan(self.data(packed), self.COLUMNS, cache=tmp_path / "cache")
        shutil.copy(folder / "toy.inter", packed)
        with pytest.raises(ConfigError, match=r"one file NAME\.inter; found toy\.inter, toy\.inter\.gz"):
            scan(self.data(packed), self.COLUMNS, cache=tmp_path / "cache")

    def test_a_number_that_no_side_line_gives_is_an_error(self, folder: Path, tmp_path: Path) -> None:
        (folder / "toy.user").write_text("user_id:token\tage:float\tcity:token\n1\t20.5\tBad Ems\n")
        text = "toy.inter, row 2: found nothing in column 'age', expected a finite number"
        with pytest.raises(DataError, match=text):
            scan(self.data(folder), self.COLUMNS, cache=tmp_path / "cache")

    def test_two_lines_for_one_key_are_an_error(self, folder: Path, tmp_path: Path) -> None:
        with (folder / "toy.user").open("a") as file:
            file.write("1\t3\tUlm\n")
        with pytest.raises(DataError, match=r"toy\.user: user_id '1' has more than one line, expected one"):
            scan(self.data(folder), self.COLUMNS, cache=tmp_path / "cache")

    def test_leave_one_out_by_time(self, folder: Path, tmp_path: Path) -> None:
        inter = "user_id:token\titem_id:token\trating:float\tt:float\n"
        times = [("1", 5), ("2", 1), ("1", 3), ("1", 9), ("2", 0), ("3", 7)]
        inter += "".join(f"{user}\ta\t1\t{time}\n" for user, time in times)
        (folder / "toy.inter").write_text(inter)
        data = RecBole(
            path=str(folder), label="rating", timestamp="t", split={"kind": "leave_one_out", "group": "user_id"}
        )
        columns = Columns(ids={"item_id": "item"}, label="rating")
        found = scan(data, columns, cache=tmp_path / "cache")
        assert [found.splits[part].tolist() for part in ("train", "validation", "test")] == [[2, 4, 5], [0], [1, 3]]


class TestOtherFiles:
    """`encode_file`: another file with the vocabularies of a run."""

    @pytest.fixture
    def run(self, written: Path, tmp_path: Path) -> Scan:
        return scan(csv_of(written), COLUMNS, cache=tmp_path / "cache")

    OTHER: ClassVar[list[Row]] = [{**TABLE[0], "user": "nobody"}, {**TABLE[5], "seen": ["i1", "what", "i2"]}, TABLE[9]]

    def test_with_the_label(self, run: Scan, written: Path, tmp_path: Path) -> None:
        write_csv(tmp_path / "other.csv", self.OTHER)
        found = encode_file(
            tmp_path / "other.csv", csv_of(written), COLUMNS, run.vocabularies, cache=tmp_path / "cache"
        )
        rows_ = decoded(found, run.vocabularies, COLUMNS)
        assert [row["user"] for row in rows_] == ["<oov>", "u5", "u2"]
        assert [row["seen"] for row in rows_] == [[], ["i1", "<oov>", "i2"], ["i0"]]
        assert [row["rating"] for row in rows_] == [1.0, 1.0, 5.0]
        # An id means the same row as in the run.
        np.testing.assert_array_equal(found.ids[2], run.examples.ids[9])

    def test_without_the_label(self, run: Scan, written: Path, tmp_path: Path) -> None:
        write_csv(tmp_path / "other.csv", self.OTHER, header=[name for name in HEADER if name != "rating"])
        unlabelled = Columns(COLUMNS.ids, COLUMNS.weights, COLUMNS.dense, label=None)
        found = encode_file(
            tmp_path / "other.csv", csv_of(written), unlabelled, run.vocabularies, cache=tmp_path / "cache"
        )
        assert found.labels is None
        np.testing.assert_array_equal(found.ids[2], run.examples.ids[9])
        with pytest.raises(ConfigError, match=r"data.label = 'rating': .*other.csv has no such column"):
            encode_file(tmp_path / "other.csv", csv_of(written), COLUMNS, run.vocabularies, cache=tmp_path / "cache")

    def test_a_column_of_the_split_is_not_needed(self, run: Scan, written: Path, tmp_path: Path) -> None:
        write_csv(tmp_path / "other.csv", self.OTHER)
        data = csv_of(written, timestamp="absent", split={"kind": "leave_one_out", "group": "absent too"})
        encode_file(tmp_path / "other.csv", data, COLUMNS, run.vocabularies, cache=tmp_path / "cache")

    def test_an_unknown_value_without_an_oov_row(self, written: Path, tmp_path: Path) -> None:
        strict = csv_of(written, vocabulary={"unknown": "error"}, split={"validation": 0, "test": 0})
        run = scan(strict, COLUMNS, cache=tmp_path / "cache")
        assert run.vocabularies["user"].size == 7
        write_csv(tmp_path / "other.csv", self.OTHER)
        text = r"other.csv, row 1: 'nobody' in column 'user' is not in the vocabulary of table 'user' \(1 distinct"
        with pytest.raises(VocabularyError, match=text):
            encode_file(tmp_path / "other.csv", strict, COLUMNS, run.vocabularies, cache=tmp_path / "cache")
        write_csv(tmp_path / "other.csv", [TABLE[3], self.OTHER[1]])
        text = "other.csv, row 2: 'what' in column 'seen' is not in the vocabulary of table 'item'"
        with pytest.raises(VocabularyError, match=text):
            encode_file(tmp_path / "other.csv", strict, COLUMNS, run.vocabularies, cache=tmp_path / "cache")


def test_an_unknown_or_missing_value_in_the_test_part_is_an_error_if_wanted(tmp_path: Path) -> None:
    table = [*TABLE, {**TABLE[0], "user": ""}]
    write_csv(tmp_path / "data.csv", table)
    data = csv_of(tmp_path / "data.csv", vocabulary={"unknown": "error"}, split={"validation": 0, "test": 0})
    text = "data.csv, row 41: a missing value in column 'user' is not in the vocabulary of table 'user'"
    with pytest.raises(VocabularyError, match=text):
        scan(data, COLUMNS, cache=tmp_path / "cache")


numerals = st.text("0123456789+-.eE_ \tnaifNI", max_size=7)


@settings(REUSE, max_examples=examples(60).max_examples)
@given(text=numerals | st.floats().map(str) | st.sampled_from(["1e39", "-1e39", "3.4e38", "1_0", "0x1", "١", "", " "]))
def test_both_readers_of_numbers_agree(text: str, tmp_path: Path) -> None:
    """The careful reader must find what stops the fast one, and nothing else."""
    from embexp.data.files.text_table import is_number

    path = tmp_path / "data.csv"
    path.write_text(f"a,y\nx,{text}\n", "utf-8")
    data = CSV(path=str(path), label="y", split={"validation": 0, "test": 0})
    columns = Columns(ids={"a": "a"}, label="y")
    if is_number(text):
        labels = scan(data, columns, cache=tmp_path / "cache").examples.labels
        assert labels is not None
        assert labels.tolist() == [single(float(text))]
        assert math.isfinite(labels[0])
    else:
        with pytest.raises(DataError, match=r"data\.csv, line 2: found .* in column 'y', expected a finite number"):
            scan(data, columns, cache=tmp_path / "cache")


def test_chunks_join_without_a_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that end in quotes, lists and codes go on from chunk to chunk, in every reader."""
    table = [{**row, "user": f'line\n"{number % 11}"\r\nline'} for number, row in enumerate(TABLE * 5)]
    write_csv(tmp_path / "data.csv", table)
    write_parquet(tmp_path / "data.parquet", table)
    parquet = Parquet(path=str(tmp_path / "data.parquet"), label="rating", dense_features=("price", "age"))
    whole = scan(csv_of(tmp_path / "data.csv"), COLUMNS, cache=tmp_path / "whole")
    assert decoded(whole.examples, whole.vocabularies, COLUMNS) == expected(table, whole.splits["train"])
    monkeypatch.setattr(text_table, "_BLOCK_BYTES", 256)
    monkeypatch.setattr(parquet_source, "BATCH_ROWS", 7)
    monkeypatch.setattr(splits, "_CHUNK", 13)
    told: list[float | None] = []
    for data in (csv_of(tmp_path / "data.csv"), parquet):
        pieces = scan(
            data, COLUMNS, cache=tmp_path / "pieces", progress=lambda what, part: told.append(part) if part else None
        )
        assert same(pieces, whole)
    assert len(told) > 40
    assert all(part is not None and 0 < part <= 1 for part in told)
