"""Columns that may leak the label: what each kind finds, what chance gives, and what a run and a plan say."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn import datasets, metrics

import embexp
from embexp.data import leaks
from embexp.data.leaks import Column, Kind, Leak
from embexp.runs.prepare import prepare
from embexp.system.parallel import quiet

ROWS = 400
DRAW = np.random.default_rng(0)
LABELS = (DRAW.random(ROWS) < 0.3).astype(np.float64)
NOISE = DRAW.normal(size=ROWS)
CODES = DRAW.integers(0, 4, ROWS)
BOOKED = np.sort(DRAW.integers(0, 300, ROWS)).astype(np.float64)


def filled(where: np.ndarray) -> np.ndarray:
    return np.where(where, NOISE, np.nan)


def found(*columns: Column, labels: np.ndarray = LABELS) -> list[tuple[Kind, tuple[str, ...]]]:
    return [(leak.kind, leak.columns) for leak in leaks.leaks(columns, labels)]


HALF = (LABELS == 1) & (np.arange(ROWS) % 4 > 0)
COLUMNS = {
    "refund": (Column("refund", None, filled(LABELS == 1)), Kind.FILLED),
    "reason": (Column("reason", np.where(LABELS == 1, CODES, -1)), Kind.FILLED),
    "left": (Column("left", None, filled(LABELS == 0)), Kind.FILLED),
    "of some": (Column("of some", None, filled(HALF)), Kind.ONLY_FILLED),
    "empty for some": (Column("empty for some", None, filled(~HALF)), Kind.ONLY_EMPTY),
    "state": (Column("state", np.where(LABELS == 1, CODES % 2, 2 + CODES % 2)), Kind.VALUES),
    "state with gaps": (Column("gaps", np.where(NOISE > 1.5, -1, np.where(LABELS == 1, 5, 7))), Kind.VALUES),
    "score": (Column("score", None, np.round(NOISE + 20 * LABELS, 1)), Kind.ORDER),
    "falling": (Column("falling", None, NOISE - 20 * LABELS), Kind.ORDER),
    "closed": (Column("closed", None, filled(NOISE > -9) + 1_000 * LABELS, dates=True), Kind.ORDER),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_restates_the_label(name: str) -> None:
    column, kind = COLUMNS[name]
    assert found(column) == [(kind, (column.name,))]
    shuffled = DRAW.permutation(LABELS)  # the same column, which knows nothing
    assert not found(column, labels=shuffled)


def test_labels_where_a_column_is_filled() -> None:
    classes = DRAW.integers(0, 3, ROWS).astype(np.float64)
    names = ["done", "shown", "cancelled"]
    [leak] = leaks.leaks([Column("refund", None, filled(classes == 2))], classes, lambda label: names[int(label)])
    assert leak.why("state") == "it is filled exactly if state is cancelled"


def test_two_columns_that_tell_the_label_together() -> None:
    other = np.where(LABELS == 1, CODES, (CODES + 1) % 4)
    pair = Column("one", CODES), Column("other", other)
    assert found(*pair) == [(Kind.PAIR, ("one", "other"))]
    assert not found(*pair, labels=DRAW.permutation(LABELS))
    # With a column that tells the label alone there is nothing left to tell.
    assert found(Column("state", (10 * LABELS).astype(np.int64)), Column("one", CODES)) == [(Kind.VALUES, ("state",))]


def test_dates_after_the_label() -> None:
    """The date of the last change is that of the booking, but for what was cancelled later."""
    changed = Column("changed", None, BOOKED + LABELS * (1 + CODES), dates=True)
    booked = Column("booked", None, BOOKED, dates=True, alone=False)
    assert found(booked, changed) == [(Kind.INTERVAL, ("changed", "booked"))]
    assert not found(booked)


NUMBERS = DRAW.gamma(2, 50, 2_000)
COPIES = {
    "itself": NUMBERS,
    "another unit": 32 - 1.8 * NUMBERS,
    "rounded": np.round(NUMBERS, 1),
    "logarithm": np.log(NUMBERS),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_number(name: str) -> None:
    assert found(Column("copy", None, COPIES[name]), labels=NUMBERS) == [(Kind.COPY, ("copy",))]


def test_the_value_of_yesterday_is_no_copy() -> None:
    prices = 100 * np.exp((0.01 * np.random.default_rng(0).normal(size=5_000)).cumsum())
    assert stats.spearmanr(prices[:-1], prices[1:]).statistic > 0.999
    assert not found(Column("yesterday", None, prices[:-1]), labels=prices[1:])


def test_area_and_rank_correlation_are_those_of_others() -> None:
    numbers, positive = np.round(NOISE, 1), LABELS == 1
    assert len(np.unique(numbers)) < ROWS
    assert leaks.auc(numbers, positive) == pytest.approx(metrics.roc_auc_score(positive, numbers), rel=1e-12)
    assert leaks.midranks(numbers).tolist() == stats.rankdata(numbers).tolist()


def test_the_chance_of_a_column_is_not_more_than_counted() -> None:
    """Of all orders of few labels, columns of two values tell as many as there are ways to do so, or fewer."""
    look = leaks._Look(np.zeros(0), np.zeros(0), 2, [])
    for rows, positive, size in itertools.product((8, 10), (3, 5), (1, 3)):
        groups = np.arange(rows) < size
        told = sum(
            len({(groups[row], row in chosen) for row in range(rows)}) <= 2
            for chosen in itertools.combinations(range(rows), positive)
        )
        orders = leaks._orders(np.array([positive, rows - positive]))
        assert 2**orders == pytest.approx(math.comb(rows, positive))
        assert told <= 2 ** look._cost(2, 0, rows)


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "diabetes"])
def test_no_false_alarm_on_public_tables(name: str) -> None:
    columns, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    read = [Column(str(place), None, column) for place, column in enumerate(columns.T.astype(np.float64))]
    assert not leaks.leaks(read, labels.astype(np.float64))


@pytest.mark.parametrize("seed", range(20))
def test_no_false_alarm_on_tables_without_a_leak(seed: int) -> None:
    """Frequent and rare values, gaps, drifting numbers, and a label that depends on two of the columns."""
    draw = np.random.default_rng(seed)
    rows = int(draw.choice([30, 100, 300, 1_000, 5_000]))
    columns = []
    for place in range(12):
        size = int(draw.choice([2, 3, 5, 10, 50, rows // 3 + 1]))
        shares = 1 / np.arange(1, size + 1) ** draw.choice([0.0, 1.0, 2.0])
        codes = draw.choice(size, rows, p=shares / shares.sum())
        columns.append(Column(f"c{place}", np.where(draw.random(rows) < 0.8, codes, -1)))
    for place in range(8):
        numbers = draw.normal(size=rows).cumsum() if place % 3 == 0 else draw.gamma(1, 10, rows)
        numbers = np.where(draw.random(rows) < draw.random(), numbers, np.nan) if place % 2 else np.round(numbers)
        columns.append(Column(f"n{place}", None, numbers, dates=place > 5))
    assert columns[0].codes is not None
    score = columns[0].codes % 2 + 2 * draw.normal(size=rows)
    for labels in (score > np.quantile(score, 0.5), score > np.quantile(score, 0.97), np.round(score), score):
        assert not leaks.leaks(columns, labels.astype(np.float64))


def test_leaks_are_read_as_they_were_written(tmp_path: Path) -> None:
    some = [Leak(Kind.FILLED, ("refund",), 1.0, ("1",)), Leak(Kind.PAIR, ("a", "b"), 0.9995)]
    leaks.write(some, tmp_path / "leaks.json")
    assert leaks.read(tmp_path / "leaks.json") == tuple(some)


YAML = """\
# @package _global_
defaults:
  - override /data: csv
  - override /graph: null
  - override /model: mlp
  - override /optimizer: sgd
