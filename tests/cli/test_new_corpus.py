"""Tables of many shapes: what `embexp new` reads, a run reads in the same way; or `new` says at once why it can't."""

from __future__ import annotations

import bz2
import datetime
import gzip
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import embexp
from embexp.cli import commands
from embexp.runs.prepare import Prepared, prepare
from embexp.system.parallel import quiet

ROWS = 60
_draw = random.Random(3)
SHOPS = [f"ö{_draw.randint(0, 8)}" for _ in range(ROWS)]
PRICES = [round(_draw.gauss(1500, 300), 2) for _ in range(ROWS)]
LABELS = [int(_draw.random() < 0.4) for _ in range(ROWS)]
TIMES = [datetime.datetime(2024, 1, 3, 5, 7, 9) + datetime.timedelta(hours=7 * number) for number in range(ROWS)]
Table = dict[str, list[Any]]


def table(**more: list[Any]) -> Table:
    return {"shop": SHOPS, "price": PRICES, "y": LABELS} | more


def text(columns: Table, between: str = ",", end: str = "\n", *, header: bool = True, quote: str = "") -> str:
    rows = [*([list(columns)] if header else []), *zip(*columns.values(), strict=True)]
    return "".join(between.join(f"{quote}{field}{quote}" for field in row) + end for row in rows)


def yes_or_no(yes: str, no: str) -> list[str]:
    return [yes if label else no for label in LABELS]


def missing(values: list[Any], *words: str) -> list[Any]:
    return [words[place % len(words)] if place % 7 == 0 else value for place, value in enumerate(values)]


