"""`embexp checkpoint grow` from the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embexp.cli import commands
from embexp.system.tensor_bundle import index as bundle_index
from tests.growth.conftest import Runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.txt").write_text("b\nx\na\n")
    return runs.make(["a", "b", "c"]).path


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["checkpoint", "grow", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: embexp checkpoint grow RUN_OR_CHECKPOINT --vocabulary NEW")
    assert commands.main(["checkpoint"]) == 0
    assert re.search(r"^    grow +Writes a checkpoint for a larger vocabulary", capsys.readouterr().out, re.MULTILINE)


def columns(text: str) -> dict[str, str]:
    lines = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return dict(zip(lines[0], next(line for line in lines if line[0] == "item"), strict=True))


def test_a_dry_run_shows_and_writes_nothing(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["checkpoint", "grow", str(run), "--vocabulary", "item=new.txt", "--dry-run"]
    before = sorted(tmp_path.rglob("*"))
    assert commands.main(arguments) == 0
    shown = capsys.readouterr().out
    assert columns(shown) == {
        "table": "item",
        "rows before": "4",
        "kept in place": "1",
        "moved": "2",
        "new": "1",
        "dropped": "1",
        "rows after": "4",
        "bytes before": "144 B",
        "bytes after": "144 B",
        "slots": "momenta, velocities",
    }
    assert shown.endswith("nothing was written (--dry-run)\n")
    assert sorted(tmp_path.rglob("*")) == before
    assert commands.main([*arguments, "--gone", "keep"]) == 0
    kept = columns(capsys.readouterr().out)
    assert (kept["dropped"], kept["rows after"], kept["moved"]) == ("0", "5", "3")


def test_it_writes(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["checkpoint", "grow", str(run), "--vocabulary", "item=new.txt", "--out", "grown"]
    assert commands.main(arguments) == 0
    assert "wrote the checkpoint grown: pretrained=checkpoint pretrained.path=grown\n" in capsys.readouterr().out
    assert np.load(tmp_path / "grown" / "provenance" / "item.npy").tolist() == [0, 2, -1, 1]
    assert bundle_index.marked(tmp_path / "grown" / "checkpoints") == [tmp_path / "grown/checkpoints/final/checkpoint"]
    assert commands.main(arguments) == 2
    assert "grown already exists: give --out another name" in capsys.readouterr().err


def test_it_needs_no_tensorflow(run: Path, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom embexp.cli.commands import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print([name for name in ('tensorflow', 'keras', 'hydra') if name in sys.modules])"
    )
    arguments = ["checkpoint", "grow", str(run), "--vocabulary", "item=new.txt", "--out", "grown"]
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.endswith("[]\n")


FAULTS = {
    "no such command": (
        ["grwo"],
        2,
        "embexp checkpoint: there is no command 'grwo'\n    did you mean grow?\n",
    ),
    "no arguments": (
        ["grow"],
        2,
        "embexp checkpoint grow: which run or checkpoint? Give its directory\n"
        "    to which vocabulary? Add --vocabulary FILE, TABLE=FILE or FOLDER\n"
        "    where to? Add --out DIR, or --dry-run to write nothing\n",
    ),
    "no such table": (
        ["grow", "RUN", "--vocabulary", "itme=new.txt", "--dry-run"],
        2,
        "itme=new.txt: there is no table 'itme'\n    the tables of RUN are user, item, user_bias, item_bias\n",
    ),
    "no run": (
        ["grow", "nowhere", "--vocabulary", "new.txt", "--dry-run"],
        1,
        "embexp: nowhere: there is no such directory; give the directory of a finished run, or of a grown checkpoint\n",
    ),
    "an unknown policy": (
        ["grow", "RUN", "--vocabulary", "new.txt", "--missing", "median", "--dry-run"],
        2,
        "--missing median: it must be",
    ),
    "an unknown option": (["grow", "RUN", "--vocabluary", "new.txt"], 2, "did you mean --vocabulary?"),
}


@pytest.mark.parametrize(("arguments", "status", "message"), FAULTS.values(), ids=FAULTS)
def test_faults(run: Path, arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["checkpoint", *(argument.replace("RUN", str(run)) for argument in arguments)]) == status
    assert message.replace("RUN", str(run)) in capsys.readouterr().err