name: bookings
task: binary
data:
  path: {path}
  label: cancelled
  timestamp: booked
  dates: {{booked: {{reference: 2024-12-31}}, changed: {{reference: 2024-12-31}}}}
  split: {{kind: time, validation: 0.1, test: 0.1}}
  dense_features:
    changed_age: {{transform: standardize}}
    price: {{transform: standardize}}
    refund: {{transform: standardize, missing: mean, indicator: true}}
tables: {{hotel: {{dim: 4}}, refunds: {{dim: 4}}, month: {{dim: 4}}}}
features:
  hotel: {{}}
  refunds: {{column: refund, buckets: {{quantiles: 4}}}}
  month: {{column: changed_month}}
train: {{epochs: 1}}
"""


def write_bookings(folder: Path) -> Path:
    first = np.datetime64("2024-01-01")
    lines = ["booked,changed,hotel,price,refund,cancelled"]
    for row in range(ROWS):
        price, cancelled = abs(round(float(NOISE[row]), 3)), int(LABELS[row])
        booked = first + int(BOOKED[row])
        changed = booked + (1 + int(CODES[row])) * cancelled
        lines.append(f"{booked},{changed},h{(row * 7) % 11},{price},{price if cancelled else ''},{cancelled}")
    (folder / "bookings.csv").write_text("\n".join(lines) + "\n")
    (folder / "experiment").mkdir()
    (folder / "experiment" / "bookings.yaml").write_text(YAML.format(path=folder / "bookings.csv"))
    return folder


def test_a_run_says_so_and_how_to_leave_the_columns_out(tmp_path: Path) -> None:
    overrides = ["experiment=bookings", f"output.cache={tmp_path / 'cache'}"]
    spec = embexp.compose(overrides, config_dir=write_bookings(tmp_path))
    prepared = prepare(spec, progress=quiet)
    assert [(leak.kind, leak.columns) for leak in prepared.data.scan.leaks] == [
        (Kind.FILLED, ("refund",)),
        (Kind.INTERVAL, ("changed", "booked")),
    ]
    assert prepared.leak_warnings == [line for line in prepared.warnings if "may leak" in line]
    without = [
        ["~data.dense_features.refund", "~features.refunds", "~tables.refunds"],
        ["~data.dense_features.changed_age", "~features.month", "~tables.month"],
    ]
    assert [list(spec.without_columns([name])) for name in ("refund", "changed")] == without
    for line, each in zip(prepared.leak_warnings, without, strict=True):
        assert line.endswith(" ".join(f"'{override}'" for override in each))
    clean = embexp.compose([*overrides, *itertools.chain(*without)], config_dir=tmp_path)
    assert not prepare(clean, progress=quiet).leak_warnings
    assert not spec.without_columns(["hotel", "refund", "changed"])  # nothing would be left to embed


def test_lists_of_numeric_columns_are_written_as_such(tmp_path: Path) -> None:
    write_bookings(tmp_path)
    file = tmp_path / "experiment" / "bookings.yaml"
    text = file.read_text().partition("  dense_features:\n")
    rest = text[2].partition("tables:")
    file.write_text(f"{text[0]}  dense_features: [price, changed_age]\ntables:{rest[2]}")
    overrides = ["experiment=bookings", f"output.cache={tmp_path / 'cache'}"]
    spec = embexp.compose(overrides, config_dir=tmp_path)
    found = spec.without_columns(["price"])
    assert found == ("data.dense_features=[changed_age]",)
    assert embexp.compose([*overrides, *found], config_dir=tmp_path).data.dense_columns == ("changed_age",)


def test_leaks_are_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = ["experiment=bookings", f"output.cache={tmp_path / 'cache'}"]
    spec = embexp.compose(overrides, config_dir=write_bookings(tmp_path))
    first = prepare(spec, progress=quiet).data.scan.leaks
    monkeypatch.setattr(leaks, "leaks", lambda *_: pytest.fail("the cache has them"))
    assert prepare(spec, progress=quiet).data.scan.leaks == first


def test_large_data_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "SAMPLE", 100)
    seen = []
    own = leaks.leaks
    monkeypatch.setattr(
        leaks, "leaks", lambda columns, labels, name: seen.append(len(labels)) or own(columns, labels, name)
    )
    overrides = ["experiment=bookings", f"output.cache={tmp_path / 'cache'}"]
    prepared = prepare(embexp.compose(overrides, config_dir=write_bookings(tmp_path)), progress=quiet)
    assert seen == [100]
    assert "in 100 training examples" in prepared.leak_warnings[0]
