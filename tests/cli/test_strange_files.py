"""Files as strangers make them: `embexp new` writes what reads them rightly, or says in one sentence what to do."""

from __future__ import annotations

import codecs
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import embexp
from embexp.cli import commands, first_experiment
from embexp.data.files.dialect import Dialect
from embexp.data.files.samples import facts, number_notation, sample
from embexp.errors import ConfigError
from embexp.runs.prepare import Prepared, prepare
from embexp.specs.run import RunSpec
from embexp.system.parallel import quiet

ROWS = 120
DRAW = random.Random(0)
CITIES = [DRAW.choice(["Köln", "Zürich", "Málaga"]) for _ in range(ROWS)]
AMOUNTS = [round(DRAW.uniform(-5, 5), 2) + 0.001 for _ in range(ROWS)]
LABELS = [DRAW.randint(0, 1) for _ in range(ROWS)]


def table(delimiter: str = ",", number: Callable[[float], str] = str, label: Callable[[int], str] = str) -> str:
    rows = [delimiter.join(row) for row in zip(CITIES, map(number, AMOUNTS), map(label, LABELS), strict=True)]
    return "\r\n".join([delimiter.join(["city", "amount", "label"]), *rows]) + "\r\n"


def written(tmp_path: Path, content: bytes | str, *arguments: str, name: str = "own.csv") -> RunSpec:
    """The experiment that `embexp new` writes."""
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return written_of(file, tmp_path, *arguments)


def written_of(file: Path, tmp_path: Path, *arguments: str) -> RunSpec:
    options = ["--out", str(tmp_path / "conf"), "--name", "own", "--force", *arguments]
    assert commands.main(["new", str(file), *options]) == 0
    return embexp.compose(["experiment=own", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path / "conf")


def prepared(spec: RunSpec) -> Prepared:
    return prepare(spec, progress=quiet)


def labels_of(found: Prepared) -> list[float]:
    assert found.data.scan.examples.labels is not None
    return list(found.data.scan.examples.labels.tolist())


def numbered(content: str, name: str = "") -> str:
    """With a column of row numbers in front, which pandas and R write without a name."""
    head, *rows = content.splitlines()
    return "\n".join([f"{name},{head}", *(f"{number},{row}" for number, row in enumerate(rows))]) + "\n"


def comma(value: float) -> str:
    return f"{value:.3f}".replace(".", ",")


ENCODED = {
    "latin-1": table().encode("latin-1"),
    "Windows": table().replace("Köln", "Köln–West").encode("cp1252"),
    "UTF-16": table().encode("utf-16"),
    "UTF-16 without a mark": table().encode("utf-16-le"),
    "a byte order mark": codecs.BOM_UTF8 + table().encode(),
    "Excel": codecs.BOM_UTF8 + ("sep=;\r\n" + table(";", comma)).encode(),
    "decimal commas": table(";", comma).encode(),
    "row numbers of pandas": numbered(table()).encode(),
    "row numbers of R": numbered(table(), '""').encode(),
    "yes and no": table(label=["no", "yes"].__getitem__).encode(),
    "True and False": table(label=["False", "True"].__getitem__).encode(),
}


@pytest.mark.parametrize("case", ENCODED)
def test_values_are_those_of_the_file(case: str, tmp_path: Path) -> None:
    found = prepared(written(tmp_path, ENCODED[case], "--label", "label"))
    assert labels_of(found) == LABELS
    examples = found.data.scan.examples
    names = found.data.vocabularies["city"].tokens()
    cities = [names[row] for row in examples.column("city")]
    known = {"Köln–West": "Köln"}
    assert [known.get(city, city) for city in cities] == CITIES
    assert np.corrcoef(examples.dense[:, 0], AMOUNTS)[0, 1] > 1 - 1e-6  # they are standardized


def test_thousands(tmp_path: Path) -> None:
    numbers = [DRAW.uniform(0, 2e6) for _ in range(ROWS)]
    rows = [f'{city},"{number:,.2f}",{label}' for city, number, label in zip(CITIES, numbers, LABELS, strict=True)]
    spec = written(tmp_path, "\n".join(["city,amount,label", *rows]), "--label", "label")
    assert np.corrcoef(prepared(spec).data.scan.examples.dense[:, 0], numbers)[0, 1] > 1 - 1e-6


@given(
    st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 3)), min_size=3, max_size=30),
    st.sampled_from([(",", "."), (",", " "), (".", ","), (".", "'"), (",", ""), (".", "\u00a0")]),
)
def test_notations_of_numbers(numbers: list[float], marks: tuple[str, str]) -> None:
    decimal, thousands = marks
    numbers = [*numbers, 1234567.125]  # in which every notation shows
    texts = [f"{x:,.3f}".replace(",", "T").replace(".", decimal).replace("T", thousands) for x in numbers]
    dialect, columns = number_notation({"x": texts}, ";")
    assert columns == ["x"]
    assert [float(dialect.number(text)) for text in texts] == numbers
    assert dialect.numbers(pa.array(texts)).cast(pa.float64()).to_pylist() == numbers


