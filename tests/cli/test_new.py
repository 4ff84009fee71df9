"""A file is looked at, and the experiment that is written works at once."""

from __future__ import annotations

import gzip
import json
import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import embexp
from embexp.cli import commands
from embexp.cli.first_experiment import dim_of
from embexp.data.files import samples
from embexp.data.files.samples import facts, sample
from embexp.runs.prepare import prepare
from embexp.system.parallel import quiet

ROWS = 400
Row = dict[str, object]


def row(number: int) -> Row:
    """Of every kind of column, with names that YAML and patterns would take for something else."""
    draw = random.Random(number)
    words = [
        "the",
        "a",
        "film",
        "plot",
        "was",
        "good",
        "bad",
        "boring",
        "great",
        "slow",
        "of",
        "in",
        "it",
        "love",
        "end",
    ]
    return {
        "clicked": int(draw.random() < 0.3),
        "row": number,
        "user-id": f"u{draw.randint(0, 40)}",
        "C1": f"v{draw.randint(0, 9)}",
        "C2": f"v{draw.randint(0, 9)}",
        "C3": f"v{draw.randint(0, 9)}",
        "no": draw.choice(["yes", "null", "${oc.env:HOME}"]),
        "price[eur]": "" if number % 7 == 0 else round(draw.gauss(10, 3), 2),
        "count": int(draw.lognormvariate(2, 2)),
        "tags": "|".join(draw.sample(["drama", "comedy", "action", "horror"], draw.randint(1, 3))),
        "words": " ".join(draw.choices(words, k=9)),
        "at": 1_500_000_000 + 1_000 * number,
        "same": "x",
    }


