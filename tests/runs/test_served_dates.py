"""Dates in exported models, against what Arrow makes of them in training, and against `embexp predict` on the file."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import embexp
from embexp.data.files.dates import _Clock
from embexp.runs import run as single
from embexp.runs.served_dates import DateColumns
from embexp.specs.data import DATE_PARTS, DateColumn
from tests.thoroughness import examples

REFERENCE = "2024-05-31"
FORMATS = (
    "%d.%m.%Y",
    "%m/%d/%y %I:%M %p",
    "%Y%m%d",
    "%d %b %Y %H:%M:%S",
    "%B %d, %Y",
    "%Y-%j",
    "%H:%M %d/%m/%Y",
    "%m.%Y",
    "%Y",
    "(%Y) [%m] %d?",
)
TIMES = st.datetimes(datetime(1700, 1, 1), datetime(2254, 12, 31))


def check(texts: list[str], form: str | None) -> None:
    """Tokens and numbers are those of the rows of a file."""
    settings = DateColumn(format=form, reference=REFERENCE)
    expected, graph = _Clock(pa.array(texts), settings), DateColumns({"day": settings})
    clock = graph.clock("day", tf.constant(texts))
    for part in DATE_PARTS:
        values = expected.values(part)
        numbers = graph.numbers(f"day_{part}", clock).numpy()
        exact = values.cast("float64").to_numpy(zero_copy_only=False)
        np.testing.assert_array_max_ulp(numbers, exact.astype(np.float32), maxulp=0 if "_" not in part else 1)
        if part in ("weekday", "month", "hour"):
            tokens = ["" if value is None else str(value) for value in values.to_pylist()]
            found = graph.tokens(f"day_{part}", clock).numpy()
            assert [token.decode() for token in found] == tokens


@examples(5)
@given(st.lists(st.tuples(TIMES, st.sampled_from(["date", "minutes", "seconds", "millis", "zone", "z", "blank"]))))
def test_iso_dates_are_those_of_files(dates: list[tuple[datetime, str]]) -> None:
    texts = ["2000-02-29", "1999-12-31T23:59:59.9", "", " null ", "\u00a02001-03-01 10:00+0530\t"]
    for time, kind in dates:
        match kind:
            case "date":
                texts.append(time.date().isoformat())
            case "minutes" | "seconds":
                texts.append(time.isoformat(" ", kind))
            case "millis":
                texts.append(time.isoformat(timespec="milliseconds"))
            case "zone":
                zone = timezone(timedelta(minutes=time.microsecond % 1_600 - 800))
                texts.append(time.replace(tzinfo=zone).isoformat())
            case _:
                texts.append(f"{time.isoformat()}Z" if kind == "z" else f"  {time.isoformat()} ")
    check(texts, None)


@examples(8)
@given(st.sampled_from(FORMATS), st.lists(TIMES, min_size=1))
def test_dates_of_a_format_are_those_of_files(form: str, dates: list[datetime]) -> None:
    check([*(time.strftime(form) for time in dates), "", "NA"], form)


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("%d.%m.%Y", ["1.2.2024", " 1. 2.2024", "31.02.2024"]),
        ("%Y%m%d", ["202421", "20240131"]),
        ("%d %b %y", ["3 Jan 69", "3 january 68", "3 JAN 05", "3Jan05", "3  Feb  05"]),
        ("%I:%M:%S %p %d.%m.%Y", ["12:05:61 am 1.1.2024", "12:05:00 PM 1.1.2024", "1:5:0 pm 31.12.2023"]),
        ("%I:%M %d.%m.%Y", ["11:30 1.2.2024", "12:30 1.2.2024"]),
        ("%H:%M", ["10:20"]),
        ("%m/%Y", ["5/2024"]),
        ("%Y-%j", ["2024-60", "2023-60", "2024-366", "2024-7"]),
    ],
)
def test_dates_as_people_write_them(form: str, texts: list[str]) -> None:
    check(texts, form)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (None, "2023-02-29"),
        (None, "2023-13-01"),
        (None, "2023-01-01 24:00"),
        (None, "01.02.2023"),
        (None, "2023-01-01+02:00"),
        ("%d.%m.%Y", "32.1.2024"),
        ("%d.%m.%Y", "1.13.2024"),
        ("%d.%m.%Y", "1.1.2024 10:00"),
        ("%Y%m%d", "2024131"),
        ("%d.%m.%Y", "01.02.24"),  # the year 24, which is before those that are read
        (None, "2256-01-01"),
        ("%d %b %Y", "3 Sept 2005"),
        ("%H:%M", "24:00"),
    ],
)
def test_what_is_no_date_in_a_file_is_none_in_a_graph(form: str | None, text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        _Clock(pa.array([text]), DateColumn(format=form)).values("hour")
    graph = tf.function(lambda texts: DateColumns({"day": DateColumn(format=form)}).clock("day", texts).local)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"column day: expected .*, found") as raised:
        graph(tf.constant(["", text]))
    assert text in str(raised.value)


def stays(path: Path, form: str) -> list[str]:
    """Lines of a file as `embexp new` would find it: dates, a number that is also a table, and a number in buckets."""
    draw, lines = np.random.default_rng(0), []
    for number in range(300):
        day = datetime(2023, 1, 1) + timedelta(hours=int(draw.integers(12_000)), minutes=int(draw.integers(60)))
        booked = day - timedelta(days=int(draw.integers(60)))
        nights, price = draw.integers(1, 9), math.exp(draw.normal(4, 0.5))
        first = "" if number % 17 == 0 else day.strftime(form)
        lines.append(f"h{draw.integers(9)},{nights},{price:.2f},{first},{booked.isoformat(' ')},{draw.integers(2)}")
    path.write_text("\n".join(["hotel,nights,price,arrival,booked,left", *lines]) + "\n")
    return lines


def spec_of(path: Path, kind: str, form: str | None) -> embexp.RunSpec:
    names = ("hotel", "nights", "arrival_weekday", "arrival_hour", "booked_month", "arrival_month")
    tables = {name: {"dim": 4, "initializer": {"kind": "normal", "stddev": 0.5}} for name in names}
    buckets = {"price": {"column": "price", "buckets": {"quantiles": 5}}, "age": {"column": "booked_age"}}
    buckets["age"]["buckets"] = {"boundaries": [100, 300]}
    dates = {"arrival": {"format": form, "reference": "2024-06-01"}, "booked": {"reference": "2024-05-31"}}
    dense = {
        "nights": {"transform": "standardize"},
        "price": {"transform": ["log1p", "standardize"]},
        "arrival_age": {"transform": "standardize", "missing": "mean", "indicator": True},
        "arrival_hour_sin": {"missing": 0.5},
        "arrival_month": {"transform": "standardize", "missing": "mean"},
        "booked_age": {"transform": "quantile"},
    }
    return embexp.RunSpec.model_validate(
        {
            "name": "stays",
            "task": "binary",
            "data": {"kind": kind, "path": str(path), "label": "left", "dates": dates, "dense_features": dense},
            "tables": {**tables, **{name: {"dim": 4} for name in buckets}},
            "features": {**{name: {"table": name} for name in names}, **_in_tables(buckets)},
            "model": {"kind": "mlp", "hidden": [8]},
            "optimizer": {"kind": "adagrad", "learning_rate": 0.1},
            "dense_optimizer": {"kind": "adam", "learning_rate": 0.01},
            "train": {"steps": 30, "epochs": None, "batch_size": 32},
            "output": {"plots": False, "tensorboard": False, "baselines": False, "cache": str(path.parent / "cache")},
        }
    )


def _in_tables(features: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {name: {**feature, "table": name} for name, feature in features.items()}


@pytest.mark.parametrize("form", [None, "%d.%m.%Y %H:%M"], ids=["iso", "format"])
def test_a_model_takes_the_columns_of_the_file(form: str | None, tmp_path: Path) -> None:
    """Dates as dates, and a column that is a number, in buckets, or in a table once; as `embexp predict` does."""
    lines = stays(tmp_path / "stays.csv", form or "%Y-%m-%dT%H:%M")
    (tmp_path / "run").mkdir()
    run = embexp.load_run(single.run(spec_of(tmp_path / "stays.csv", "csv", form), tmp_path / "run").directory)
    exported = run.export(tmp_path / "model")
    assert exported.signatures["serving_default"] == {
        "hotel": "string [B]",
        "nights": "string [B]",
        "price": "float32 [B]",
        "arrival": "string [B]",
        "booked": "string [B]",
    }
    values = zip(*map(_cells, lines), strict=True)
    columns = dict(zip(("hotel", "nights", "price", "arrival", "booked", "left"), values, strict=True))
    given = {name: tf.constant(columns[name]) for name in ("hotel", "nights", "arrival", "booked")}
    given["price"] = tf.constant([float(text) for text in columns["price"]])
    model = tf.saved_model.load(str(tmp_path / "model"))
    expected = run.predict(tmp_path / "stays.csv")
    assert np.ptp(expected) > 0.05
    for found in (model.signatures["serving_default"](**given), model.predict(given)):
        np.testing.assert_allclose(found["predictions"].numpy(), expected, rtol=2e-6)
    rows = exported.signatures["serving_ids"]
    assert rows["arrival_month"] == "int64 [B]"
    assert rows["arrival_month_number"] == rows["nights_number"] == rows["arrival_age"] == "float32 [B]"
    assert "arrival" not in rows
    with pytest.raises(tf.errors.InvalidArgumentError, match="column booked: expected a date"):
        model.predict({**given, "booked": tf.fill([len(lines)], "yesterday")})
    served = tf.saved_model.load(str(run.export(tmp_path / "apart", tables_apart=True).path / "model"))
    apart = served.signatures["serving_default"](**_rows_of(run, columns, form), **_numbers_of(columns))
    np.testing.assert_allclose(apart["predictions"].numpy(), expected, rtol=2e-6)


def _rows_of(run: embexp.Run, columns: dict[str, tuple[str, ...]], form: str | None) -> dict[str, tf.Tensor]:
    """The rows of each feature, with what Python makes of the dates."""
    arrivals = [datetime.strptime(text, form or "%Y-%m-%dT%H:%M") if text else None for text in columns["arrival"]]
    booked = [datetime.fromisoformat(text) for text in columns["booked"]]
    texts: dict[str, list[str]] = {
        "hotel": list(columns["hotel"]),
        "nights": list(columns["nights"]),
        "arrival_weekday": ["" if each is None else str(each.weekday()) for each in arrivals],
        "arrival_hour": ["" if each is None else str(each.hour) for each in arrivals],
        "arrival_month": ["" if each is None else str(each.month) for each in arrivals],
        "booked_month": [str(each.month) for each in booked],
    }
    rows = {name: run.vocabulary(name).rows(each) for name, each in texts.items()}
    ages = np.array([(datetime(2024, 5, 31) - each).total_seconds() / 86_400 for each in booked])
    prices = np.array([float(text) for text in columns["price"]])
    for name, values in (("age", ages), ("price", prices)):
        rows[name] = run.vocabulary(name).rows_of(values)  # type: ignore[attr-defined]
    return {name: tf.constant(run.table(name)[each]) for name, each in rows.items()}


def _numbers_of(columns: dict[str, tuple[str, ...]]) -> dict[str, tf.Tensor]:
    """The columns of the file that are numbers, or dates of which numbers are made, next to rows."""
    numbers = {name: tf.constant([float(text) for text in columns[name]]) for name in ("nights", "price")}
    return {
        **{f"{name}_number": each for name, each in numbers.items()},
        **{name: tf.constant(columns[name]) for name in ("arrival", "booked")},
    }


def _cells(line: str) -> list[str]:
    return line.split(",")


def test_dates_of_parquet_are_given_as_iso_texts(tmp_path: Path) -> None:
    lines = [_cells(line) for line in stays(tmp_path / "stays.csv", "%Y-%m-%dT%H:%M")]
    zone = timezone(timedelta(hours=-7))
    arrivals = [datetime.fromisoformat(each[3]).replace(tzinfo=zone) if each[3] else None for each in lines]
    table = {
        "hotel": pa.array([each[0] for each in lines]),
        "nights": pa.array([int(each[1]) for each in lines]),
        "price": pa.array([float(each[2]) for each in lines]),
        "arrival": pa.array(arrivals, pa.timestamp("us", "-07:00")),
        "booked": pa.array([datetime.fromisoformat(each[4]).date() for each in lines]),
        "left": pa.array([int(each[5]) for each in lines]),
    }
    pq.write_table(pa.table(table), tmp_path / "stays.parquet")
    (tmp_path / "run").mkdir()
    spec = spec_of(tmp_path / "stays.parquet", "parquet", None)
    run = embexp.load_run(single.run(spec, tmp_path / "run").directory)
    run.export(tmp_path / "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    given = {
        "hotel": tf.constant(table["hotel"].to_pylist()),
        "nights": tf.constant([str(each) for each in table["nights"].to_pylist()]),
        "price": tf.constant(table["price"].to_pylist()),
        "arrival": tf.constant(["" if each is None else each.isoformat() for each in arrivals]),
        "booked": tf.constant([each.isoformat() for each in table["booked"].to_pylist()]),
    }
    found = model.signatures["serving_default"](**given)["predictions"].numpy()
    np.testing.assert_allclose(found, run.predict(tmp_path / "stays.parquet"), rtol=2e-6)


def test_a_column_that_has_the_name_of_a_number_next_to_rows(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    lines = [f"{draw.integers(5)},{draw.normal():.3f},{draw.integers(2)}" for _ in range(120)]
    (tmp_path / "r.csv").write_text("\n".join(["nights,nights_number,left", *lines]) + "\n")
    spec = spec_of(tmp_path / "r.csv", "csv", None)
    data = {
        "kind": "csv",
        "path": str(tmp_path / "r.csv"),
        "label": "left",
        "dense_features": ["nights", "nights_number"],
    }
    changes = {"data": data, "tables": {"nights": {"dim": 4}}, "features": {"nights": {"table": "nights"}}}
    (tmp_path / "run").mkdir()
    spec = embexp.RunSpec.model_validate({**spec.model_dump(mode="json"), **changes})
    run = embexp.load_run(single.run(spec, tmp_path / "run").directory)
    signatures = run.export(tmp_path / "model").signatures
    assert set(signatures["serving_default"]) == {"nights", "nights_number"}
    assert set(signatures["serving_ids"]) == {"nights", "nights_number", "nights_number_2"}
    model = tf.saved_model.load(str(tmp_path / "model"))
    nights, numbers, _ = zip(*map(_cells, lines), strict=True)
    other = tf.constant([float(text) for text in numbers])
    expected = run.predict(tmp_path / "r.csv")
    found = model.predict({"nights": tf.constant(nights), "nights_number": other})
    np.testing.assert_allclose(found["predictions"].numpy(), expected, rtol=2e-6)
    rows = tf.constant(run.vocabulary("nights").rows(nights))
    own = tf.constant([float(text) for text in nights])
    found = model.signatures["serving_ids"](nights=rows, nights_number=other, nights_number_2=own)
    np.testing.assert_allclose(found["predictions"].numpy(), expected, rtol=2e-6)