@given(st.text("0123456789.,' +-", min_size=1, max_size=9), st.sampled_from([(",", "."), (".", ","), (",", "")]))
def test_both_readers_take_the_same_numbers(text: str, marks: tuple[str, str]) -> None:
    dialect = Dialect(";", quoted=True, decimal=marks[0], thousands=marks[1])

    def careful() -> float | None:
        try:
            return float(dialect.number(text.strip()))
        except ValueError:
            return None

    def fast() -> float | None:
        try:
            return float(dialect.numbers(pa.array([text])).cast(pa.float64())[0].as_py())
        except pa.ArrowInvalid:
            return None

    assert careful() == fast()


def test_codes_that_begin_with_0_keep_it(tmp_path: Path) -> None:
    rows = [f"{number % 40:05d},{number % 7},{label}" for number, label in enumerate(LABELS)]
    spec = written(tmp_path, "\n".join(["plz,x,label", *rows]), "--label", "label")
    assert "00039" in prepared(spec).data.vocabularies["plz"].tokens()


def test_times_with_zones_split(tmp_path: Path) -> None:
    rows = [f"a{number % 5},2024-03-{1 + number % 28:02d}T10:00:00{'+02:00' if number % 2 else 'Z'},{label}"
            for number, label in enumerate(LABELS)]  # fmt: skip
    spec = written(tmp_path, "\n".join(["shop,when,label", *rows]), "--label", "label")
    assert spec.model_dump()["data"]["timestamp"] == "when"
    assert len(prepared(spec).data.scan.splits["test"]) == ROWS // 10


def test_truth_values_and_floats_of_parquet(tmp_path: Path) -> None:
    columns = {
        "shop": [f"s{n % 5}" for n in range(ROWS)],
        "open": [bool(n % 3) for n in range(ROWS)],
        "floor": [None if n % 11 == 0 else float(n % 4) for n in range(ROWS)],  # whole numbers, as pandas has them
        "label": [bool(label) for label in LABELS],
    }
    pq.write_table(pa.table(columns), tmp_path / "own.parquet")
    found = prepared(written_of(tmp_path / "own.parquet", tmp_path, "--label", "label"))
    assert labels_of(found) == LABELS
    names = found.data.vocabularies["open"].tokens()
    assert [names[row] for row in found.data.scan.examples.column("open")] == [
        str(int(value)) for value in columns["open"]
    ]


