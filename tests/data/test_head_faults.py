"""What is found wrong with the data before anything starts, in which words, and at what cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embexp.data.columns import SKIP_UNLABELLED, Columns, columns_of
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError
from embexp.specs.data import CSV, Clicks, Data, Parquet, RecBole
from embexp.specs.tables import Feature

GOOD = "user,item,tags,times,age,y\n" + "u1,i1,a b,1 2,30,1\n" * 1100


def feature(**keys: Any) -> Feature:
    return Feature(**keys)


def columns(data: Data, **features: Feature) -> Columns:
    return columns_of(data, features or {"user": feature(table="user"), "item": feature(table="item")})[0]


def csv_of(path: Path, **more: Any) -> CSV:
    return CSV(path=str(path), **{"label": "y", **more})


def told(data: Data, found: Columns | None = None) -> list[str]:
    return [str(fault) for fault in source_of(data).head_faults(found or columns(data))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(GOOD)
    return path


def test_good_data_has_no_faults(file: Path) -> None:
    data = csv_of(file, list_columns=("tags", "times"), dense_features=("age",))
    found = columns(data, tags=feature(table="tags", weights="times"), user=feature(table="user"))
    assert told(data, found) == []


class TestPath:
    def test_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "absent.csv"
        assert told(csv_of(path)) == [f"data.path = '{path}': there is no such file or folder."]
        monkeypatch.chdir(tmp_path)
        assert told(csv_of(Path("absent.csv"))) == [
            f"data.path = 'absent.csv': there is no such file or folder.\n    looked in {tmp_path}"
        ]

    @pytest.mark.parametrize(
        ("content", "rule"),
        [
            ("", "the file is empty; its first line must name the columns"),
            ("\n\n\n", "the file holds only empty lines; its first line must name the columns"),
            ("user,item,y\n", "the file has a header line but no examples below it"),
            ("user,item,y\n\n\n", "the file has a header line but no examples below it"),
        ],
    )
    def test_of_an_empty_file(self, tmp_path: Path, content: str, rule: str) -> None:
        path = tmp_path / "data.csv"
        path.write_text(content)
        assert told(csv_of(path)) == [f"data.path = '{path}': {rule}."]

    @pytest.mark.parametrize("kind", [CSV, Parquet])
    def test_of_a_folder(self, tmp_path: Path, kind: type) -> None:
        data = kind(path=str(tmp_path), label="y")
        assert told(data) == [f"data.path = '{tmp_path}': the folder holds no files."]
        (tmp_path / ".hidden").touch()
        assert told(data) == [f"data.path = '{tmp_path}': the folder holds no files."]
        (tmp_path / "inner").mkdir()
        assert told(data) == [
            f"data.path = '{tmp_path}': a folder of data files may hold only files, not the folder 'inner'.\n"
            f"    to read the files in its subfolders: {tmp_path.name}/*/*; values in folder names are not read"
        ]

    def test_not_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "data.csv"
        path.write_bytes("usér,item,y\na,b,1\n".encode("latin1"))
        [fault] = told(csv_of(path))
        assert "line 1: found the byte 0xE9, expected text in UTF-8: if it has another encoding, set data.enc" in fault

    @pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all, but long enough to be one PAR1"])
    def test_not_parquet(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "d.parquet"
        path.write_bytes(content)
        [fault] = told(Parquet(path=str(path), label="y"))
        assert fault.startswith(f"data.path = '{path}': the file ")
        assert ("is empty" if not content else "can't be read as Parquet") in fault

    def test_parquet_without_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "d.parquet"
        pq.write_table(pa.table({"user": pa.array([], pa.string())}), path)
        assert told(Parquet(path=str(path), label="y")) == [
            f"data.path = '{path}': the file has columns but no examples."
        ]


class TestColumns:
    def test_all_missing_ones_are_named_each_with_who_asked(self, file: Path) -> None:
        data = csv_of(
            file,
            label="clik",
            timestamp="tme",
            dense_features=("agee", "xxxxx"),
            list_columns=("tagz",),
            split={"kind": "leave_one_out", "group": "usr"},
        )
        found = columns(
            data, a=feature(table="t", column="itme", weights="tims"), user=feature(table="u"), z=feature(table="u")
        )
        faults = source_of(data).head_faults(found)
        assert [fault.path for fault in faults] == [
            "features.a.column", "features.z", "features.a.weights", "data.dense_features", "data.dense_features",
            "data.label", "data.timestamp", "data.split.group", "data.list_columns",
        ]  # fmt: skip
        assert str(faults[0]) == (
            f"features.a.column = 'itme': {file} has no such column.\n    did you mean 'item' or 'times'?"
        )
        assert str(faults[1]) == (
            f"features.z = 'z': {file} has no such column.\n    its columns are: user, item, tags, times, age, y"
        )

    def test_a_list_column_that_a_feature_reads_is_one_fault(self, file: Path) -> None:
        data = csv_of(file, list_columns=("tagz",))
        faults = source_of(data).head_faults(columns(data, a=feature(table="t", column="tagz")))
        assert [fault.path for fault in faults] == ["features.a.column"]

    def test_every_file_of_a_folder_is_looked_at(self, tmp_path: Path) -> None:
        (tmp_path / "1.csv").write_text("user,item,y\na,b,1\n")
        (tmp_path / "2.csv").write_text("user,itm,y\na,b,1\n")
        assert told(csv_of(tmp_path)) == [
            f"features.item = 'item': {tmp_path}/2.csv has no such column.\n    did you mean 'itm'?"
        ]

    def test_a_name_that_stands_twice(self, tmp_path: Path) -> None:
        path = tmp_path / "data.csv"
        path.write_text("user,item,y,item,other,other\na,b,1,c,d,e\n")
        assert told(csv_of(path)) == [
            f"features.item = 'item': {path} has 2 columns with this name; it must have exactly one."
        ]

    def test_a_number_of_several_values(self, file: Path) -> None:
        data = csv_of(file, list_columns=("age", "y"), dense_features=("age",))
        rule = "the column holds several values per example; it must hold one."
        assert told(data) == [f"data.dense_features = 'age': {rule}", f"data.label = 'y': {rule}"]

    def test_weights_and_ids_of_different_shape(self, file: Path) -> None:
        data = csv_of(file, list_columns=("tags",))
        found = columns(data, tags=feature(table="t", weights="age"))
        assert told(data, found) == [
            "features.tags.weights = 'age': there must be one weight per id, but this column holds one value "
            "per example and 'tags' several values."
        ]

    def test_a_split_that_needs_the_time(self, file: Path) -> None:
        for split in ({"kind": "time"}, {"kind": "leave_one_out", "group": "user"}):
            assert told(csv_of(file, split=split)) == [
                f"data.timestamp = null: data.split.kind={split['kind']} needs the column of timestamps.\n"
                "    name it, or choose another split"
            ]
        assert told(csv_of(file, split={"kind": "time"}, timestamp="age")) == []

    def test_one_weight_column_for_two_id_columns(self, file: Path) -> None:
        features = {"a": feature(table="t", weights="w"), "b": feature(table="t", weights="w")}
        text = "features.b.weights = 'w': this column already has the weights of 'a', so it can't have those of 'b'"
        with pytest.raises(ConfigError, match=text):
            columns_of(csv_of(file), features)

    def test_types_of_parquet_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "d.parquet"
        pq.write_table(pa.table({"user": [1.5], "item": [[["deep"]]], "y": ["yes"], "age": [{"a": 1}]}), path)
        data = Parquet(path=str(path), label="y", dense_features=("age",))
        assert told(data) == [
            f"features.user = 'user': its values must be text or integers in {path}.\n    convert them to text",
            f"features.item = 'item': its values must be text or integers in {path}.\n    convert them to text",
            f"data.dense_features = 'age': the column must hold numbers in {path}.\n    convert its values to numbers",
        ]
        pq.write_table(pa.table({"user": ["u", "v"], "item": [1, 2], "y": [" 0.5", "yes"]}), path)  # as in CSV
        rule = "row 2: found 'yes' in column 'y', expected a finite number"
        assert told(Parquet(path=str(path), label="y")) == [f"data.path = '{path}': {rule}."]

    def test_parquet_files_that_disagree(self, tmp_path: Path) -> None:
        for name, item in (("1", ["a"]), ("2", [["a", "b"]])):
            pq.write_table(pa.table({"user": ["u"], "item": item, "y": [1.0]}), tmp_path / f"{name}.parquet")
        assert told(Parquet(path=str(tmp_path), label="y")) == [
            f"features.item = 'item': {tmp_path}/2.parquet and {tmp_path}/1.parquet must both hold several "
            f"values in this column, or both hold one."
        ]


class TestOneIdWhereSeveralAreNeeded:
    """What would otherwise come to light only when TensorFlow traces the lookup."""

    @pytest.fixture(params=["parquet", "recbole"])
    def data(self, request: pytest.FixtureRequest, tmp_path: Path) -> Data:
        if request.param == "parquet":
            table = {"user": ["a", "b"], "seen": [["x"], ["y", "z"]], "times": [[1.0], [1.0, 2.0]], "one": [1.0, 1.0]}
            pq.write_table(pa.table({**table, "y": [0.0, 1.0]}), tmp_path / "d.parquet")
            return Parquet(path=str(tmp_path / "d.parquet"), label="y")
        (tmp_path / "d.inter").write_text(
            "user:token\tseen:token_seq\ttimes:float_seq\tone:float\ty:float\na\tx\t1\t1\t0\nb\ty z\t1 2\t1\t1\n"
        )
        return RecBole(path=str(tmp_path), label="y")

    def test_a_sequence(self, data: Data) -> None:
        found = columns(data, who=feature(table="t", column="user", max_sequence_length=5))
        assert told(data, found) == [
            "features.who.max_sequence_length = 5: column 'user' holds one id per example, but this setting "
            "applies only to columns that hold several.\n    remove it, or name a column that holds several"
        ]

    def test_weights(self, data: Data) -> None:
        found = columns(data, user=feature(table="t", weights="one"))
        assert told(data, found) == [
            "features.user.weights = 'one': column 'user' holds one id per example, but this setting applies "
            "only to columns that hold several.\n    remove it, or name a column that holds several"
        ]

    def test_every_feature_that_asks_is_named(self, data: Data) -> None:
        found = columns(
            data,
            a=feature(table="t", column="user", max_sequence_length=5),
            b=feature(table="t", column="user"),
            c=feature(table="t", column="user", max_sequence_length=6),
        )
        assert [fault.path for fault in source_of(data).head_faults(found)] == [
            "features.a.max_sequence_length",
            "features.c.max_sequence_length",
        ]

    def test_lists_are_right(self, data: Data) -> None:
        found = columns(
            data,
            seen=feature(table="t", weights="times"),
            again=feature(table="t", column="seen", max_sequence_length=3),
            user=feature(table="u"),
        )
        assert told(data, found) == []


class TestLines:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("u1,i1,a b,1 2,30", "found 5 fields, expected 6 fields"),
            ("u1", "found 1 field, expected 6 fields"),
            ("u1,i1,a b,1 2,30,1,", "found 7 fields, expected 6 fields"),
            ("u1,i1,a b,1 2,30,", "found nothing in column 'y', expected a finite number; " + SKIP_UNLABELLED),
            ("u1,i1,a b,1 2,30,nan", "found 'nan' in column 'y', expected a finite number; " + SKIP_UNLABELLED),
            ("u1,i1,a b,1 2,30,yes", "found 'yes' in column 'y', expected a finite number"),
            (
                "u1,i1,a b,1 2,1e39,1",
                "found '1e39' in column 'age', expected a finite number that fits into float32, at most 3.4e+38",
            ),
            ("u1,i1,a b,1 x,30,1", "found 'x' in column 'times', expected a finite number"),
            ("u1,i1,a,1 2,30,1", "found 2 weights in column 'times', expected 1, one per value in column 'tags'"),
            ("u1,i1,a b,,30,1", "found 0 weights in column 'times', expected 2, one per value in column 'tags'"),
        ],
    )
    @pytest.mark.parametrize("number", [2, 500, 1001])
    def test_the_first_malformed_line(self, file: Path, line: str, text: str, number: int) -> None:
        lines = GOOD.splitlines()
        lines[number - 1] = line
        lines[number] = "later ones are not told"
        file.write_text("\n".join(lines))
        data = csv_of(file, list_columns=("tags", "times"), dense_features=("age",))
        found = columns(data, tags=feature(table="tags", weights="times"))
        assert told(data, found) == [f"data.path = '{file}': line {number}: {text}."]

    def test_only_the_first_thousand_are_looked_at(self, file: Path) -> None:
        lines = GOOD.splitlines()
        lines[1001] = "x"
        file.write_text("\n".join(lines))
        assert told(csv_of(file)) == []

    def test_one_fault_for_each_file(self, tmp_path: Path) -> None:
        for name in ("1.csv", "2.csv"):
            (tmp_path / name).write_text("user,item,y\na,b\n")
        assert told(csv_of(tmp_path)) == [
            f"data.path = '{tmp_path}/{name}': line 2: found 2 fields, expected 3 fields."
            for name in ("1.csv", "2.csv")
        ]

    def test_columns_that_nobody_reads_may_hold_anything(self, file: Path) -> None:
        file.write_text("user,item,note,y\na,b,,1\nc,d,nan,2\n")
        assert told(csv_of(file)) == []

    @pytest.mark.parametrize(("number", "seen"), [(0, True), (999, True), (1000, False)])
    def test_of_parquet(self, tmp_path: Path, number: int, seen: bool) -> None:
        values: list[float | None] = [1.0] * 3000
        values[number] = None
        pq.write_table(pa.table({"user": ["u"] * 3000, "item": [1] * 3000, "y": values}), tmp_path / "d.parquet")
        found = told(Parquet(path=str(tmp_path / "d.parquet"), label="y"))
        path = tmp_path / "d.parquet"
        rule = "found nothing in column 'y', expected a finite number; " + SKIP_UNLABELLED
        expected = f"data.path = '{path}': row {number + 1}: {rule}."
        assert found == ([expected] if seen else [])


class TestRecBole:
    def folder(self, tmp_path: Path, **files: str) -> Path:
        for suffix, text in files.items():
            (tmp_path / f"toy.{suffix}").write_text(text)
        return tmp_path

    INTER = "user_id:token\titem_id:token\ty:float\n1\ta\t3\n"

    def told(self, path: Path, *names: str) -> list[str]:
        data = RecBole(path=str(path), label="y")
        return told(data, columns(data, **{name: feature(table=name) for name in names or ("user_id", "item_id")}))

    def test_no_inter_file_or_two(self, tmp_path: Path) -> None:
        rule = f"data.path = '{tmp_path}': the folder must hold one file NAME.inter; found"
        assert self.told(tmp_path) == [f"{rule} none."]
        (tmp_path / "a.inter").touch()
        (tmp_path / "b.inter").touch()
        assert self.told(tmp_path) == [f"{rule} a.inter, b.inter."]

    def test_a_header_of_another_form(self, tmp_path: Path) -> None:
        types = "token, token_seq, float, float_seq"
        path = self.folder(tmp_path, inter="user_id:token\titem_id:text\n1\t2\n") / "toy.inter"
        remedy = "after the name of each column, write its type, such as user_id:token; numbers and times are float"
        rule = f"expected name:type with a type among {types}"
        found = f"data.path = '{path}': line 1: found 'item_id:text', {rule}.\n    {remedy}"
        assert self.told(tmp_path) == [found]
        path.write_text("user_id\titem_id\n1\t2\n")
        assert self.told(tmp_path)[0].endswith(f"{remedy}, or rename the file to toy.tsv and read it with data=csv")
        path.write_text("# user_id:token item_id:token y:float\n1 2 3\n")
        assert "remove the leading #" in self.told(tmp_path)[0]

    @pytest.mark.parametrize(
        ("between", "end"), [(",", "\n"), (" ", "\n"), (";", "\r\n"), ("\t", "\t\r\n"), (" \t", "\n")]
    )
    def test_separators_show_in_the_header(self, tmp_path: Path, between: str, end: str) -> None:
        header = between.join(["user_id:token", "item_id:token", "y:float"])
        row = (between.strip(" ") or " ").join(["1", "a", "3"])
        assert self.told(self.folder(tmp_path, inter=f"{header}{end}{row}{end}")) == []

    def test_columns_beside(self, tmp_path: Path) -> None:
        self.folder(tmp_path, inter=self.INTER, user="user_id:token\tage:float\n1\t3\n", item="x\n")
        (tmp_path / "toy.item").unlink()
        assert self.told(tmp_path, "user_id", "aeg") == [
            f"features.aeg = 'aeg': {tmp_path}/toy.inter has no such column.\n    did you mean 'age'?"
        ]

    def test_a_malformed_line_beside(self, tmp_path: Path) -> None:
        self.folder(tmp_path, inter=self.INTER, user="user_id:token\tcity:token\n1\tUlm\n2\n")
        assert self.told(tmp_path, "city") == [
            f"data.path = '{tmp_path}/toy.user': line 3: found 1 field, expected 2 fields."
        ]
        assert self.told(tmp_path) == []  # unless nothing of it is read

    def test_nothing_to_join_by(self, tmp_path: Path) -> None:
        self.folder(tmp_path, inter=self.INTER, user="uid:token\tcity:token\n1\tUlm\n")
        assert self.told(tmp_path, "city") == [
            f"data.path = '{tmp_path}/toy.user': its first token column, 'uid', must also be a token column of "
            f"toy.inter, to join the files."
        ]


def test_columns_that_the_click_log_lacks() -> None:
    data = Clicks(split={"kind": "leave_one_out", "group": "session"})
    found = columns(
        data, user=feature(table="u"), price=feature(table="p"), a=feature(table="i", column="itm", weights="w")
    )
    rule = "the synthetic click log has no such column; its columns are user, item, history and click."
    assert told(data, found) == [
        f"features.price = 'price': {rule}",
        f"features.a.column = 'itm': {rule}",
        f"features.a.weights = 'w': {rule}",
        "data.split.group = 'session': clicks are grouped by user or item.",
    ]


def test_tables_that_share_a_column_share_a_vocabulary() -> None:
    features = {
        "item": feature(table="vector"),
        "item_bias": feature(table="bias", column="item"),
        "user": feature(table="user"),
        "owner": feature(table="user"),
        "owner_bias": feature(table="owner_bias", column="owner"),
    }
    found, shared = columns_of(csv_of(Path("x")), features)
    assert shared == {"vector": "vector", "bias": "vector", "user": "user", "owner_bias": "user"}
    assert found.ids == {"item": "vector", "user": "user", "owner": "user"}


def test_a_chain_of_shared_columns_is_one_vocabulary() -> None:
    features = {
        "a": feature(table="one"),
        "b": feature(table="two"),
        "c": feature(table="three", column="b"),
        "d": feature(table="one", column="b"),
    }
    assert columns_of(csv_of(Path("x")), features)[1] == {"one": "one", "two": "one", "three": "one"}


@pytest.mark.parametrize("kind", ["csv", "recbole", "parquet"])
def test_the_look_imports_no_tensorflow(tmp_path: Path, kind: str) -> None:
    """And of text files, no Arrow or NumPy either: they would cost most of a second."""
    if kind == "parquet":
        pq.write_table(pa.table({"user": ["u"], "y": [1.0]}), tmp_path / "d.parquet")
    elif kind == "csv":
        (tmp_path / "d.csv").write_text("user,y\nu,1\n")
    else:
        (tmp_path / "d.inter").write_text("user:token\ty:float\nu\t1\n")
    code = f"""
import json, sys
from embexp.data.columns import Columns
from embexp.data.sources.source import source_of
from embexp.specs.run import data_of
data = data_of({{"kind": {kind!r}, "path": {str(tmp_path)!r}, "label": "y"}})
assert source_of(data).head_faults(Columns(ids={{"user": "u"}}, label="y")) == []
print(json.dumps(sorted({{"tensorflow", "pyarrow", "numpy", "keras"}} & set(sys.modules))))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == (["numpy", "pyarrow"] if kind == "parquet" else [])
