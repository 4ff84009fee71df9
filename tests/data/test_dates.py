"""Columns made of dates, compared with Python's datetime."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import embexp
from embexp.errors import ConfigError, DataError
from embexp.runs.prepare import prepare
from embexp.specs.data import CSV
from embexp.system.parallel import quiet

WAVES = ("weekday_sin", "weekday_cos", "month_sin", "month_cos", "hour_sin", "hour_cos")
ZONE = timezone(timedelta(hours=5, minutes=30))
MOMENTS = [datetime(2023, 1, 1, 0, 30) + timedelta(days=17 * n, hours=7 * n, seconds=n) for n in range(60)]


EXPERIMENT = """
# @package _global_
defaults:
  - override /data: {kind}
  - override /graph: null
  - override /model: mlp
  - override /optimizer: adam
  - override /dense_optimizer: adam
name: dates
task: binary
data:
  path: {path}
  label: y
  dates: {dates}
  dense_features: {{{dense}}}
  split: {{kind: {split}, validation: 0.0, test: {test}}}
  timestamp: {timestamp}
tables: {{weekday: {{dim: 2}}, month: {{dim: 2}}, hour: {{dim: 2}}}}
train: {{steps: 1}}
features:
  weekday: {{table: weekday, column: when_weekday}}
  month: {{table: month, column: when_month}}
  hour: {{table: hour, column: when_hour}}
"""


def prepared(path: Path, tmp_path: Path, dates: str, *, timestamp: str = "null") -> Any:
    dense = ", ".join(f"when_{part}: {{missing: zero}}" for part in ("age", *WAVES))
    kind = "parquet" if path.suffix == ".parquet" else "csv"
    split, test = ("random", 0.0) if timestamp == "null" else ("time", 0.1)
    (tmp_path / "experiment").mkdir(exist_ok=True)
    (tmp_path / "experiment" / "dates.yaml").write_text(
        EXPERIMENT.strip().format(
            kind=kind, path=path, dates=dates, dense=dense, split=split, test=test, timestamp=timestamp
        )
    )
    overrides = ["experiment=dates", f"output.cache={tmp_path / 'cache'}"]
    return prepare(embexp.compose(overrides, config_dir=tmp_path), progress=quiet).data


def check(data: Any, moments: Sequence[datetime | None]) -> None:
    """Compares with what `datetime` says; a time without a zone is in UTC."""
    examples = data.scan.examples
    for part, of in (
        ("weekday", datetime.weekday),
        ("month", lambda moment: moment.month),
        ("hour", lambda moment: moment.hour),
    ):
        names, rows = data.vocabularies[part].tokens(), examples.column(f"when_{part}")
        for moment, row in zip(moments, rows, strict=True):
            assert (names[row] == str(of(moment))) if moment is not None else row == 0
    for moment, numbers in zip(moments, examples.dense, strict=True):
        if moment is None:
            assert not numbers.any()
            continue
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        angles = [moment.weekday() / 7, (moment.month - 1) / 12, moment.hour / 24]
        waves = [wave(2 * math.pi * angle) for angle in angles for wave in (math.sin, math.cos)]
        age = (datetime(2024, 5, 31, tzinfo=UTC) - aware) / timedelta(days=1)
        np.testing.assert_allclose(numbers, [age, *waves], rtol=1e-6, atol=1e-6)


FORMS = {
    "ISO": (None, lambda moment: moment.isoformat()),
    "zones": (None, lambda moment: moment.replace(tzinfo=ZONE).isoformat()),
    "a format": ("%d.%m.%Y %H:%M:%S", lambda moment: moment.strftime("%d.%m.%Y %H:%M:%S")),
}


@pytest.mark.parametrize("form", FORMS)
def test_csv(form: str, tmp_path: Path) -> None:
    pattern, write = FORMS[form]
    moments = [None if n == 7 else moment for n, moment in enumerate(MOMENTS)]
    lines = [f"{'' if moment is None else write(moment)},{n % 2}" for n, moment in enumerate(moments)]
    (tmp_path / "d.csv").write_text("\n".join(["when,y", *lines]) + "\n")
    written = f"format: '{pattern}', " if pattern else ""
    found = prepared(tmp_path / "d.csv", tmp_path, f"{{when: {{{written}reference: 2024-05-31}}}}")
    zone = ZONE if form == "zones" else None
    check(found, [moment and moment.replace(tzinfo=zone) for moment in moments])


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ns", "Asia/Kolkata"), pa.date32(), pa.string()])
def test_parquet(kind: pa.DataType, tmp_path: Path) -> None:
    zoned = getattr(kind, "tz", None) is not None
    moments: list[datetime | None] = [None if n == 7 else moment for n, moment in enumerate(MOMENTS)]
    if zoned:
        moments = [moment and moment.replace(tzinfo=ZONE) for moment in moments]
    if kind == pa.date32():
        moments = [moment and datetime(moment.year, moment.month, moment.day) for moment in moments]
    values: list[Any] = list(moments)
    if kind == pa.string():
        values = [moment and moment.isoformat() for moment in moments]
    if kind == pa.date32():
        values = [moment and date(moment.year, moment.month, moment.day) for moment in moments]
    table = pa.table({"when": pa.array(values, kind), "y": [n % 2 for n in range(60)]})
    pq.write_table(table, tmp_path / "d.parquet")
    check(prepared(tmp_path / "d.parquet", tmp_path, "{when: {reference: 2024-05-31}}"), moments)


def test_the_same_column_may_divide_by_time(tmp_path: Path) -> None:
    lines = [f"{moment.isoformat()},{n % 2}" for n, moment in enumerate(MOMENTS)]
    (tmp_path / "d.csv").write_text("\n".join(["when,y", *lines]) + "\n")
    found = prepared(tmp_path / "d.csv", tmp_path, "{when: {reference: 2024-05-31}}", timestamp="when")
    assert found.scan.splits["test"].tolist() == list(range(54, 60))


def test_ages_need_a_reference(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("when,y\n2024-01-01,1\n")
    with pytest.raises(
        ConfigError, match=r"data.dates.when.reference = null: when_age counts the days up to this date"
    ):
        prepared(tmp_path / "d.csv", tmp_path, "[when]")
    with pytest.raises(ConfigError, match="it must be a date such as 2024-05-31"):
        prepared(tmp_path / "d.csv", tmp_path, "{when: {reference: now}}")


def test_what_is_no_date_is_named_with_its_line(tmp_path: Path) -> None:
    lines = [f"{moment.date().isoformat()},{n % 2}" for n, moment in enumerate(MOMENTS)]
    lines[40] = "31/12/2024,0"
    (tmp_path / "d.csv").write_text("\n".join(["when,y", *lines]) + "\n")
    with pytest.raises((ConfigError, DataError), match=r"line 42: found '?31/12/2024'? in column 'when', expected"):
        prepared(tmp_path / "d.csv", tmp_path, "{when: {reference: 2024-05-31}}")


def test_a_column_that_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("when,when_hour,y\n2024-01-01,3,1\n")
    with pytest.raises(
        ConfigError, match=re.escape("already has a column with this name, and data.dates would make another one")
    ):
        prepared(tmp_path / "d.csv", tmp_path, "{when: {reference: 2024-05-31}}")


def test_records_lack_the_default() -> None:
    spec = CSV(path="x.csv", label="y")
    assert not {"dates", "decimal", "thousands"} & set(spec.model_dump(mode="json"))
