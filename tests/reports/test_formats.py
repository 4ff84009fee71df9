"""CSV, JSON and LaTeX, read back."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import RunError
from embexp.records import inventory
from embexp.reports import page
from embexp.reports.record import Record, Status
from embexp.reports.report import _LATEX, Report, as_csv, as_json, as_latex, latex, report, tabulate
from embexp.specs.tasks import Direction
from embexp.system import printable
from tests.reports.made_runs import ledger, run, spec, sweep

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
UNESCAPED = {escaped: plain for plain, escaped in _LATEX.items()}


def record(number: int, text: str, value: float) -> Record:
    return Record(
        None, str(number), number, Status.COMPLETED, text, {"key": text, "seed": 0}, (f"key={text}",),
        {"validation rmse": value}, "rmse", Direction.LOWER,
    )  # fmt: skip


@given(st.lists(st.tuples(TEXTS, st.floats()), min_size=2, max_size=5))
def test_csv_reads_back(rows: list[tuple[str, float]]) -> None:
    found = tabulate([record(number, text, value) for number, (text, value) in enumerate(rows)])
    text = as_csv(found, by_number=True)
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [_unquoted(row["reason"]) for row in read] == [printable.one_line(text) for text, _ in rows]
    assert [repr(float(row["validation rmse"])) for row in read] == [repr(value) for _, value in rows]
    if "key" in found.keys:
        assert [_unquoted(row["key"]) for row in read] == [printable.one_line(text) for text, _ in rows]


def _unquoted(cell: str) -> str:
    return cell[1:] if re.match(r"'[=+\-@]", cell) else cell


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "␉=1"),
        ("a\nb", "a␊b"),
        ("-1", "-1"),
        ("+1e-3", "+1e-3"),
        ("-.5", "-.5"),
        ("-inf", "-inf"),
        ("1-1", "1-1"),
        ("\x1b]0;owned\x07", "␛]0;owned␇"),
        ("\r=1", "␍=1"),
    ],
)
def test_no_cell_is_computed_by_a_spreadsheet_or_obeyed_by_a_terminal(text: str, cell: str) -> None:
    found = tabulate([record(0, text, -1.5), record(1, "other", 0.5)])
    rows = list(csv.DictReader(io.StringIO(as_csv(found, by_number=True), newline="")))
    assert (rows[0]["reason"], rows[0]["key"], rows[0]["validation rmse"]) == (cell, cell, "-1.5")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", as_latex(found))


@given(st.lists(st.tuples(TEXTS, st.floats()), min_size=2, max_size=5))
def test_json_reads_back(rows: list[tuple[str, float]]) -> None:
    found = tabulate([record(number, text, value) for number, (text, value) in enumerate(rows)])
    content = json.loads(as_json(found, by_number=True), parse_constant=pytest.fail)
    assert [job["reason"] for job in content["jobs"]] == [text for text, _ in rows]
    for job, (_, value) in zip(content["jobs"], rows, strict=True):
        assert job["metrics"]["validation rmse"] == (value if abs(value) < float("inf") else None)


@given(TEXTS | st.text('\\{}$&#%_^~<>|"±–… a', max_size=20) | st.text("-,'`!?{–", max_size=8))
def test_latex_has_no_command_that_is_not_an_escape(text: str) -> None:
    escaped = latex(text)
    assert not any(joined in escaped for joined in ("--", ",,", "''", "``", "!`", "?`"))
    escaped = re.sub(r"(?<=[-,'`!?])\{\}", "", escaped)
    parts = re.split(
        "(" + "|".join(re.escape(each) for each in sorted(UNESCAPED, key=len, reverse=True)) + ")", escaped
    )
    assert not set("".join(parts[::2])) & set('\\{}$&#%_^~<>|"')
    assert "".join(UNESCAPED.get(each, each) for each in parts) == printable.visible(" ".join(text.split()))


def test_a_latex_table(tmp_path: Path) -> None:
    sweep(tmp_path, optimizers={"sgd_1": [1.0, 1.2, 1.1], "adam&co": [0.9, 1.0, 1.05]})
    lines = as_latex(report(tmp_path)).splitlines()
    assert lines[1] == r"\begin{tabular}{lrrrlrrr}"
    assert [line for line in lines if line.startswith("\\") and " & " not in line][1:] == [
        r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    body = [line for line in lines if line.endswith(r" \\")]
    assert body[0].startswith("optimizer & runs & validation rmse & test rmse & 95\\% interval & difference & p")
    assert body[1].startswith(r"adam\&co & 3 & \textbf{0.9833 $\pm$ 0.0764} & 1.0833 $\pm$ 0.0764 & ")
    assert body[2].startswith(r"sgd\_1 & 3 & 1.1000 $\pm$ 0.1000 & ")
    assert len({line.count(" & ") for line in body}) == 1


def test_a_latex_row_never_begins_an_argument(tmp_path: Path) -> None:
    for number in range(2):
        run(tmp_path / f"[{number}]", spec(train__steps=number), validation={"rmse": 1.0 + number})
    body = [line for line in as_latex(report(tmp_path)).splitlines() if line.endswith(r" \\")]
    assert body[1].startswith("{[0]} & ")


def test_latex_without_results(tmp_path: Path) -> None:
    ledger(tmp_path, [{"state": "failed", "reason": "no"}])
    with pytest.raises(RunError, match="no run has ended normally"):
        as_latex(report(tmp_path))


def test_the_files_of_a_sweep(tmp_path: Path) -> None:
    """The columns that sweep.csv and sweep.json have always had, in the order of the jobs."""
    folder = sweep(tmp_path / "s", optimizers={"sgd": [2.0, 1.0]})
    found = report(folder)
    rows = list(csv.reader(io.StringIO(as_csv(found, by_number=True))))
    names = ["test rmse", "test mae", "test loss", "validation rmse", "validation mae", "validation loss", "train loss"]
    assert rows[0] == [
        "number",
        "run",
        "seed",
        "status",
        *names,
        "seconds",
        "train_seconds",
        "directory",
        "reason",
        "record",
    ]
    assert rows[1] == [
        "0",
        "0",
        "0",
        "completed",
        "2.1",
        "1.0",
        "4.0",
        "2.0",
        "1.0",
        "4.0",
        "1.0",
        "1.500",
        "",
        str(folder / "0"),
        "",
        "",
    ]
    content = json.loads(as_json(found, by_number=True))
    assert [job["number"] for job in content["jobs"]] == [0, 1]
    assert content["jobs"][0]["overrides"] == {"optimizer": "sgd", "seed": "0"}
    assert content["best"] == "1"
    [mean] = content["means"]
    assert (mean["overrides"], mean["jobs"]) == ({}, 2)
    assert mean["metrics"]["test rmse"]["mean"] == 1.6
    assert [row[0] for row in csv.reader(io.StringIO(as_csv(found)))] == ["number", "1", "0"]


def test_a_changed_record_is_marked_everywhere(tmp_path: Path) -> None:
    """Job 0 is edited; job 1 with an inventory that fits, so that only the ledger shows it; job 2 only gets notes."""
    folder = sweep(tmp_path / "s", optimizers={"sgd": [2.0, 1.0, 3.0, 4.0]})
    with sqlite3.connect(folder / "sweep.sqlite") as connection:
        connection.execute("ALTER TABLE jobs ADD COLUMN inventory TEXT")
        for number in range(3):
            digest = inventory.seal(folder / str(number))
            connection.execute("UPDATE jobs SET inventory = ? WHERE number = ?", (digest, number))
    assert "warning" not in str(report(folder))
    for number in (0, 1):
        summary = folder / str(number) / "summary.json"
        summary.write_text(summary.read_text().replace("rmse", "RMSE"))
    inventory.seal(folder / "1")
    (folder / "2" / "notes.txt").write_text("mine")
    found = report(folder)
    rows = {row["job"]: row["record"] for row in found}
    assert (rows[0], rows[2], rows[3]) == ("changed: summary.json", "intact", None)
    assert rows[1].startswith("changed: inventory.json (its digest is ")
    assert rows[1] == next(row["record"] for row in report(folder / "1"))
    [read] = [row for row in csv.DictReader(io.StringIO(as_csv(found))) if row["number"] == "0"]
    assert read["record"] == "changed: summary.json"
    assert json.loads(as_json(found, by_number=True))["jobs"][2]["record"] == "intact"
    text = str(found)
    assert text.splitlines()[0].split()[-2:] == ["record", "seconds"]
    assert "warning: the record of job 0 was changed since it ended (changed: summary.json); embexp verify" in text
    reasons = {each["number"]: each["reason"] for each in page.of_runs(found.records)["runs"]}
    assert "its record was changed since it ended (changed: summary.json)" in reasons[0]
    assert reasons[2] == ""


def test_an_empty_report() -> None:
    found = Report((), (), (), (), ())
    assert len(as_csv(found).splitlines()) == 1
    assert json.loads(as_json(found))["jobs"] == []
