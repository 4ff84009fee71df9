"""Every kind of source through the same cases."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embexp.data.columns import columns_of
from embexp.data.scan import encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import DataError
from embexp.specs import fields
from embexp.specs.data import SOURCES, Data
from embexp.specs.run import data_of
from embexp.specs.tables import Feature

ROWS = [(f"u{number % 7}", f"i{number % 5}", number % 2) for number in range(40)]


def csv_file(folder: Path) -> Path:
    (folder / "d.csv").write_text("user,item,y\n" + "".join(f"{user},{item},{y}\n" for user, item, y in ROWS))
    return folder / "d.csv"


def recbole_file(folder: Path) -> Path:
    lines = "".join(f"{user}\t{item}\t{y}\n" for user, item, y in ROWS)
    (folder / "d.inter").write_text("user:token\titem:token\ty:float\n" + lines)
    return folder / "d.inter"


def parquet_file(folder: Path) -> Path:
    columns = dict(zip(("user", "item", "y"), map(list, zip(*ROWS, strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / "d.parquet")
    return folder / "d.parquet"


def jsonl_file(folder: Path) -> Path:
    lines = "".join(json.dumps(dict(zip(("user", "item", "y"), row, strict=True))) + "\n" for row in ROWS)
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder / "d.jsonl.gz"


def adjacency_file(folder: Path) -> Path:
    (folder / "d.txt").write_text("".join(f"u{user} i{user} i{user % 3 + 9} i20\n" for user in range(20)))
    return folder / "d.txt"


def text_file(folder: Path) -> Path:
    lines = [f"{'ab'[number % 2]}\tword{number % 3} other words\n" for number in range(40)]
    (folder / "d.txt").write_text("".join(lines))
    return folder / "d.txt"


def graph(folder: Path) -> Path:
    triples = [(f"e{number}", "knows", f"e{(number * 3 + 1) % 9}") for number in range(9)]
    for name, some in (("train", triples[:6]), ("valid", triples[6:7]), ("test", triples[7:])):
        (folder / f"{name}.txt").write_text("".join("\t".join(triple) + "\n" for triple in some))
    return folder


@dataclass(frozen=True)
class Case:
    """A source that is small, and what reads all of its id columns.

    Attributes:
        settings: of the source, beside kind and path.
        features: name -> table.
        written: writes what it is read from, and returns the path; None: it is drawn.
        label: column of the label; None: there is none.
        other: the file, in the path, that `encode_file` can read; None: it can't read any.
        names_known: whether the names of columns are known before the data is read.
    """

    settings: Mapping[str, Any]
    features: Mapping[str, str]
    written: Callable[[Path], Path] | None
    label: str | None
    other: str | None = ""
    names_known: bool = True


TABLES = {"user": "users", "item": "items"}
GRAPH = {"source": "entities", "relation": "relations", "candidates": "entities"}
CASES = {
    "clicks": Case({"examples": 60, "users": 9, "items": 5}, TABLES | {"history": "items"}, None, "click", None),
    "recbole": Case({"label": "y"}, TABLES, recbole_file, "y"),
    "csv": Case({"label": "y"}, TABLES, csv_file, "y"),
    "parquet": Case({"label": "y"}, TABLES, parquet_file, "y"),
    "jsonl": Case({"label": "y"}, TABLES, jsonl_file, "y"),
    "adjacency": Case({}, TABLES, adjacency_file, None),
    "text": Case({}, {"words": "words"}, text_file, "label"),
    "skipgram": Case(
        {"min_count": 1, "subsample": 0.0}, {"center": "words", "context": "words"}, text_file, "together", None
    ),
    "custom": Case(
        {"label": "y", "function": "pyarrow.parquet:read_table"}, TABLES, parquet_file, "y", names_known=False
    ),
    "triples": Case({"columns": ["head", "relation", "tail"]}, GRAPH, graph, "answer", "test.txt"),
}


@dataclass(frozen=True)
class Made:
    """A case, written."""

    case: Case
    data: Data
    path: Path
    cache: Path

    def features(self, **more: str) -> dict[str, Feature]:
        return {name: Feature(table=table) for name, table in (dict(self.case.features) | more).items()}


@pytest.fixture(params=sorted(CASES))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    case = CASES[request.param]
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" if case.written is None else case.written(tmp_path / "data")
    place = {} if case.written is None else {"path": str(path)}
    data = data_of({"kind": request.param, **place, **case.settings})
    return Made(case, data, path, tmp_path / "cache")


def test_every_kind_has_a_case() -> None:
    kinds = {*(kind.model_fields["kind"].default for kind in SOURCES), *fields.names("data")}
    assert kinds == CASES.keys()


def test_good_data_has_no_faults_and_a_column_that_is_not_there_is_one(made: Made) -> None:
    source = source_of(made.data)
    assert source.head_faults(columns_of(made.data, made.features())[0]) == []
    faults = source.head_faults(columns_of(made.data, made.features(nobody="tables"))[0])
    expected = [("features.nobody", "'nobody'")] if made.case.names_known else []
    assert [(fault.path, fault.value) for fault in faults] == expected


def test_a_scan_is_divided_and_numbered(made: Made) -> None:
    columns, _ = columns_of(made.data, made.features())
    found = scan(made.data, columns, cache=made.cache)
    assert columns.label == made.case.label
    labels = found.examples.labels
    assert (labels is None) == (made.case.label is None)
    assert labels is None or len(labels) == found.examples.count
    rows = np.concatenate(list(found.splits.values()))
    assert sorted(rows) == list(range(found.examples.count))
    assert len(found.splits["train"])
    assert found.vocabularies.keys() == set(columns.ids.values())
    for column, table in columns.ids.items():
        ids = found.examples.lists[column].values if column in found.examples.lists else None
        if column in found.examples.id_columns:
            ids = found.examples.ids[:, found.examples.id_columns.index(column)]
        if ids is not None:  # candidates are made for each batch
            assert ids.min() >= 0
            assert ids.max() < found.vocabularies[table].size
    assert found.label_mean == (0 if labels is None else pytest.approx(labels[found.splits["train"]].mean()))


def test_a_second_scan_makes_nothing_and_finds_the_same(made: Made) -> None:
    columns, _ = columns_of(made.data, made.features())
    first = scan(made.data, columns, cache=made.cache)
    folders = sorted(made.cache.iterdir())
    again = scan(made.data, columns, cache=made.cache)
    assert sorted(made.cache.iterdir()) == folders
    np.testing.assert_array_equal(first.examples.ids, again.examples.ids)
    assert first.digest == again.digest == source_of(made.data).digest(columns, cache=made.cache)


def test_a_size_that_is_known_before_the_scan_is_the_vocabulary_s(made: Made) -> None:
    columns, _ = columns_of(made.data, made.features())
    found = scan(made.data, columns, cache=made.cache)
    sizes = {column: source_of(made.data).vocabulary_size(column) for column in columns.ids}
    assert any(size is not None for size in sizes.values()) == (made.data.kind == "clicks")
    for column, table in columns.ids.items():
        assert sizes[column] in (None, found.vocabularies[table].size)


def test_another_file_is_read_with_the_same_vocabularies_or_not_at_all(made: Made) -> None:
    columns, _ = columns_of(made.data, made.features())
    found = scan(made.data, columns, cache=made.cache)
    other = made.path / (made.case.other or "") if made.path.is_dir() else made.path

    def read() -> Any:
        known = found.vocabularies
        return encode_file(other, made.data, columns, known, cache=made.cache, classes=found.classes)

    if made.case.other is None:
        with pytest.raises(DataError, match=f"so {other} can't be read for it"):
            read()
        return
    rows = found.splits["test"] if made.case.other else slice(None)
    np.testing.assert_array_equal(read().ids, found.examples.ids[rows])
    if made.case.label is not None:
        np.testing.assert_array_equal(read().labels, found.examples.labels[rows])  # type: ignore[index]


def test_the_plan_s_words_name_what_is_read(made: Made) -> None:
    described = source_of(made.data).description()
    assert (str(made.path) in described.headline) == (made.case.written is not None)
    assert described.ids_per_example.keys() <= made.case.features.keys()


def test_the_modules_of_sources_are_light() -> None:
    """They are imported whenever a config is checked."""
    code = "import sys, embexp.data.sources.source; print({'tensorflow', 'pyarrow', 'numpy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
