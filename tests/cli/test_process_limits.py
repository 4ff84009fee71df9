"""What the shell gives a process: little memory, closed streams, full disks. Each failure is one sentence."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.system import printable

RUN = ["run", "data.examples=2000", "train.steps=2", "output.plots=false", "output.baselines=false"]


def _run(
    arguments: list[str], folder: Path, *, redirected: str = "", before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'"$0" -m embexp "$@" {redirected}', sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=before)


@pytest.mark.parametrize(("command", "megabytes"), [("plan", 100), ("plan", 260), ("run", 1200), ("run", 2000)])
def test_too_few_addresses_for_an_import_are_told_in_one_sentence(command: str, megabytes: int, tmp_path: Path) -> None:
    most = megabytes * 10**6
    done = _run([command, *RUN[1:]], tmp_path, before=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("embexp: out of memory: ")
    assert "(ulimit -v): raise the limit" in done.stderr


FULL = "embexp: the standard output can't be written: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "redirected", "status", "error"),
    [
        (["--help"], ">/dev/full", 1, FULL),
        (["plan"], ">/dev/full", 1, FULL),
        (["--help"], ">/dev/full 2>&1", 1, ""),
        (["--help"], ">&-", 0, ""),
        (["report", "nowhere"], "2>&-", 1, ""),
        (["plan"], "<&- >&- 2>&-", 0, ""),
        (["plan"], "2>/dev/full", 0, ""),
        (["plan", "seed=-1"], "2>/dev/full", 2, ""),
    ],
)
def test_streams_that_are_full_or_closed(
    arguments: list[str], redirected: str, status: int, error: str, tmp_path: Path
) -> None:
    done = _run(arguments, tmp_path, redirected=redirected)
    assert (done.returncode, done.stderr) == (status, error)
    if arguments[0] == "report":
        assert done.stdout == ""  # what is for the closed stream goes nowhere else


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--"], 2),
        (["--", "run"], 2),
        (["plan", "--", "seed=-1"], 2),
        (["report", "--"], 2),
        (["diff", "--", "a", "b"], 1),
        (["checkpoint", "--", "list"], 2),
        (["run", "--config-dir", "--"], 2),
    ],
)
def test_two_dashes(arguments: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(arguments) == status
    assert list(tmp_path.iterdir()) == []


LONG = "n" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", f"hydra.run.dir={LONG}"],
        ["run", f"experiment={LONG}"],
        ["run", f"+table@tables.{LONG}=embedding"],
        ["run", "experiment=movielens", f"data.path={LONG}"],
        ["run", f"hydra.run.dir=x/{LONG}"],
        ["plan", "--config-name", LONG],
        ["plan", "--config-dir", LONG],
        ["plan", "--config-path", LONG],
        ["run", "--spec", LONG],
        ["report", LONG],
        ["checkpoint", "list", LONG],
        ["vectors", "info", LONG],
        [LONG],
    ],
    ids=lambda arguments: " ".join(each.replace(LONG, "LONG") for each in arguments),
)
def test_names_of_five_thousand_characters(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(arguments) == 2
    said = capsys.readouterr().err
    assert "nnn" in said
    assert len(said) < 1500
    assert "hydra.sweep" not in said
    assert [each.name for each in tmp_path.rglob("*") if each.name != "x"] == []


def test_control_characters_are_replaced_by_pictures() -> None:
    assert printable.visible("a\x1b[31mb\r\x07\x7f\x9bc\u202ed\te\n") == "a␛[31mb␍␇␡\ufffdc\ufffdd\te\n"
    assert printable.visible("für 東京 👩\u200d💻") == "für 東京 👩\u200d💻"
    assert printable.shortened(f"a {'b' * 300} {'c' * 301}") == f"a {'b' * 300} {'c' * 60}…{'c' * 60} (301 characters)"
