"""Labels that are names of classes."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.columns import SKIP_UNLABELLED, columns_of
from embexp.data.scan import Scan, encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import DataError
from embexp.fields.columns.tasks import BINARY, CLASSIFICATION
from embexp.specs.data import CSV, Parquet
from embexp.specs.tables import Feature
from embexp.specs.tasks import Task
from tests.thoroughness import examples

FEATURES = {"shop": Feature(table="shop")}


def scanned(data: Any, task: Task, tmp_path: Path) -> Scan:
    columns, _ = columns_of(data, FEATURES, task=task)
    assert source_of(data).head_faults(columns) == []
    return scan(data, columns, cache=tmp_path / "cache")


def csv(tmp_path: Path, labels: list[str], **settings: Any) -> CSV:
    file = tmp_path / "data.csv"
    file.write_text("shop,label\n" + "".join(f"s{n % 3},{label}\n" for n, label in enumerate(labels)), "utf-8")
    return CSV(path=str(file), label="label", **settings)


def labels_of(found: Scan) -> list[float]:
    assert found.examples.labels is not None
    return list(map(float, found.examples.labels))


@pytest.mark.parametrize(
    ("labels", "settings", "expected", "classes"),
    [
        (["yes", "no", "no", "yes"], {}, [1, 0, 0, 1], ("no", "yes")),
        (["False", "True", "False", "False"], {}, [0, 1, 0, 0], ("False", "True")),
        ([" >50K", " <=50K", " <=50K", " >50K"], {"positive": ">50K"}, [1, 0, 0, 1], ("<=50K", ">50K")),
        (["1", "2", "2", "1"], {"positive": 2}, [0, 1, 1, 0], ("1", "2")),
        (["cat", "dog", "cow", "dog"], {"positive": "dog"}, [0, 1, 0, 1], ("not dog", "dog")),
        (["0", "1", "1", "0"], {}, [0, 1, 1, 0], ()),
        (["1.0", "0.0", "1", "0"], {}, [1, 0, 1, 0], ()),
    ],
)
def test_two_classes(
    tmp_path: Path, labels: list[str], settings: dict[str, Any], expected: list[float], classes: tuple[str, ...]
) -> None:
    found = scanned(csv(tmp_path, labels, **settings), BINARY, tmp_path)
    assert labels_of(found) == expected
    assert found.classes == classes


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        (["won", "lost", "lost"], {}, "has 'lost', 'won'; set data.positive to .*data.positive='won'"),
        (["a", "b", "c"], {}, "or set task=classification"),
        (
            ["yes", "no", "no"],
            {"positive": "Yes"},
            "data.positive=Yes: column 'label' has no such value; it has 'no', 'yes'",
        ),
        (["yes", "", "no"], {}, "data.csv, row 2: found nothing in column 'label', .*" + re.escape(SKIP_UNLABELLED)),
        (["yes", "no", "NA"], {}, "data.csv, row 3: found nothing in column 'label'"),
    ],
)
def test_which_value_is_label_1_must_be_known(
    tmp_path: Path, labels: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        scanned(csv(tmp_path, labels, **settings), BINARY, tmp_path)


@examples(10)
@given(labels=st.lists(st.sampled_from(["cat", "dog", "ox", "Éire", "a b"]), min_size=3, max_size=40))
def test_classes_are_numbered_in_the_order_of_their_names(
    tmp_path_factory: pytest.TempPathFactory, labels: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("classes")
    found = scanned(csv(folder, labels), CLASSIFICATION, folder)
    names, numbers = np.unique(labels, return_inverse=True)
    assert found.classes == tuple(names)
    assert labels_of(found) == list(numbers)


def test_numbers_as_classes_keep_their_order_and_need_not_begin_at_0(tmp_path: Path) -> None:
    found = scanned(csv(tmp_path, ["10", "2", "9", "2"]), CLASSIFICATION, tmp_path)
    assert found.classes == ("2", "9", "10")
    assert labels_of(found) == [2, 0, 1, 0]


@pytest.mark.parametrize(
    ("values", "task", "classes", "expected"),
    [
        (pa.array([True, False, True]), BINARY, (), [1, 0, 1]),
        (pa.array([True, False, True]), CLASSIFICATION, ("false", "true"), [1, 0, 1]),
        (pa.array([2.0, 0.0, 1.0]), CLASSIFICATION, ("0", "1", "2"), [2, 0, 1]),
        (pa.array(["y", "n", "y"]).dictionary_encode(), BINARY, ("n", "y"), [1, 0, 1]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), CLASSIFICATION, ("a", "b"), [1, 0, 1]),
    ],
)
def test_labels_in_parquet_may_have_any_type(
    tmp_path: Path, values: pa.Array, task: Task, classes: tuple[str, ...], expected: list[float]
) -> None:
    pq.write_table(pa.table({"shop": ["a", "b", "a"], "label": values}), tmp_path / "data.parquet")
    found = scanned(Parquet(path=str(tmp_path / "data.parquet"), label="label"), task, tmp_path)
    assert found.classes == classes
    assert labels_of(found) == expected


def test_a_missing_label_in_parquet_names_its_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"shop": ["a", "b"], "label": ["x", None]}), tmp_path / "data.parquet")
    with pytest.raises(DataError, match=r"data.parquet, row 2: found nothing in column 'label'"):
        scanned(Parquet(path=str(tmp_path / "data.parquet"), label="label"), CLASSIFICATION, tmp_path)


def test_amounts_are_no_classes(tmp_path: Path) -> None:
    labels = [f"n{number}" for number in range(10_001)]
    with pytest.raises(DataError, match=r"over 10,000 different values .*set task=regression"):
        scanned(csv(tmp_path, labels), CLASSIFICATION, tmp_path)


def test_another_file_has_the_labels_of_the_run(tmp_path: Path) -> None:
    data = csv(tmp_path, ["dog", "cat", "ox"])
    found = scanned(data, CLASSIFICATION, tmp_path)
    columns, _ = columns_of(data, FEATURES, task=CLASSIFICATION)
    other = tmp_path / "other.csv"
    other.write_text("shop,label\ns1,ox\ns0,dog\n", "utf-8")
    cache, known = tmp_path / "cache", found.vocabularies
    read = encode_file(other, data, columns, known, cache=cache, classes=found.classes)
    assert read.labels is not None
    assert list(read.labels) == [2, 1]
    other.write_text("shop,label\ns1,ox\ns0,emu\n", "utf-8")
    with pytest.raises(DataError, match=r"other.csv, row 2: found 'emu' in column 'label', expected one of .*cat"):
        encode_file(other, data, columns, known, cache=cache, classes=found.classes)
