"""MovieLens 100K as RecBole atomic files, where they lie beside the checkout."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from embexp.data.columns import Columns
from embexp.data.scan import Scan, scan
from embexp.data.sources.source import source_of
from embexp.specs.data import RecBole

COLUMNS = Columns(
    ids={"user_id": "user", "item_id": "item", "occupation": "occupation", "class": "genre", "movie_title": "word"},
    label="rating",
)


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    folder = root.parent / "shared" / "data" / "ml-100k"
    if not folder.is_dir():
        pytest.skip("MovieLens 100K is not beside the checkout (../shared/data/ml-100k)")
    return folder


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [dict(zip([name.split(":")[0] for name in header], row, strict=True)) for row in rows]


def data(folder: Path, fold: int = 0) -> RecBole:
    split = {"kind": "folds", "validation": 0.0}
    return RecBole(path=str(folder), label="rating", timestamp="timestamp", split=split, folds=5, fold=fold)


@pytest.fixture(scope="module")
def found(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Scan:
    return scan(data(folder), COLUMNS, cache=tmp_path_factory.mktemp("cache"))


def test_a_look_finds_no_fault(folder: Path) -> None:
    assert source_of(data(folder)).head_faults(COLUMNS) == []


def test_every_rating_is_read_and_joined(folder: Path, found: Scan) -> None:
    ratings = lines(folder / "ml-100k.inter")
    users = {row["user_id"]: row for row in lines(folder / "ml-100k.user")}
    items = {row["item_id"]: row for row in lines(folder / "ml-100k.item")}
    assert found.examples.count == len(ratings) == 100_000
    assert found.examples.labels is not None
    assert found.examples.labels.tolist() == [float(row["rating"]) for row in ratings]
    tokens = {table: np.array(vocabulary.tokens(), object) for table, vocabulary in found.vocabularies.items()}
    ids = {name: found.examples.ids[:, place] for place, name in enumerate(found.examples.id_columns)}
    users_seen = {ratings[row]["user_id"] for row in found.splits["train"]}
    items_seen = {ratings[row]["item_id"] for row in found.splits["train"]}
    assert tokens["user"][ids["user_id"]].tolist() == [
        row["user_id"] if row["user_id"] in users_seen else "<oov>" for row in ratings
    ]
    assert tokens["item"][ids["item_id"]].tolist() == [
        row["item_id"] if row["item_id"] in items_seen else "<oov>" for row in ratings
    ]
    assert tokens["occupation"][ids["occupation"]].tolist() == [users[row["user_id"]]["occupation"] for row in ratings]
    for name, table in (("class", "genre"), ("movie_title", "word")):
        column = found.examples.lists[name]
        known = {word for row in found.splits["train"] for word in items[ratings[row]["item_id"]][name].split(" ")}
        for example in range(0, 100_000, 97):
            begin, end = column.splits[example : example + 2]
            expected = [word for word in items[ratings[example]["item_id"]][name].split(" ") if word]
            assert tokens[table][column.values[begin:end]].tolist() == [
                word if word in known else "<oov>" for word in expected
            ]


def test_frequencies_are_those_of_the_training_split(folder: Path, found: Scan) -> None:
    ratings = lines(folder / "ml-100k.inter")
    counted = Counter(ratings[row]["item_id"] for row in found.splits["train"])
    order = sorted(counted, key=lambda token: (-counted[token], token))
    assert found.vocabularies["item"].tokens() == ["<oov>", *order]
    assert found.vocabularies["item"].frequencies.tolist() == [0, *(counted[token] for token in order)]  # type: ignore[attr-defined]


def test_five_folds_test_each_rating_once(folder: Path, tmp_path: Path) -> None:
    tests = [scan(data(folder, fold), COLUMNS, cache=tmp_path).splits["test"] for fold in range(5)]
    assert [len(rows) for rows in tests] == [20_000] * 5
    np.testing.assert_array_equal(np.sort(np.concatenate(tests)), np.arange(100_000))


def test_leaving_one_out_by_time(folder: Path, tmp_path: Path) -> None:
    ratings = lines(folder / "ml-100k.inter")
    spec = RecBole(
        path=str(folder), label="rating", timestamp="timestamp", split={"kind": "leave_one_out", "group": "user_id"}
    )
    found = scan(spec, COLUMNS, cache=tmp_path)
    latest: dict[str, list[int]] = {}
    for row in sorted(range(len(ratings)), key=lambda row: (float(ratings[row]["timestamp"]), row)):
        latest.setdefault(ratings[row]["user_id"], []).append(row)
    assert found.splits["test"].tolist() == sorted(rows[-1] for rows in latest.values())
    assert found.splits["validation"].tolist() == sorted(rows[-2] for rows in latest.values())
