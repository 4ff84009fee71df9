"""`embexp report`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.cli.commands import DONE, FAILED, MISUSED
from tests.reports.made_runs import run, spec, sweep

Output = pytest.CaptureFixture[str]


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    return sweep(tmp_path / "swept", optimizers={"sgd": [1.0, 1.2, 1.1], "adam": [0.9, 1.0, 1.05]})


def test_the_table_and_the_page(swept: Path, capsys: Output) -> None:
    assert commands.main(["report", str(swept)]) == DONE
    out = capsys.readouterr().out
    assert "* best by validation rmse (lower is better)" in out
    assert out.splitlines()[-1] == f"written: {swept / 'report.html'}"
    page = (swept / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "adam" in page


def test_files(swept: Path, tmp_path: Path, capsys: Output) -> None:
    names = {name: str(tmp_path / "made" / f"r.{name}") for name in ("csv", "json", "latex", "html")}
    arguments = [word for name, path in names.items() for word in (f"--{name}", path)]
    assert commands.main(["report", str(swept), *arguments]) == DONE
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("written: ")] == [
        f"written: {path}" for path in names.values()
    ]
    with Path(names["csv"]).open(newline="") as file:
        assert [row["number"] for row in csv.DictReader(file)] == ["3", "0", "4", "5", "2", "1"]
    assert json.loads(Path(names["json"]).read_text())["best"] == "3"
    assert r"\toprule" in Path(names["latex"]).read_text()
    assert not (swept / "report.html").exists()


@pytest.mark.parametrize("form", ["csv", "json", "latex"])
def test_other_formats_are_all_that_is_printed(swept: Path, tmp_path: Path, capsys: Output, form: str) -> None:
    arguments = ["report", str(swept), "--format", form, "--sort", "job", "--csv", str(tmp_path / "a.csv")]
    assert commands.main(arguments) == DONE
    output = capsys.readouterr()
    assert output.err == f"written: {tmp_path / 'a.csv'}\n"
    if form == "json":
        assert [job["number"] for job in json.loads(output.out)["jobs"]] == list(range(6))
    elif form == "csv":
        assert len(list(csv.reader(io.StringIO(output.out)))) == 7
        assert output.out == (tmp_path / "a.csv").read_text()
    else:
        assert output.out.endswith("\\end{tabular}\n")
    assert not (swept / "report.html").exists()


@pytest.mark.parametrize("option", ["--csv", "--json", "--latex", "--html"])
def test_what_is_asked_for_is_alone_on_the_standard_output(
    option: str, swept: Path, tmp_path: Path, capsys: Output
) -> None:
    file = tmp_path / "file"
    for out in (str(file), "-"):
        assert commands.main(["report", str(swept), option, out]) == DONE
        printed = capsys.readouterr()
    assert printed.out == file.read_text()
    assert "* best by validation rmse (lower is better)" in printed.err
    other = ["--format", "csv"] if option != "--csv" else ["--json", "-"]
    assert commands.main(["report", str(swept), option, "-", *other]) == MISUSED
    assert "name each file once" in capsys.readouterr().err


def test_filters_and_a_baseline(swept: Path, capsys: Output) -> None:
    words = ["--filter", "seed<2", "--filter", "test rmse<1.25", "--baseline", "optimizer=sgd", "--sort", "seed:desc"]
    assert commands.main(["report", str(swept), "--no-html", *words]) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-6:-4] for line in lines[1:4]] == [["adam", "1"], ["sgd", "0"], ["adam", "0"]]


def test_a_single_run_gets_no_page_in_its_folder(tmp_path: Path, capsys: Output) -> None:
    run(tmp_path / "a", spec(), validation={"rmse": 1.0})
    assert commands.main(["report", str(tmp_path / "a")]) == DONE
    assert "validation rmse" in capsys.readouterr().out
    assert not (tmp_path / "a" / "report.html").exists()


def test_several_directories(swept: Path, tmp_path: Path, capsys: Output) -> None:
    run(tmp_path / "a", spec(), validation={"rmse": 0.5})
    assert commands.main(["report", str(swept), str(tmp_path / "a")]) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["*", "a"]
    assert lines[2].split()[0] == "swept/3"
    assert not list(tmp_path.rglob("report.html"))


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], MISUSED, "of which runs? Give a directory"),
        (["nowhere"], FAILED, "there is no directory nowhere"),
        (["."], FAILED, "there are no runs in ."),
        (["swept", "--filter", "optimizer"], MISUSED, "'optimizer' is no condition"),
        (["swept", "--filter", "optimiser=sgd"], MISUSED, "no run has a value of 'optimiser'"),
        (["swept", "--sort", "rmse"], MISUSED, "'rmse' may be 'validation rmse' or 'test rmse'"),
        (["swept", "--baseline", "seed=9"], MISUSED, "must name one setting"),
        (["swept", "--html", "a.html", "--no-html"], MISUSED, "give one of them"),
        (["swept", "--formt", "csv"], MISUSED, "did you mean --format?"),
        (["swept", "--csv", "swept"], MISUSED, "--csv swept: it is a folder"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str], status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    if "swept" in arguments:
        sweep(tmp_path / "swept", optimizers={"sgd": [1.0, 1.2], "adam": [0.9, 1.0]})
    monkeypatch.chdir(tmp_path)
    assert commands.main(["report", *arguments]) == status
    error = capsys.readouterr().err
    assert error.startswith("embexp: ")
    assert words in error
