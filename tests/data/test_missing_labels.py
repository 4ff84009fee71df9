"""Rows without a label are an error, or left out: then the data is that of a file without these rows."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.columns import columns_of
from embexp.data.files.dialect import NULLS
from embexp.data.scan import Scan, scan
from embexp.errors import DataError
from embexp.fields.columns.tasks import CLASSIFICATION, REGRESSION
from embexp.specs.data import CSV, Parquet
from embexp.specs.tables import Feature
from embexp.specs.tasks import Task
from tests.thoroughness import examples

FEATURES = {"shop": Feature(table="shop"), "tags": Feature(table="tags"), "size": Feature(table="size")}
NUMBERS = {"price": {"missing": "mean"}, "size": {"missing": "zero", "indicator": True}}
Row = tuple[str, list[str], str, str, str, str]


def read(data: Any, task: Task, folder: Path) -> Scan:
    columns, _ = columns_of(data, FEATURES, task=task)
    return scan(data, columns, cache=folder / "cache")


def csv(rows: list[Row], path: Path, delimiter: str = ",", **settings: Any) -> CSV:
    """`size` is a category and a number."""
    lines = ["shop,tags,price,size,weight,label", *(",".join([a, "|".join(b), *rest]) for a, b, *rest in rows)]
    path.write_text("\n".join(lines).replace(",", delimiter) + "\n", "utf-8")
    return CSV(
        path=str(path),
        label="label",
        list_columns=["tags"],
        weight="weight",
        dense_features=NUMBERS,
        delimiter=delimiter,
        **settings,
    )


def parquet(rows: list[Row], path: Path, *, texts: bool, **settings: Any) -> Parquet:
    def numbers(place: int) -> pa.Array:
        return pa.array([None if row[place] in NULLS else float(str(row[place])) for row in rows], pa.float64())

    labels = numbers(5)
    if texts:
        labels = pa.array([row[5] for row in rows], pa.string()).dictionary_encode()
    columns = {
        "shop": [row[0] for row in rows],
        "tags": pa.array([row[1] for row in rows], pa.list_(pa.string())),
        "price": numbers(2),
        "size": numbers(3).cast(pa.int64()),
        "weight": numbers(4),
        "label": labels,
    }
    pq.write_table(pa.table(columns), path, row_group_size=7)
    return Parquet(path=str(path), label="label", weight="weight", dense_features=NUMBERS, **settings)


def same(found: Scan, expected: Scan) -> None:
    for name in ("ids", "dense", "labels", "example_weights"):
        assert np.array_equal(getattr(found.examples, name), getattr(expected.examples, name)), name
    assert found.examples.count == expected.examples.count
    assert found.classes == expected.classes
    for name, column in found.examples.lists.items():
        assert np.array_equal(column.values, expected.examples.lists[name].values)
        assert np.array_equal(column.splits, expected.examples.lists[name].splits)
    for split, rows in found.splits.items():
        assert np.array_equal(rows, expected.splits[split])
    for table, vocabulary in found.vocabularies.items():
        assert list(vocabulary.tokens()) == list(expected.vocabularies[table].tokens())


ROWS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.lists(st.sampled_from(["x", "y", "z"]), max_size=3),
        st.sampled_from(["1.5", "-2", "0", ""]),
        st.sampled_from(["7", "8", "9", "", "NA"]),
        st.sampled_from(["1", "0.5"]),
        st.sampled_from(["1", "0", "2", "3", *NULLS]),
    ),
    min_size=12,
    max_size=60,
).filter(lambda rows: len([row for row in rows if row[5] not in NULLS]) >= 12)


@examples(8)
@given(
    rows=ROWS,
    how=st.sampled_from(["csv", "semicolons", "parquet", "texts"]),
    task=st.sampled_from([REGRESSION, CLASSIFICATION]),
)
def test_what_is_left_is_a_file_without_these_rows(task: Task, rows: list[Row], how: str) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        labelled = [row for row in rows if row[5] not in NULLS]
        present: list[Row] = [("a", ["x"], "1", "7", "1", "1")] * 12  # so that each number has a value to be fitted to
        rows, labelled = rows + present, labelled + present

        def written(some: list[Row], name: str, **settings: Any) -> Any:
            if how in ("csv", "semicolons"):
                return csv(some, folder / name, "," if how == "csv" else ";", **settings)
            return parquet(some, folder / name, texts=how == "texts" and task is CLASSIFICATION, **settings)

        found = read(written(rows, "some", missing_label="skip"), task, folder)
        same(found, read(written(labelled, "all"), task, folder))
        assert found.skipped == len(rows) - len(labelled)
        if found.skipped:
            with pytest.raises(DataError, match=r"; data\.missing_label=skip skips rows without a label"):
                read(written(rows, "refused"), task, folder)


def test_none_has_a_label(tmp_path: Path) -> None:
    rows: list[Row] = [("a", [], "1", "7", "1", "")] * 30
    with pytest.raises(DataError, match="the data holds no examples: all 30 rows lack a label"):
        read(csv(rows, tmp_path / "data.csv", missing_label="skip"), REGRESSION, tmp_path)
