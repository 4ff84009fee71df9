"""Files that are divided already: the splits are the files, against what each file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from embexp.data.columns import Columns
from embexp.data.scan import Scan, encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import DataError
from embexp.specs import run as run_specs
from embexp.specs.data import Data

COLUMNS = Columns(ids={"user": "users", "item": "items"}, label="y", dense=("n",))
PARTS = ("train", "validation", "test")
ROWS = {
    "train": [(f"u{number % 7}", f"i{number % 5}", number % 2, number) for number in range(30)],
    "validation": [(f"u{number % 9}", f"i{number % 6}", number % 2, -number) for number in range(1, 9)],
    "test": [(f"u{number % 3}", "i9", 1, 100 + number) for number in range(5)],
}


def write(kind: str, folder: Path) -> dict[str, Any]:
    """Files of each split: CSV two for train, a folder of one for test."""
    folder.mkdir(exist_ok=True)
    (folder / "test").mkdir()
    for name, rows in ROWS.items():
        suffix = {"recbole": ".inter", "adjacency": ".txt"}.get(kind, f".{kind}")
        path = folder / "test" / f"d.{name}{suffix}" if name == "test" else folder / f"d.{name}{suffix}"
        tab = "\t" if kind == "recbole" else ","
        types = (":token", ":token", ":float", ":float") if kind == "recbole" else ("",) * 4
        header = tab.join(f"{column}{type_}" for column, type_ in zip(("user", "item", "y", "n"), types, strict=True))
        path.write_text("\n".join([header, *(tab.join(map(str, row)) for row in rows)]) + "\n")
        if kind == "parquet":
            table = pc.read_csv(path)
            pq.write_table(table, path)
        if kind == "csv" and name == "train":
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(lines[:20]))
            (folder / "d.train_2.csv").write_text("".join([lines[0], *lines[20:]]))
    paths: dict[str, Any] = {name: str(next(folder.glob(f"d.{name}.*"), folder / "test")) for name in PARTS}
    return paths | ({"train": str(folder / "d.train*.csv")} if kind == "csv" else {})


def data_of(kind: str, path: Any, **more: Any) -> Data:
    settings = {"kind": kind, "path": path, "label": "y", "dense_features": {"n": "standardize"}, **more}
    found: Data = run_specs.data_of(settings)
    return found


def read(data: Data, cache: Path, columns: Columns = COLUMNS) -> Scan:
    assert source_of(data).head_faults(columns) == []
    return scan(data, columns, cache=cache)


def rows_of(found: Scan, split: str) -> list[tuple[str, str, float]]:
    assert found.examples.labels is not None
    users, items = (found.vocabularies[name].tokens() for name in ("users", "items"))
    rows = found.splits[split]
    ids, labels = found.examples.ids[rows], found.examples.labels[rows]
    return [(users[user], items[item], label) for (user, item), label in zip(ids, labels.tolist(), strict=True)]


def expected(split: str) -> list[tuple[str, str, float]]:
    """The rows of a file, as far as the values are in the file of train."""
    users, items = ({row[place] for row in ROWS["train"]} for place in (0, 1))
    return [
        (user if user in users else "<oov>", item if item in items else "<oov>", float(y))
        for user, item, y, _ in ROWS[split]
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet", "recbole"])
def test_the_files_are_the_splits_and_train_has_the_vocabularies(kind: str, tmp_path: Path) -> None:
    data = data_of(kind, write(kind, tmp_path / "data"))
    found = read(data, tmp_path / "cache")
    for split in PARTS:
        assert rows_of(found, split) == expected(split)
    assert found.label_mean == 0.5
    assert found.digest == source_of(data).digest(COLUMNS, cache=tmp_path / "cache")


def test_another_division_of_the_same_files_is_other_content(tmp_path: Path) -> None:
    paths = write("csv", tmp_path / "data")
    swapped = paths | {"validation": paths["test"], "test": paths["validation"]}
    whole = list(paths.values())
    digests = {
        source_of(data_of("csv", each)).digest(COLUMNS, cache=tmp_path / "cache") for each in (paths, swapped, whole)
    }
    assert len(digests) == 3


def test_moved_files_are_the_same_data(tmp_path: Path) -> None:
    first = read(data_of("csv", write("csv", tmp_path / "one")), tmp_path / "cache")
    kept = sorted((tmp_path / "cache").iterdir())
    second = read(data_of("csv", write("csv", tmp_path / "two")), tmp_path / "cache")
    assert first.digest == second.digest
    assert sorted((tmp_path / "cache").iterdir()) == kept


@pytest.mark.parametrize("split", [{}, {"within": "user", "group": "user"}, {"kind": "time"}])
def test_a_split_without_files_is_drawn_from_those_of_train(split: dict[str, Any], tmp_path: Path) -> None:
    paths = write("csv", tmp_path / "data")
    more = {"timestamp": "n"} if split.get("kind") == "time" else {}
    columns = COLUMNS if not more else Columns(ids=COLUMNS.ids, label="y")
    if more:
        more["dense_features"] = {}
    without = {name: path for name, path in paths.items() if name != "validation"}
    data = data_of("csv", without, split={"validation": 0.2, **split}, **more)
    found = read(data, tmp_path / "cache", columns)
    assert [len(found.splits[name]) for name in PARTS] == [
        30 - (7 if "within" in split else 6),
        7 if "within" in split else 6,
        5,
    ]
    assert found.splits["test"].tolist() == list(range(30, 35))
    assert found.splits["validation"].max() < 30
    if more:
        assert found.splits["validation"].tolist() == list(range(24, 30))
    none = data_of("csv", without, split={"validation": 0.0})
    assert [len(read(none, tmp_path / "cache").splits[name]) for name in PARTS] == [30, 0, 5]


def test_train_alone_is_the_path(tmp_path: Path) -> None:
    paths = write("csv", tmp_path / "data")
    first, second = (
        read(data_of("csv", path), tmp_path / "cache") for path in (paths["train"], {"train": paths["train"]})
    )
    assert first.digest == second.digest
    for name in PARTS:
        np.testing.assert_array_equal(first.splits[name], second.splits[name])


def test_other_files_are_read_as_before(tmp_path: Path) -> None:
    paths = write("csv", tmp_path / "data")
    data = data_of("csv", paths)
    found = read(data, tmp_path / "cache")
    other = encode_file(
        Path(paths["validation"]),
        data,
        COLUMNS,
        found.vocabularies,
        cache=tmp_path / "cache",
        numbers=found.numbers.columns,
    )
    np.testing.assert_array_equal(other.ids, found.examples.ids[found.splits["validation"]])


def test_only_interactions_of_the_files_belong_to_their_splits(tmp_path: Path) -> None:
    data = data_of("csv", write("csv", tmp_path / "data"), label_threshold=1)
    found = scan(data, COLUMNS, cache=tmp_path / "cache", interactions=True)
    assert [len(found.splits[name]) for name in PARTS] == [15, 4, 5]


@pytest.mark.parametrize("form", ["folder", "txt"])
def test_texts(form: str, tmp_path: Path) -> None:
    texts = {"train": [("a", "one two"), ("b", "two three")] * 3, "test": [("b", "two four")]}
    paths = {}
    for name, rows in texts.items():
        paths[name] = str(tmp_path / f"{name}.txt")
        Path(paths[name]).write_text("".join(f"{label}\t{text}\n" for label, text in rows))
        if form == "folder":
            paths[name] = str(tmp_path / name)
            for number, (label, text) in enumerate(rows):
                (tmp_path / name / label).mkdir(parents=True, exist_ok=True)
                (tmp_path / name / label / f"{number}.txt").write_text(text)
    data: Data = run_specs.data_of({"kind": "text", "path": paths, "split": {"validation": 0.0}})
    columns = Columns(ids={"words": "words"}, label="label")
    found = read(data, tmp_path / "cache", columns)
    assert [len(found.splits[name]) for name in PARTS] == [6, 0, 1]
    assert found.vocabularies["words"].tokens() == ["<oov>", "two", "one", "three"]
    assert found.examples.labels is not None
    assert found.examples.labels[found.splits["test"]].tolist() == [1]
    if form == "txt":
        Path(paths["test"]).write_text("c\ttwo\n")
        with pytest.raises(DataError, match="found the label 'c', expected one of the classes a, b"):
            scan(data, columns, cache=tmp_path / "cache")


def test_recbole_joins_what_lies_next_to_train(tmp_path: Path) -> None:
    paths = write("recbole", tmp_path / "data")
    lines = "".join(f"i{number}\tg{number % 2}\n" for number in range(10))
    (tmp_path / "data" / "d.item").write_text("item:token\tgenre:token\n" + lines)
    columns = Columns(ids={"user": "users", "genre": "genres"}, label="y")
    found = read(data_of("recbole", paths, dense_features={}), tmp_path / "cache", columns)
    genres = found.vocabularies["genres"].tokens()
    of_test = found.examples.column("genre", found.splits["test"])
    assert [genres[row] for row in of_test] == ["g1"] * 5