TEXTS: dict[str, str | bytes] = {
    "plain.csv": text(table()),
    "blanks.csv": text(table(), " , "),
    "aligned.txt": text({name: [f"{value!s:>8}" for value in values] for name, values in table().items()}, " "),
    "tab_at_the_end.tsv": text(table(), "\t", "\t\r\n"),
    "quoted.csv": "\ufeff" + text(table(), quote='"', end="\r\n"),
    "latin.csv.gz": gzip.compress(text(table(), ";").encode("latin-1")),
    "utf16.txt.bz2": bz2.compress(text(table(), "\t").encode("utf-16")),
    "excel.csv": "sep=;\r\n"
    + text(table(price=[f"{price:,.2f}".translate({44: 46, 46: 44}) for price in PRICES]), ";"),
    "missing.csv": text(table(price=missing(PRICES, "", " NA", "null ", "nan")), ", "),
    "missing_label.csv": text(table(y=missing(yes_or_no(" yes", "no"), "NA", ""))),
    "words.csv": text(table(y=yes_or_no("TRUE", "FALSE "))),
    "dates.csv": text(table(when=missing([f" {time:%d.%m.%Y}" for time in TIMES], "NA", ""))),
    "clash.csv": text(table(when=[f"{time:%Y-%m-%d}" for time in TIMES], when_weekday=SHOPS)),
    "same_names.csv": text(
        {"shop": SHOPS, "shop buckets": SHOPS, "shop-buckets": SHOPS, "n" * 300: SHOPS, "y": LABELS}
    ),
    "no_header.csv": text(table(), header=False),
    "untyped.csv": text({"Unnamed: 0": list(range(ROWS))} | table(mixed=missing(PRICES, "?"))),
    "own.inter": text({"shop:token": SHOPS, "price:float": PRICES, "y:float": LABELS}, ",", "\r\n"),
    "tabs.inter": text({"shop:token": SHOPS, "price:float ": PRICES, "y:float": LABELS}, "\t", "\t\n"),
}
INTEGERS = [int(f"{time:%Y%m%d}") for time in TIMES]
OF_ARROW: dict[str, dict[str, Any]] = {
    **{f"time_{unit}": {"when": pa.array(TIMES, pa.timestamp("us")).cast(unit_type := pa.timestamp(unit))}
       for unit in ("s", "ms", "us", "ns")},
    "zone": {"when": pa.array(TIMES, pa.timestamp("us", "Europe/Berlin"))},
    "nanoseconds": {"when": pa.array([10**18 + place * 10**13 + 1 for place in range(ROWS)], pa.timestamp("ns"))},
    "nulls": {"when": pa.array(missing(TIMES, None), pa.timestamp("ns"))},  # type: ignore[arg-type]
    "days": {"when": pa.array([time.date() for time in TIMES], pa.date32())},
    "digits": {"date": INTEGERS},
    "text": {"when": [f"{time:%d.%m.%Y}" for time in TIMES], "price": list(map(str, PRICES)), "y": [*map(str, LABELS)]},
    "index": {"__index_level_0__": list(range(ROWS)), "when": [str(time) for time in TIMES]},
    "dictionary": {name: pa.array(values).dictionary_encode()
                   for name, values in {"shop": SHOPS, "y": yes_or_no("yes", "no")}.items()},
    "decimal": {"price": [Decimal(str(price)) for price in PRICES], "few": [Decimal(n % 3) for n in range(ROWS)]},
    "truth": {"y": [bool(label) for label in LABELS], "flag": [place % 3 > 0 for place in range(ROWS)]},
    "views": {"shop": pa.array(SHOPS, pa.string_view())},
    "large": {"shop": pa.array(SHOPS, pa.large_string())},
    "unread": {"at": [time.time() for time in TIMES], "raw": [b"a", b"b"] * (ROWS // 2), "vector": [[0.5, 1.5]] * ROWS},
}  # fmt: skip


def new(data: Path, folder: Path, *more: str, label: str = "y") -> int:
    return commands.main(["new", str(data), "--label", label, "--out", str(folder), "--name", "x", *more])


def planned(folder: Path) -> Prepared:
    """As `plan --scan` does it."""
    return prepare(embexp.compose(["experiment=x"], config_dir=folder), progress=quiet)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def check(found: Prepared, *, labels: list[int] = LABELS) -> None:
    """The planted shops, without the blanks of a separator, and the labels."""
    [column] = [name for name in ("shop", "column_1") if name in found.data.vocabularies]
    tokens = [token.strip() for token in found.data.vocabularies[column].tokens()]
    assert found.data.scan.examples.labels is not None
    assert found.data.scan.examples.labels.tolist() == labels
    train = {SHOPS[row] for row in found.data.scan.splits["train"]} if labels is LABELS else set(SHOPS)
    assert train <= set(tokens) <= {*SHOPS, *tokens[:1]}


@pytest.mark.parametrize("name", TEXTS)
def test_a_run_reads_what_new_reads_of_text(name: str, tmp_path: Path) -> None:
    data, content = tmp_path / name, TEXTS[name]
    data.write_bytes(content if isinstance(content, bytes) else content.encode())
    label = {"no_header.csv": "column_3"}.get(name, "y")
    assert new(data, tmp_path / "conf", label=label) == 0
    kept = [each for place, each in enumerate(LABELS) if place % 7] if name == "missing_label.csv" else LABELS
    check(planned(tmp_path / "conf"), labels=kept)


@pytest.mark.parametrize("name", OF_ARROW)
def test_a_run_reads_what_new_reads_of_parquet(name: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(table() | OF_ARROW[name]), tmp_path / "d.parquet")
    assert new(tmp_path / "d.parquet", tmp_path / "conf") == 0
    check(planned(tmp_path / "conf"))


TABLE = text(table())
REFUSED: dict[str, tuple[str, str, str]] = {
    # what is wrong -> the remedy, and what it makes of the file
    "ragged.csv": (TABLE + "ö1,5\n", "line 62: found 2 fields, expected 3 fields", TABLE),
    "quotes.csv": (
        text(table(), ", ", quote='"'), "remove the spaces between delimiters and quotes", text(table(), quote='"')
    ),
    "infinite.csv": (TABLE + "ö1,inf,1\n", "found 'inf' in column 'price', expected a finite number that", TABLE),
    "twice.csv": (TABLE.replace("price", "shop", 1), "two columns have the name 'shop'", TABLE),
    "untyped.inter": (
        TABLE, "after the name of each column, write", TABLE.replace("shop,price,y", "shop:token,price:float,y:float")
    ),
    "saved.inter": (
        "# " + text({"shop:token": SHOPS, "y:float": LABELS}),
        "remove the leading #",
        text({"shop:token": SHOPS, "y:float": LABELS}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_run_would_refuse_new_refuses(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, said, mended = REFUSED[name]
    (tmp_path / name).write_text(content)
    assert new(tmp_path / name, tmp_path / "conf") == commands.MISUSED
    assert said in capsys.readouterr().err
    assert not (tmp_path / "conf").exists()
    (tmp_path / name).write_text(mended)
    assert new(tmp_path / name, tmp_path / "conf") == 0


def test_a_column_that_can_t_be_read_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.csv").write_text(text(table(size=missing(PRICES, "inf"))))
    assert new(tmp_path / "d.csv", tmp_path / "conf") == commands.MISUSED
    assert "leave out a column with --ignore" in capsys.readouterr().err
    assert new(tmp_path / "d.csv", tmp_path / "conf", "--ignore", "size") == 0


def pairs(count: int = 264) -> Table:
    """Two ids, a time and a label of 0 and 1; and whole numbers that recur: codes and amounts at once."""
    return {
        "user": [f"u{place % 9}" for place in range(count)],
        "item": [f"i{place * 5 % 11}" for place in range(count)],
        "size": [place * 7 % 12 for place in range(count)],
        "when": [TIMES[0] + datetime.timedelta(hours=place) for place in range(count)],
        "y": [place * 31 % 7 // 4 for place in range(count)],
    }


def write_text(path: Path, columns: Table) -> Path:
    (path / "d.csv").write_text(text(columns, ", "))
    return path / "d.csv"


def write_parquet(path: Path, columns: Table) -> Path:
    pq.write_table(
        pa.table(columns | {"when": pa.array(columns["when"], pa.timestamp("ns", "UTC"))}), path / "d.parquet"
    )
    return path / "d.parquet"


@pytest.mark.parametrize("write", [write_text, write_parquet])
def test_a_run_exports_and_predicts_the_same(write: Callable[[Path, Table], Path], tmp_path: Path) -> None:
    import tensorflow as tf

    data, run = write(tmp_path, pairs()), tmp_path / "run"
    assert new(data, tmp_path / "conf") == 0
    settings = [
        "train.steps=2",
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
        f"hydra.run.dir={run}",
    ]
    assert commands.main(["run", "--config-dir", str(tmp_path / "conf"), "experiment=x", *settings]) == 0
    assert commands.main(["predict", str(run), "--data", str(data), "--out", str(tmp_path / "p.csv")]) == 0
    assert commands.main(["export", str(run), str(tmp_path / "out"), "--as", "savedmodel"]) == 0
    said = [float(line.split(",")[0]) for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    # As it stands in the file: blanks behind the commas are part of ids, and of no number.
    blank = " " if write is write_text else ""
    texts = {
        name: [f"{blank * (name != 'user')}{value}" for value in pairs()[name]]
        for name in ("user", "item", "size", "when")
    }
    given = {name: tf.constant(values) for name, values in texts.items()}
    model = tf.saved_model.load(str(tmp_path / "out"))
    assert model.predict(given)["predictions"].numpy() == pytest.approx(said)


@pytest.mark.parametrize(
    ("name", "values", "divides"),
    [
        ("lead_time", [place * 37 % 299 for place in range(ROWS)], False),
        ("lifetime_value", [place * 3.5 for place in range(ROWS)], False),
        ("order_id", [1_600_000_000 + place * 7 for place in range(ROWS)], False),
        ("created", [1_600_000_000_000 + place * 7_000 for place in range(ROWS)], True),
        ("event_time", [(1_600_000_000 + place) * 10**9 for place in range(ROWS)], True),
        ("timestamp", list(range(ROWS)), True),
        ("date", INTEGERS, True),
    ],
)
def test_a_number_is_a_time_by_its_values(
    name: str, values: list[Any], divides: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.csv").write_text(text(table(**{name: values})))
    assert new(tmp_path / "d.csv", tmp_path / "conf") == 0
    split = (
        f"by {name}, the last 10% test, the 10% before validate" if divides else "10% validates, 10% tests, at random"
    )
    assert f"split: {split}" in capsys.readouterr().out
    spec = embexp.compose(["experiment=x"], config_dir=tmp_path / "conf")
    assert spec.data.described_split() == split


def test_ids_that_occur_once_are_left_out_and_warned_of(tmp_path: Path) -> None:
    many = {"session_id": [f"s{max(place, 12)}" for place in range(300)], "shop": SHOPS * 5, "y": LABELS * 5}
    (tmp_path / "d.csv").write_text(text(many))
    assert new(tmp_path / "d.csv", tmp_path / "conf") == 0
    found = planned(tmp_path / "conf")
    assert set(found.spec.tables) == {"shop"}
    assert found.seen_once == {}
    assert new(tmp_path / "d.csv", tmp_path / "conf", "--force", "--category", "session_id") == 0
    found = planned(tmp_path / "conf")
    train = found.data.scan.splits["train"]
    of_train = [many["session_id"][row] for row in train]
    once = sum(of_train.count(each) == 1 for each in of_train) / len(of_train)
    assert found.seen_once == {"session_id": pytest.approx(once)}
    assert any(
        "column session_id occur once" in warning and "remove the feature" in warning for warning in found.warnings
    )