def test_26_integer_columns(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    columns = {f"C{number}": draw.integers(0, 2_000, 20_000) for number in range(26)}
    pq.write_table(pa.table({"y": draw.integers(0, 2, 20_000), **columns}), tmp_path / "own.parquet")
    spec = written_of(tmp_path / "own.parquet", tmp_path, "--label", "y", "--category", ",".join(columns))
    assert set(spec.features) == set(columns)


def texts(rows: int = 300) -> list[tuple[str, str]]:
    draw = random.Random(1)
    of = {"good": ["fine", "great,", "lovely", "sun"], "bad": ["poor", '"awful"', "slow,", "rain"]}
    return [
        (label, " ".join(draw.choices([*of[label], "the", "film", "was", "so"], k=8)))
        for label in draw.choices(list(of), k=rows)
    ]


def test_csv_of_texts_with_quotes_and_missing_values(tmp_path: Path) -> None:
    rows = [f'{n},"{text.replace(chr(34), chr(34) * 2)}",{label}' for n, (label, text) in enumerate(texts())]
    rows[3] = "3,,good"
    spec = written(tmp_path, "\r\n".join(["id,review,class", *rows]) + "\r\n", "--label", "class")
    assert spec.data.kind == "text"
    found = prepared(spec)
    assert found.data.scan.classes == ("bad", "good")
    assert {"fine", "awful"} <= set(found.data.vocabularies["word"].tokens())


@pytest.mark.parametrize("delimiter", [" ", "\t"])
def test_lines_of_labelled_texts(delimiter: str, tmp_path: Path) -> None:
    lines = [f"{label}{delimiter}{text} caf\xe9" for label, text in texts()]
    spec = written(tmp_path, "\n".join(lines).encode("latin-1"), name="own.all")
    assert (spec.task, spec.data.kind) == ("classification", "text")
    assert prepared(spec).data.scan.examples.count == 300
    run = embexp.run(
        embexp.compose(
            [
                "experiment=own",
                f"output.cache={tmp_path / 'cache'}",
                "output.plots=false",
                "output.baselines=false",
                "output.tensorboard=false",
            ],
            config_dir=tmp_path / "conf",
        ),
        tmp_path / "run",
    )
    assert run.summary["metrics"]["test"]["accuracy"] > 0.8


@pytest.mark.parametrize("columns", [3, 4])
def test_ratings_without_a_header(columns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(1 + n % 23, 1 + (n * 7) % 31, 0.5 * (1 + n % 8), 978_300_000 + n)[:columns] for n in range(700)]
    spec = written(tmp_path, "\n".join(" ".join(map(str, row)) for row in rows), name="ratings.txt")
    assert "8 numbers from 0.5 to 4, as ratings have" in capsys.readouterr().out
    assert (spec.task, spec.model.kind, set(spec.features)) == (
        "regression", "dot", {"user", "item", "user_bias", "item_bias"}
    )  # fmt: skip
    found = prepared(spec)
    assert found.data.scan.examples.count == 700
    spec = written_of(tmp_path / "ratings.txt", tmp_path, "--task", "recommendation")
    assert spec.task == "recommendation"


def test_adjacency_lists(tmp_path: Path) -> None:
    folder = tmp_path / "lists"
    folder.mkdir()
    for name, start in (("train", 0), ("test", 40)):
        lines = [" ".join(map(str, [user, *range(start, start + 5 + user % 4)])) for user in range(30)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    spec = written_of(folder, tmp_path)
    assert (spec.task, spec.data.kind) == ("recommendation", "adjacency")
    split = prepared(spec).data.scan.splits
    held = sum(5 + user % 4 for user in range(30))
    assert (len(split["test"]), len(split["train"]) + len(split["validation"])) == (held, held)
    assert written_of(folder / "train.txt", tmp_path).model_dump(mode="json")["data"]["path"].endswith("train.txt")


def test_ten_thousand_columns(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    columns = {f"x{number}": draw.random(200) for number in range(10_000)}
    lines = [",".join(["label", "shop", *columns])]
    lines += [f"{n % 2},s{n % 5}," + ",".join(f"{x:.4f}" for x in row) for n, row in enumerate(zip(*columns.values(), strict=True))]  # noqa: E501  # fmt: skip
    spec = written(tmp_path, "\n".join(lines), "--label", "label")
    assert len(spec.data.dense_columns) == 10_000


def codes(count: int, prefix: str = "c", values: int = 9, rows: int = 200) -> str:
    draw = np.random.default_rng(0)
    header = ",".join(["label", *(f"code{number}" for number in range(count))])
    drawn = (draw.integers(0, values, count) for _ in range(rows))
    lines = (f"{row % 2}," + ",".join(f"{prefix}{code}" for code in each) for row, each in enumerate(drawn))
    return "\n".join([header, *lines])


def test_many_columns_of_codes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first_experiment._MOST_TABLES == 1_000
    monkeypatch.setattr(first_experiment, "_MOST_TABLES", 110)
    file = tmp_path / "many.csv"
    file.write_text(codes(120))
    assert commands.main(["new", str(file), "--label", "label", "--out", str(tmp_path / "out")]) == 2
    error = capfd.readouterr().err
    assert "120 columns would each be a table, and more than 110 make a step too slow; name those" in error
    file.write_text(codes(120, prefix="", values=15, rows=400))  # whole numbers that recur would have one, too
    assert commands.main(["new", str(file), "--label", "label", "--out", str(tmp_path / "out")]) == 2
    assert "120 columns would each be a table" in capfd.readouterr().err
    spec = written(tmp_path, codes(120), "--label", "label", "--category", "code3,code7,code9")
    assert list(spec.tables) == ["code3", "code7", "code9"]
    spec = written(tmp_path, codes(105), "--label", "label")
    assert (len(spec.tables), spec.model.kind) == (105, "mlp")


MISTAKES = {
    "one row": ("a,label\n1,2\n", "own.csv", "one value everywhere; there is nothing to learn from it"),
    "no rows": ("a,label\n", "own.csv", "the file has a header line but no examples below it"),
    "nothing": ("", "own.csv", "the file is empty"),
    "one class": ("a,label\nx,1\ny,1\nx,1\n", "own.csv", "one value everywhere; there is nothing to learn from it"),
    "JSON": (json.dumps([{"a": 1, "label": 0}]) + "\n", "own.json", "JSON Lines are read"),
    "Excel's own": ("PK", "own.xlsx", "pandas.read_excel"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_one_sentence_with_the_remedy(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, name, says = MISTAKES[case]
    (tmp_path / name).write_text(content)
    assert commands.main(["new", str(tmp_path / name), "--label", "label", "--out", str(tmp_path / "conf")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said
    assert not (tmp_path / "conf").exists()


def test_parquet_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "own.parquet")
    assert commands.main(["new", str(tmp_path / "own.parquet"), "--label", "a"]) == 2
    assert "columns but no examples" in capsys.readouterr().err


def test_a_header_of_years(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("id,2019,2020\n1,1,2\n2,3,4\n3,5,6\n")
    assert [each.name for each in facts(sample(tmp_path / "own.csv"))] == ["id", "2019", "2020"]


def test_dates_become_tables_and_ages(tmp_path: Path) -> None:
    days = [f"{1 + n % 28:02d}.{1 + n % 12:02d}.{2020 + n % 3}" for n in range(ROWS)]
    rows = [
        f"2024-03-{1 + n % 28:02d} {n % 24:02d}:00,{'' if n == 5 else day},{label}"
        for n, (day, label) in enumerate(zip(days, LABELS, strict=True))
    ]
    spec = written(tmp_path, "\n".join(["when,joined,label", *rows]), "--label", "label")
    assert set(spec.features) == {"when_weekday", "when_hour", "joined_weekday", "joined_month"}
    assert spec.data.dense_columns == ("joined_age",)
    found = spec.model_dump(mode="json")["data"]
    assert (found["timestamp"], found["dates"]["joined"]) == (
        "when",
        {"format": "%d.%m.%Y", "reference": max(day[6:] + "-" + day[3:5] + "-" + day[:2] for day in days)},
    )
    assert prepared(spec).data.vocabularies["joined_month"].size == 13


def test_columns_without_a_name_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, numbered(table()), "--label", "label")
    assert "utf-8, 1 column without a name left out; looked at" in capsys.readouterr().out
    written(tmp_path, numbered(numbered(table())), "--label", "label")
    assert "2 columns without a name left out" in capsys.readouterr().out
    file = tmp_path / "twice.csv"
    file.write_text(numbered(table().replace("amount", "city")))
    assert commands.main(["new", str(file), "--label", "label", "--out", str(tmp_path / "conf")]) == 2
    assert "two columns have the name 'city', expected a unique name for each" in capsys.readouterr().err


def test_a_header_line_of_other_width_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wide.csv"
    words = ["new", str(file), "--label", "label", "--out", str(tmp_path / "conf")]
    file.write_text(numbered(table()).removeprefix(","))
    assert commands.main(words) == 2
    assert "its first line has 3 fields, those below it 4; R's write.table" in capsys.readouterr().err
    file.write_text("a,b\n" + "1,2,3,4\n" * 9)
    assert commands.main(words) == 2
    assert capsys.readouterr().err.rstrip().endswith("its first line has 2 fields, those below it 4")


def test_names_that_are_not_utf8_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsencode(tmp_path) + b"/d\xff.csv"
    Path(os.fsdecode(name)).write_text(table())
    for words in (
        ["new", os.fsdecode(name), "--label", "label", "--out", str(tmp_path / "conf")],
        ["predict", "run", "--data", os.fsdecode(name)],
    ):
        assert commands.main(words) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "its bytes are not UTF-8" in line
    spec = ["experiment=ratings", f"data.path={tmp_path}", "data.label=amount", "features.user.column=city"]
    with pytest.raises(ConfigError, match="its name is not valid UTF-8") as raised:
        embexp.compose([*spec, "features.item.column=label"])
    assert [fault.path for fault in raised.value.faults] == ["data.path"]