def write_csv(path: Path, *, delimiter: str = ",", keep: Callable[[str], bool] = lambda name: True) -> Path:
    names = [name for name in row(0) if keep(name)]
    lines = [delimiter.join(names)]
    lines += [delimiter.join(str(row(number)[name]) for name in names) for number in range(ROWS)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(path: Path) -> Path:
    rows = [row(number) for number in range(ROWS)]
    columns = {name: [each[name] for each in rows] for name in rows[0]}
    columns["price[eur]"] = [value or None for value in columns["price[eur]"]]
    columns["tags"] = [str(value).split("|") for value in columns["tags"]]
    pq.write_table(pa.table(columns), path, row_group_size=100)
    return path


def write_recbole(path: Path) -> Path:
    path.mkdir()
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float\ttags:token_seq"]
    lines += [f"{n % 20}\t{n % 31}\t{1 + n // 3 % 5}\t{1_500_000_000 + n}\ta b" for n in range(ROWS)]
    (path / "own.inter").write_text("\n".join(lines) + "\n")
    return path


def test_tokens_that_occur_once_are_left_out_whatever_the_file_calls_them(tmp_path: Path) -> None:
    rows = "".join(f"{n}\t{n % 20}\t{1 + n // 3 % 5}\n" for n in range(ROWS))
    (tmp_path / "own.inter").write_text("session_id:token\tuser_id:token\trating:float\n" + rows)
    assert new(str(tmp_path / "own.inter"), "--label", "rating", "--out", str(tmp_path / "conf")) == 0
    assert list(yaml.safe_load((tmp_path / "conf/experiment/own.yaml").read_text())["tables"]) == ["user_id"]


def write_ratings(path: Path, delimiter: str) -> Path:
    """Without a header line."""
    rows = [(n % 20, n % 31, 1 + n // 3 % 5, 1_500_000_000 + n) for n in range(ROWS)]
    path.write_text("".join(delimiter.join(map(str, each)) + "\n" for each in rows))
    return path


def write_latin(path: Path) -> Path:
    """Compressed, in Latin-1, with dates."""
    rows = [(f"ö{n % 20}", f"2024-05-{1 + n % 28:02d} 18:00", 1 + n // 3 % 5) for n in range(ROWS)]
    text = "".join(";".join(map(str, each)) + "\n" for each in [("größe", "wann", "stars"), *rows])
    path.write_bytes(gzip.compress(text.encode("latin-1")))
    return path


def new(*arguments: str) -> int:
    return commands.main(["new", *arguments])


FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "log.csv": (write_csv, "clicked"),
    "log.tsv": (lambda path: write_csv(path, delimiter="\t", keep=lambda name: name != "at"), "count"),
    "log.txt": (lambda path: write_csv(path, delimiter=";", keep=lambda name: name != "words"), "price[eur]"),
    "few.csv": (lambda path: write_csv(path, keep=lambda name: name in ("clicked", "C1")), "clicked"),
    "log.parquet": (write_parquet, "clicked"),
    "own": (write_recbole, "rating"),
    "ratings.dat": (lambda path: write_ratings(path, "::"), "rating"),
    "blanks.txt": (lambda path: write_ratings(path, "  "), "rating"),
    "städte.csv.gz": (lambda path: write_latin(path), "stars"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_works_without_a_warning(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write, label = FILES[name]
    data = write(tmp_path / name)
    if label == "price[eur]":  # of which some are missing
        data.write_text("\n".join(line for line in data.read_text().splitlines() if ";;" not in line) + "\n")
    stem = name.partition(".")[0]
    stem = {"städte": "st_dte"}.get(stem, stem)
    names = ["--names", "user,item,rating,time"] if name in ("ratings.dat", "blanks.txt") else []
    assert new("--data", str(data), "--label", label, "--out", str(tmp_path / "conf"), *names) == 0
    told = capsys.readouterr().out
    assert f"embexp run --config-dir {tmp_path / 'conf'} experiment={stem}" in told
    overrides = [f"experiment={stem}", f"output.cache={tmp_path / 'cache'}"]
    spec = embexp.compose(overrides, config_dir=tmp_path / "conf")
    assert not prepare(spec, progress=quiet).warnings


def test_it_runs(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "log.csv")
    assert new("--data", str(data), "--label", "clicked", "--out", str(tmp_path / "conf"), "--name", "first") == 0
    overrides = ["experiment=first", "train.steps=2", f"output.cache={tmp_path / 'cache'}", "output.plots=false"]
    spec = embexp.compose([*overrides, "output.tensorboard=false"], config_dir=tmp_path / "conf")
    result = embexp.run(spec, tmp_path / "run")
    assert result.summary["metrics"]["test"]["log_loss"] > 0
    assert not [each for each in result.summary["warnings"] if "numeric" in each or "column" in each]


def test_what_becomes_of_each_column(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "log.csv")
    assert new("--data", str(data), "--label", "clicked", "--out", str(tmp_path)) == 0
    written = (tmp_path / "experiment" / "log.yaml").read_text()
    spec = embexp.compose(["experiment=log"], config_dir=tmp_path)
    assert '"C{1..3}"' in written
    assert {name: each.column or name for name, each in spec.features.items()} == {
        "user_id": "user-id",
        "C1": "C1",
        "C2": "C2",
        "C3": "C3",
        "no": "no",
        "words": "words",
    }
    data_spec = spec.model_dump(mode="json")["data"]
    assert data_spec["dense_features"]["price[eur]"]["indicator"]
    assert data_spec["dense_features"]["count"]["transform"] == ["log1p", "standardize"]
    assert (data_spec["timestamp"], data_spec["split"]["kind"]) == ("at", "time")
    assert {line[4:].partition(":")[0] for line in written.partition("# Left out:\n")[2].splitlines()} == {
        "row",
        "same",
        "tags",  # the words of the texts are separated by blanks
    }
    assert spec.task == "binary"


def test_texts_and_classes_are_classification(tmp_path: Path) -> None:
    lines = ["body,topic", *(f"{row(number)['words']},{number % 4}" for number in range(ROWS))]
    (tmp_path / "news.csv").write_text("\n".join(lines) + "\n")
    assert new("--data", str(tmp_path / "news.csv"), "--label", "topic", "--out", str(tmp_path)) == 0
    assert embexp.compose(["experiment=news"], config_dir=tmp_path).task == "classification"


def test_short_texts_behind_labels_are_texts(tmp_path: Path) -> None:
    # Three words each, as in MPQA: too few for a column of a table to be a text.
    lines = [f"{number % 2} {('a good', 'not bad')[number % 2]} w{number}\n" for number in range(ROWS)]
    (tmp_path / "phrases.txt").write_text("".join(lines))
    assert new("--data", str(tmp_path / "phrases.txt"), "--out", str(tmp_path)) == 0
    settings = ["experiment=phrases", f"output.cache={tmp_path / 'cache'}"]
    found = prepare(embexp.compose(settings, config_dir=tmp_path), progress=quiet).data
    assert {"a", "good", "a good", "not bad"} <= set(found.vocabularies["word"].tokens())


def write_labels(path: Path, label: Callable[[int], object]) -> Path:
    lines = ["shop,label", *(f"s{number % 7},{label(number)}" for number in range(ROWS))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("label", "task", "positive"),
    [
        (lambda number: number % 2, "binary", None),
        (lambda number: "yes" if number % 3 else "no", "binary", "yes"),
        (lambda number: "<=50K" if number % 3 else ">50K", "binary", ">50K"),
        (lambda number: 1 + number % 2, "binary", "2"),
        (lambda number: ("cat", "dog", "ox")[number % 3], "classification", None),
        (lambda number: number % 4, "classification", None),
        (lambda number: 1 + number % 5, "regression", None),
        (lambda number: number * 0.37, "regression", None),
    ],
)
def test_the_label_decides_the_task(
    label: Callable[[int], object], task: str, positive: str | None, tmp_path: Path
) -> None:
    data = write_labels(tmp_path / "shops.csv", label)
    assert new("--data", str(data), "--label", "label", "--out", str(tmp_path)) == 0
    spec = embexp.compose(["experiment=shops", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path)
    written = spec.model_dump(mode="json")
    assert (written["task"], written["data"].get("positive")) == (task, positive)
    found = prepare(spec, progress=quiet).data.scan.examples.labels
    assert found is not None
    values = [str(label(number)) for number in range(ROWS)]
    if task == "binary":
        expected = [float(value == (positive or "1")) for value in values]
    elif task == "classification":
        expected = [float(sorted(set(values)).index(value)) for value in values]
    else:
        expected = list(map(float, values))
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


def test_users_and_items_without_a_label_are_recommendation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["user,item,time", *(f"u{n % 20},i{(n * 7) % 31},{1_500_000_000 + 60 * n}" for n in range(ROWS))]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    assert new("--data", str(tmp_path / "log.csv"), "--out", str(tmp_path)) == 0
    assert "task recommendation: each row is an interaction of user with item" in capsys.readouterr().out
    spec = embexp.compose(["experiment=log", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path)
    written = spec.model_dump(mode="json")
    assert (written["task"], written["data"]["split"]["kind"]) == ("recommendation", "leave_one_out")
    assert prepare(spec, progress=quiet).data.candidates is not None


def test_without_a_time_each_user_has_items_in_the_test_split(tmp_path: Path) -> None:
    lines = ["user,item", *(f"u{n % 20},i{(n * 7) % 31}" for n in range(ROWS))]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    assert new("--data", str(tmp_path / "log.csv"), "--out", str(tmp_path)) == 0
    spec = embexp.compose(["experiment=log", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path)
    scan = prepare(spec, progress=quiet).data.scan
    users = scan.examples.column("user", scan.splits["test"])
    assert sorted(set(users.tolist())) == list(range(users.min(), users.min() + 20))


def write_hours(path: Path, name: str, hours: list[str]) -> Path:
    lines = [f"{name},site,click", *(f"{hour},s{n % 9},{n % 2}" for n, hour in enumerate(hours))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_hours_of_a_click_log_are_dates(tmp_path: Path) -> None:
    hours = [f"1410{day}{hour:02d}" for day in (30, 31) for hour in range(24) for _ in range(5)]
    assert (
        new("--data", str(write_hours(tmp_path / "log.csv", "hour", hours)), "--label", "click", "--out", str(tmp_path))
        == 0
    )
    spec = embexp.compose(["experiment=log", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path)
    assert list(spec.features) == ["site", "hour_weekday", "hour_hour"]
    sizes = {name: vocabulary.size for name, vocabulary in prepare(spec, progress=quiet).data.vocabularies.items()}
    assert (sizes["hour_weekday"], sizes["hour_hour"]) == (3, 25)  # Thursday, Friday, OOV


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("place", {}),
        ("hour", {"14103001": "14103024"}),
        ("hour", {"14103001": "14133001"}),
        ("hour", {"14103001": "9"}),
    ],
)
def test_other_numbers_of_eight_digits_are_no_dates(name: str, change: dict[str, str], tmp_path: Path) -> None:
    hours = [change.get(hour, hour) for day in (30, 31) for hour in (f"1410{day}{each:02d}" for each in range(24))]
    found = facts(sample(write_hours(tmp_path / "log.csv", name, hours)))
    assert found[0].dates is None


@pytest.mark.parametrize(("text", "form"), [("20101112", "%Y%m%d"), ("14101101", "%y%m%d%H"), ("19650312", "%Y%m%d")])
def test_eight_digits_are_a_day_if_its_century_is_ours(text: str, form: str) -> None:
    found = samples.dates_of([text], hours=True)
    assert found is not None
    assert found.format == form


def graph(folder: Path, separator: str = "\t", names: str = "stop") -> Path:
    """A ring of 30 entities, in three files."""
    triples = [f"{names}{n}{separator}{separator.join(('next', names))}{(n + 1) % 30}\n" for n in range(30)]
    folder.mkdir()
    for split, part in (("train", triples[:26]), ("valid", triples[26:28]), ("test", triples[28:])):
        (folder / f"{split}.txt").write_text("".join(part))
    return folder


def test_triples_are_a_knowledge_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, arguments = graph(tmp_path / "a ring: 1"), ("--out", str(tmp_path), "--name", "ring")
    assert new(str(folder), *arguments) == 0
    assert "30 triples of 30 entities and 1 relation\n" in (told := capsys.readouterr().out)
    assert "experiment=ring" in told
    spec = embexp.compose(["experiment=ring"], config_dir=tmp_path)
    assert (spec.name, spec.task, spec.data.path) == ("ring", "ranking", str(folder))
    assert spec.model_dump(mode="json")["data"]["negatives"] is None
    monkeypatch.setattr("embexp.fields.graphs.first_experiment._MOST_SCORED", 29)
    assert new(str(folder), *arguments) == 2
    assert new(str(folder), *arguments, "--force") == 0
    assert embexp.compose(["experiment=ring"], config_dir=tmp_path).model_dump(mode="json")["data"]["negatives"] == 512


def test_a_file_of_triples_is_a_graph_unless_its_first_line_is_a_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Many relations, between few entities; and pairs of teams with what became of their match."""
    teams = [f"t{number}" for number in range(8)]
    pairs = [(one, other) for one in teams for other in teams if one != other]
    dense, matches, out = tmp_path / "dense.tsv", tmp_path / "matches.csv", ("--out", str(tmp_path))
    dense.write_text("".join(f"r{n % 12}\t{one}\t{other}\n" for n, (one, other) in enumerate(pairs)))
    assert new(str(dense), *out) == 0
    assert "56 triples of 8 entities and 12 relations\n" in capsys.readouterr().out
    lines = "".join(f"{one},{other},{'HDA'[n % 3]}\n" for n, (one, other) in enumerate(pairs))
    matches.write_text(f"home,away,result\n{lines}")
    assert new(str(matches), *out) == 2
    assert "--label COLUMN is missing" in capsys.readouterr().err
    matches.write_text(lines)
    assert new(str(matches), *out) == 0
    assert "56 triples of 8 entities and 3 relations\n" in capsys.readouterr().out


@pytest.mark.parametrize("other", ["no tabs", "numbers", "nothing"])
def test_what_may_be_something_else_is_no_graph(other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = graph(tmp_path / "ring", **({"separator": ","} if other == "no tabs" else {"names": "1"}))
    for file in folder.iterdir():
        if other != "no tabs":
            file.write_text(file.read_text().replace("next", "5") if other == "numbers" else "")
    assert new(str(folder), "--out", str(tmp_path)) == 2
    assert ("the file is empty" if other == "nothing" else "--label") in capsys.readouterr().err


def test_a_line_that_is_no_triple_is_told_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = graph(tmp_path / "ring")
    with (folder / "test.txt").open("a") as file:
        file.write("stop1\tnext\n")
    assert new(str(folder), "--out", str(tmp_path)) == 2
    assert "test.txt, line 3: found 2 fields" in capsys.readouterr().err
    assert not (tmp_path / "experiment").exists()


def test_whole_numbers_that_recur_are_also_codes_and_numbers_get_buckets(tmp_path: Path) -> None:
    draw = random.Random(0)
    lines = ["agent,price,kept,label"]
    lines += [f"{draw.randrange(40)},{draw.gauss(10, 3):.3f},{draw.randrange(30)},{n % 2}" for n in range(2_000)]
    (tmp_path / "codes.csv").write_text("\n".join(lines) + "\n")
    arguments = ["--data", str(tmp_path / "codes.csv"), "--label", "label", "--out", str(tmp_path), "--number", "kept"]
    assert new(*arguments) == 0
    spec = embexp.compose(["experiment=codes", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path)
    assert list(spec.model_dump(mode="json")["data"]["dense_features"]) == ["agent", "price", "kept"]
    assert {name: (each.column or name, each.buckets.quantiles) for name, each in spec.features.items()} == {
        "agent": ("agent", None),
        "price_buckets": ("price", 32),
    }
    sizes = {name: vocabulary.size for name, vocabulary in prepare(spec, progress=quiet).data.vocabularies.items()}
    assert sizes["price_buckets"] == pytest.approx(32, abs=2)
    assert new(*arguments[:-2], "--category", "agent", "--ignore", "price", "--force") == 0
    spec = embexp.compose(["experiment=codes"], config_dir=tmp_path)
    assert list(spec.model_dump(mode="json")["data"]["dense_features"]) == ["kept"]
    assert set(spec.features) == {"agent", "kept"}


def test_codes_with_few_rows_each_are_known_by_their_gaps(tmp_path: Path) -> None:
    draw = random.Random(0)
    codes = draw.sample(range(100_000), 500)
    lines = ["resource,wage,label"]
    lines += [f"{draw.choice(codes)},{round(draw.gauss(3_000, 200))},{n % 2}" for n in range(2_000)]
    (tmp_path / "access.csv").write_text("\n".join(lines) + "\n")
    assert new("--data", str(tmp_path / "access.csv"), "--label", "label", "--out", str(tmp_path)) == 0
    spec = embexp.compose(["experiment=access"], config_dir=tmp_path)
    assert set(spec.features) == {"resource", "resource_buckets", "wage_buckets"}
    assert set(spec.model_dump(mode="json")["data"]["dense_features"]) == {"resource", "wage"}


def test_rows_without_a_label_are_left_out_and_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The most frequent values are numbers, but not all: these are classes. A code that recurs is missing, too."""
    draw = random.Random(0)
    hours = ["7", "8", "6", "<5", "10+", ""]
    lines = ["agent,hours"]
    lines += [f"{draw.choice(['', *range(15)])},{draw.choices(hours, [9, 8, 7, 3, 2, 2])[0]}" for _ in range(1_200)]
    missing = sum(line.endswith(",") for line in lines)
    (tmp_path / "sleep.csv").write_text("\n".join(lines) + "\n")
    assert new("--data", str(tmp_path / "sleep.csv"), "--label", "hours", "--out", str(tmp_path)) == 0
    assert "those rows are left out" in capfd.readouterr().out
    settings = ["experiment=sleep", "train.epochs=1", f"output.cache={tmp_path / 'cache'}", "output.baselines=false"]
    spec = embexp.compose(settings, config_dir=tmp_path)
    assert spec.task == "classification"
    assert set(spec.features) == {"agent"}
    prepared = prepare(spec, progress=quiet)
    assert sum(map(len, prepared.data.scan.splits.values())) == 1_200 - missing
    note = f"{missing} of 1,200 rows have no label and are skipped (data.missing_label=skip)"
    assert note in prepared.notes


def test_a_time_that_some_rows_lack_does_not_split(tmp_path: Path) -> None:
    draw = random.Random(0)
    days = [f"2024-0{month}-{day:02}" for month in range(1, 7) for day in range(1, 29)]
    lines = ["ended,shop,label", *(f"{draw.choice(['', *days])},s{draw.randrange(9)},{n % 2}" for n in range(900))]
    for name, split in (("some", "random"), ("all", "time")):
        kept = [line for line in lines if name == "some" or not line.startswith(",")]
        (tmp_path / f"{name}.csv").write_text("\n".join(kept) + "\n")
        assert new("--data", str(tmp_path / f"{name}.csv"), "--label", "label", "--out", str(tmp_path)) == 0
        spec = embexp.compose([f"experiment={name}", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path)
        assert spec.model_dump(mode="json")["data"]["split"]["kind"] == split
        prepare(spec, progress=quiet)


def test_numbers_alone_get_buckets_and_are_learned(tmp_path: Path) -> None:
    """The classes are bands of one number, which is linear in neither number."""
    draw = random.Random(0)
    rows = [(draw.uniform(0, 9), draw.uniform(-1, 1)) for _ in range(240)]
    lines = ["length (cm),uric_acid,kind", *(f"{x:.2f},{y:.3f},{'ab'[int(x / 3) % 2]}" for x, y in rows)]
    (tmp_path / "leaves.csv").write_text("\n".join(lines) + "\n")
    arguments = ["--data", str(tmp_path / "leaves.csv"), "--label", "kind", "--out", str(tmp_path)]
    assert new(*arguments) == 0
    quiet_words = ("train.steps=200", "output.plots=false", "output.tensorboard=false", "checkpoint.save=never")
    overrides = ["experiment=leaves", f"output.cache={tmp_path / 'cache'}", *quiet_words]
    spec = embexp.compose(overrides, config_dir=tmp_path)
    assert list(spec.model_dump(mode="json")["data"]["dense_features"]) == ["length (cm)", "uric_acid"]
    assert {each.column: each.buckets.quantiles for each in spec.features.values()} == {
        "length (cm)": 4,
        "uric_acid": 4,
    }
    assert spec.train.early_stopping.min_delta == 0.01
    summary = embexp.run(spec, tmp_path / "run").summary
    assert summary["metrics"]["test"]["auc"] > 0.9
    wide = [",".join([*(f"x{n}" for n in range(300)), "kind"])]
    wide += [
        ",".join([*(f"{draw.random():.{3 + (n > 280)}f}" for n in range(300)), "ab"[row % 2]]) for row in range(30)
    ]
    (tmp_path / "wide.csv").write_text("\n".join(wide) + "\n")
    assert new("--data", str(tmp_path / "wide.csv"), "--label", "kind", "--out", str(tmp_path)) == 0
    assert len(embexp.compose(["experiment=wide"], config_dir=tmp_path).features) == 200


def test_names_that_mostly_occur_once_share_a_row(tmp_path: Path) -> None:
    """Of 300 cars with 200 names, 100 names occur twice; without these, no value is rare."""
    lines = ["name,weight,mpg", *(f"car {n % 200},{2_000 + 7 * n % 900},{(13 * n) % 41}.5" for n in range(300))]
    (tmp_path / "cars.csv").write_text("\n".join(lines) + "\n")
    arguments = ("--data", str(tmp_path / "cars.csv"), "--label", "mpg", "--out", str(tmp_path))
    assert new(*arguments) == 0
    spec = embexp.compose(["experiment=cars", f"output.cache={tmp_path / 'cache'}"], config_dir=tmp_path)
    assert spec.train.early_stopping.min_delta == 0
    assert prepare(spec, progress=quiet).data.vocabularies["name"].size <= 101
    assert new(*arguments, "--ignore", "name", "--force") == 0
    assert "min_frequency" not in (tmp_path / "experiment" / "cars.yaml").read_text()


def test_columns_that_restate_the_label_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(0)
    lines = ["alive,deck,port,code,survived"]
    for _ in range(200):
        deck = draw.randrange(6)
        lines.append(
            f"{'yes' if deck < 2 else 'no'},{'ABCDEF'[deck]},{draw.choice('XY')},c{draw.randrange(150)},{deck < 2:d}"
        )
    (tmp_path / "ship.csv").write_text("\n".join(lines) + "\n")
    arguments = ("--data", str(tmp_path / "ship.csv"), "--label", "survived", "--out", str(tmp_path))
    assert new(*arguments) == 0
    assert "warning: alive, deck may leak the label" in (told := capsys.readouterr().err)
    assert "--ignore alive,deck" in told
    assert new(*arguments, "--ignore", "alive,deck", "--force") == 0
    assert "restate" not in capsys.readouterr().err


def test_what_is_filled_or_dated_by_the_label_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A refund, the date of a change, two halves of a code; the order of a copy, of a label that is a number."""
    draw = random.Random(0)
    lines = ["booked,changed,refund,one,other,paid,price,cancelled"]
    for number in range(400):
        cancelled, day, half, price = draw.random() < 0.3, number // 20, draw.randrange(4), draw.gauss(90, 9)
        changed, refund = 1 + day + cancelled * (1 + number % 9), f"{price:.1f}" if cancelled else "NA"
        lines.append(
            f"2024-01-{1 + day:02d},2024-01-{changed:02d},{refund},"
            f"a{half},b{half if cancelled else (half + 1) % 4},{price * 1.19:.2f},{price:.2f},{cancelled:d}"
        )
    (tmp_path / "trips.csv").write_text("\n".join(lines) + "\n")
    arguments = ("--data", str(tmp_path / "trips.csv"), "--out", str(tmp_path), "--label")
    assert new(*arguments, "cancelled") == 0
    said = capsys.readouterr().err
    for line in (
        "refund may leak the label: it is filled exactly if cancelled is 1",
        "changed and booked may leak the label: the days between them predict cancelled (AUC 1.0000)",
        "one and other may leak the label: each pair of values occurs with only one value of cancelled",
    ):
        assert f"warning: {line}\n" in said
    assert said.endswith("    --ignore refund,changed,one\n")
    assert new(*arguments, "cancelled", "--ignore", "refund,changed,one", "--force") == 0
    assert "restate" not in capsys.readouterr().err
    assert new(*arguments, "price", "--force") == 0
    assert "warning: paid may leak the label: it rises or falls with price" in capsys.readouterr().err


def test_no_file_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_csv(tmp_path / "few.csv", keep=lambda name: name in ("clicked", "C1"))
    arguments = ("--data", str(data), "--label", "clicked", "--out", str(tmp_path))
    file = tmp_path / "experiment" / "few.yaml"
    file.parent.mkdir()
    file.write_text("mine")
    assert new(*arguments) == 2
    assert "exists" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert new(*arguments, "--force") == 0
    assert yaml.safe_load(file.read_text())["name"] == "few"


MISTAKES = {
    "no label": ([], "it may be --label clicked"),
    "another label": (["--label", "clikced", "--out", "OUT"], "did you mean clicked?"),
    "a label of texts": (
        ["--label", "words", "--out", "OUT"],
        "it holds texts, and a label is a number or the name of a class",
    ),
    "a label of lists": (["--label", "tags", "--out", "OUT"], "it holds lists"),
    "a task that is none": (["--label", "clicked", "--out", "OUT", "--task", "click"], "it must be one of binary"),
    "a task of another label": (
        ["--label", "C1", "--out", "OUT", "--task", "regression"],
        "the label C1 holds text that recurs, which is for task classification",
    ),
    "no user and item": (["--out", "OUT", "--task", "recommendation"], "Give --group USER --category ITEM"),
    "a category that is no column": (
        ["--label", "clicked", "--out", "OUT", "--category", "user-di"],
        "did you mean user-id?",
    ),
    "a number of text": (["--label", "clicked", "--out", "OUT", "--number", "C1"], "it holds text that recurs"),
    "a contradiction": (
        ["--label", "clicked", "--out", "OUT", "--number", "count", "--ignore", "count"],
        "--number and --ignore both name count",
    ),
    "a constant label": (["--label", "same", "--out", "OUT"], "one value everywhere"),
    "no folder": (["--label", "clicked"], "--out FOLDER is missing"),
    "a name that is none": (["--label", "clicked", "--out", "OUT", "--name", "a b"], "a name has letters"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_and_nothing_written(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, says = MISTAKES[case]
    data = write_csv(tmp_path / "log.csv")
    assert new("--data", str(data), *(each.replace("OUT", str(tmp_path / "out")) for each in arguments)) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["", "a,b\n", "a,a\n1,2\n"])
def test_a_file_that_can_t_be_looked_at(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.csv").write_text(content)
    assert new("--data", str(tmp_path / "odd.csv")) in (1, 2)
    assert "odd.csv" in capsys.readouterr().err


def test_a_large_file_is_sampled_over_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embexp.data.files.samples.HEAD_ROWS", 50)
    monkeypatch.setattr("embexp.data.files.samples.HEAD_BYTES", 2_000)
    monkeypatch.setattr("embexp.data.files.samples.BLOCK_BYTES", 500)
    lines = ["number,half", *(f"{number},{int(number >= 5_000)}" for number in range(10_000))]
    (tmp_path / "large.csv").write_text("\n".join(lines) + "\n")
    found = sample(tmp_path / "large.csv")
    assert not found.whole
    assert found.count < 1_000
    assert found.rows == pytest.approx(10_000, rel=0.5)
    assert {int(str(value)) // 2_000 for value in found.columns["number"]} == {0, 1, 2, 3, 4}
    assert [each.distinct for each in facts(found)][1] == 2


@pytest.mark.parametrize(("values", "dim"), [(1, 4), (10, 8), (100, 16), (10_000, 32), (1_000_000, 64), (10**9, 64)])
def test_the_dim_is_four_times_the_fourth_root(values: int, dim: int) -> None:
    assert dim_of(values) == dim


def test_a_list_in_json_has_one_sentence_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "data.json"
    file.write_text('[{"a": 1}, {"a": "x"}]\n')
    assert commands.main(["new", "--data", str(file), "--label", "a", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"embexp: embexp new: {file}: of JSON, JSON Lines are read, which have an object on each line"
    _, option, script, *_ = shlex.split(said[1].partition(": ")[2])
    lines = subprocess.run([sys.executable, option, script], capture_output=True, text=True, check=True).stdout
    assert lines.splitlines() == ['{"a": 1}', '{"a": "x"}']


def test_json_lines_get_an_experiment_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested lists and objects, columns that are sometimes missing, and what is not read."""
    rows = [
        {
            "label": n % 2,
            "user": {"id": n % 7, "name": f"n{n % 3}"},
            "tags": ["a", "b", "c"][n % 3 :],
            "extra": [{"deep": 1}],
            **({"price": n / 3} if n % 4 else {}),
            **({"mixed": n % 5} if n % 2 else {"mixed": "x"}),
        }
        for n in range(200)
    ]
    file = tmp_path / "d.json.gz"
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    assert commands.main(["new", str(file), "--label", "label", "--out", str(tmp_path)]) == 0
    written = yaml.safe_load((tmp_path / "experiment" / "d.yaml").read_text())
    assert written["data"]["path"] == str(file)
    columns = {name: (each or {}).get("column", name) for name, each in written["features"].items()}
    assert {"user.id", "user.name", "tags", "mixed"} <= set(columns.values())
    assert "extra" not in columns.values()
    assert commands.main(["plan", "--scan", "--config-dir", str(tmp_path), "experiment=d"]) == 0
    assert "extra" not in capsys.readouterr().err


def odd_file(folder: Path, case: str) -> Path:
    """Files that `new` wrote experiments for which `plan` refused, or which could not be evaluated."""
    rows = [(f"c{n % 7}", n / 3, n % 2) for n in range(120)]
    if case == "nameless.parquet":
        columns = [pa.array(each) for each in ([n % 5 for n in range(120)], *map(list, zip(*rows, strict=True)))]
        pq.write_table(pa.Table.from_arrays(columns, names=["", "cat", "x", "y"]), folder / case)
    elif case == "infinite.parquet":
        numbers = [float("inf") if n % 9 == 0 else x for n, (_, x, _) in enumerate(rows)]
        pq.write_table(
            pa.table({"cat": [row[0] for row in rows], "x": numbers, "y": [row[2] for row in rows]}), folder / case
        )
    elif case == "number_in_header.csv":
        lines = [f"{cat},k{n % 3},{'no' if y else 'yes'}" for n, (cat, _, y) in enumerate(rows)]
        (folder / case).write_text("\n".join(["cat,2019,y", *lines]))
    else:
        huge = {"huge.csv": "1e300", "huge_label.csv": "1e400"}.get(case, "0")
        lines = [f"{cat},{huge if n % 9 == 0 else x},{y}" for n, (cat, x, y) in enumerate(rows)]
        (folder / case).write_text("\n".join(["cat,x,y", *lines[: 4 if case == "few.csv" else None]]))
    return folder / case


@pytest.mark.parametrize(
    ("case", "label", "status", "said"),
    [
        ("nameless.parquet", "y", 0, "1 column without a name left out"),
        ("infinite.parquet", "y", 2, "row 1: found inf in column 'x', expected a finite number that fits into float32"),
        ("number_in_header.csv", "y", 0, "2019"),
        ("huge.csv", "y", 2, "line 2: found '1e300' in column 'x', expected a finite number that fits into float32"),
        (
            "huge_label.csv",
            "x",
            2,
            "line 2: found '1e400' in column 'x', expected a finite number that fits into float32",
        ),
        ("few.csv", "y", 0, "no example is left for validation and test: 4 examples are too few"),
        ("inf.csv", "y", 0, "experiment=data_inf"),
    ],
)
def test_what_is_written_for_an_odd_file_can_be_planned(
    case: str,
    label: str,
    status: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = odd_file(tmp_path, case)
    assert commands.main(["new", str(file), "--label", label, "--out", str(tmp_path / "mine")]) == status
    streams = capsys.readouterr()
    assert said in " ".join((streams.out + streams.err).split())
    if not status:
        [written] = (tmp_path / "mine" / "experiment").iterdir()
        plan = ["plan", "--scan", "--config-dir", str(tmp_path / "mine"), f"experiment={written.stem}"]
        assert commands.main(plan) == 0


def test_a_run_without_a_test_split_names_the_split_that_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = odd_file(tmp_path, "few.csv")
    assert commands.main(["new", str(file), "--label", "y", "--out", str(tmp_path)]) == 0
    run = ["run", "--config-dir", str(tmp_path), "experiment=few", "train.steps=2", "output.plots=false"]
    assert commands.main([*run, f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    capsys.readouterr()
    assert commands.main(["evaluate", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert said == "embexp: the test split of this run's data is empty; available: --split train (4 examples)\n"
    assert commands.main(["evaluate", str(tmp_path / "run"), "--split", "train"]) == 0
