"""Rows of given files that are in train too, against sets of Python's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embexp.data.columns import Columns
from embexp.data.scan import Overlap, scan
from embexp.specs import run as run_specs
from embexp.specs.data import Data

COLUMNS = Columns(ids={"user": "user", "tags": "tags"}, weights={"amounts": "tags"}, dense=("n",), label="y")
RNG = np.random.default_rng(5)
Row = tuple[str, tuple[str, ...], tuple[float, ...], float, float]


def drawn(count: int, users: int) -> list[Row]:
    rows = []
    for _ in range(count):
        tags = tuple(f"t{tag}" for tag in RNG.integers(0, 3, RNG.integers(0, 4)))
        amounts = tuple(float(each) for each in RNG.integers(1, 3, len(tags)))
        rows.append((f"u{RNG.integers(users)}", tags, amounts, float(RNG.integers(3)), float(RNG.integers(2))))
    return rows


def data_of(rows: dict[str, list[Row]], folder: Path) -> Data:
    for name, some in rows.items():
        names = ("user", "tags", "amounts", "n", "y")
        kinds = (pa.string(), pa.list_(pa.string()), pa.list_(pa.float32()), pa.float32(), pa.float32())
        arrays = [pa.array(list(values), kind) for values, kind in zip(zip(*some, strict=True), kinds, strict=True)]
        pq.write_table(pa.table(arrays, names=list(names)), folder / f"{name}.parquet")
    path = {name: str(folder / f"{name}.parquet") for name in rows}
    settings: dict[str, Any] = {"kind": "parquet", "path": path, "label": "y", "dense_features": ["n"]}
    found: Data = run_specs.data_of(settings)
    return found


@pytest.mark.parametrize("users", [2, 50])
def test_as_many_as_sets_have(users: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[scan.__module__], "_AT_ONCE", 64)
    rows = {"train": drawn(300, users), "validation": drawn(90, users), "test": drawn(120, users)}
    rows["test"][5:25] = rows["train"][:20]
    found = scan(data_of(rows, tmp_path), COLUMNS, cache=tmp_path / "cache").overlap
    train = set(rows["train"])
    usual = sum(rows["train"].count(row) > 1 for row in rows["train"]) / 300
    for split in ("validation", "test"):
        expected = sum(row in train for row in rows[split])
        assert found[split] == Overlap(expected, len(rows[split]), pytest.approx(usual))
    assert found["test"].repeated >= 20


def test_order_weights_and_labels_count(tmp_path: Path) -> None:
    row: Row = ("a", ("x", "y"), (1.0, 2.0), 3.0, 1.0)
    others: list[Row] = [
        ("a", ("y", "x"), (1.0, 2.0), 3.0, 1.0),
        ("a", ("x", "y"), (2.0, 1.0), 3.0, 1.0),
        ("a", ("x", "y"), (1.0, 2.0), 3.0, 0.0),
        ("a", ("x",), (1.0,), 3.0, 1.0),
        ("a", (), (), 3.0, 1.0),
    ]
    rows = {"train": [row, ("b", (), (), 0.0, 0.0)], "test": [*others, row]}
    found = scan(data_of(rows, tmp_path), COLUMNS, cache=tmp_path / "cache").overlap
    assert found == {"test": Overlap(1, 6, 0.0)}


def test_a_warning_says_how_many_unless_equal_rows_are_usual() -> None:
    sentence = Overlap(1_204, 8_000, 0.0).warning("test")
    assert sentence is not None
    assert sentence.startswith("1,204 of 8,000 rows of test are also in train, so")
    assert Overlap(1_204, 8_000, 0.1).warning("test") is None
    assert "10.0% of the" in (Overlap(2_204, 8_000, 0.1).warning("test") or "")
    assert Overlap(0, 8_000, 0.0).warning("test") is None
