"""Names, tokens and records of others reach neither the terminal nor a page with what these would obey."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from embexp.cli import commands
from embexp.cli.stages import Stages
from embexp.records import inventory
from embexp.runs import run as single
from embexp.system import printable, waiting
from embexp.system.terminal import SafeConsole
from tests.runs.test_vocabularies import spec_of, write

EVIL = "a\x1b[31mb\rc\u202ed<script>alert(1)</script>[/x]"
IN_TOKENS = EVIL.replace("\r", "")
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("log") / "log.csv", 0)
    path.write_text(path.read_text().replace("u1,", f"{IN_TOKENS},").replace("u2,", f"{IN_TOKENS}2,"), "utf-8")
    return path


@pytest.fixture(scope="module")
def made(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose name, folder and tokens are hostile."""
    directory = tmp_path_factory.mktemp("made") / EVIL.replace("/", "|")
    directory.mkdir()
    output = {"plots": False, "tensorboard": False, "cache": str(log.parent / "cache")}
    single.run(spec_of(log, name=EVIL, output=output), directory)
    return directory


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A folder with that run twice: once as it was written, once with a forged summary and without an inventory."""
    shutil.copytree(made, tmp_path / "runs" / made.name)
    forged = tmp_path / "runs" / "forged"
    shutil.copytree(made, forged)
    summary = json.loads((forged / "summary.json").read_text())
    summary |= {"name": EVIL, "status": EVIL, "error": EVIL, "warnings": [EVIL]}
    (forged / "summary.json").write_text(json.dumps(summary))
    inventory.unseal(forged)
    return tmp_path / "runs"


Embexp = Callable[..., str]


@pytest.fixture
def embexp(capsys: pytest.CaptureFixture[str]) -> Embexp:
    """Runs a command, and returns what it printed."""

    def run(*words: object) -> str:
        status = commands.main(list(map(str, words)))
        found = capsys.readouterr()
        assert status in (0, 1), found.err
        return found.out + found.err

    return run


COMMANDS = {
    "report": ["report", "RUNS", "--no-html"],
    "report as CSV": ["report", "RUNS", "--no-html", "--format", "csv"],
    "report of the forged one": ["report", "RUNS/forged", "--no-html"],
    "report of none": ["report", f"RUNS/{IN_TOKENS}"],
    "verify": ["verify", "RUN", "--allow-code", EVIL],
    "neighbors": ["vectors", "neighbors", "RUN", IN_TOKENS, "--table", "user"],
    "neighbors of none": ["vectors", "neighbors", "RUN", f"{EVIL}?", "--table", "user"],
    "evaluate": ["evaluate", "RUN"],
    "evaluate the forged one": ["evaluate", "RUNS/forged"],
    "resume": ["resume", "RUN"],
    "resume the forged one": ["resume", "RUNS/forged"],
    "list": ["checkpoint", "list", "RUN"],
    "diff of checkpoints": ["checkpoint", "diff", "RUN", "RUNS/forged"],
    "graph": ["checkpoint", "graph", "RUN", "-o", "OUT/graph.svg"],
    "diff": ["diff", "RUN", "RUNS/forged"],
    "export": ["export", "RUN", "OUT/npy", "--as", "npy"],
    "convert": ["vectors", "convert", "RUN", "OUT/user.npy", "--table", "user"],
    "recommend": ["recommend", "RUN", "--user", EVIL],
    "an unknown command": [EVIL],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_commands_print_nothing_that_a_terminal_obeys(
    case: str, runs: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"RUNS": str(runs), "RUN": str(runs / made.name), "OUT": str(tmp_path)}
    commands.main([re.sub("RUNS?|OUT", lambda found: places[found[0]], word, count=1) for word in COMMANDS[case]])
    found = capsys.readouterr()
    assert found.out + found.err
    assert OBEYED.findall(found.out + found.err) == []


def test_plans_of_hostile_settings(embexp: Embexp, capsys: pytest.CaptureFixture[str]) -> None:
    name = json.dumps(EVIL)
    for words in (["-m", f"name={name},b"], [f"name={name}"], ["data=csv", f"data.path={name}"]):
        commands.main(["plan", *words])
        found = capsys.readouterr()
        assert OBEYED.findall(found.out + found.err) == []
    assert "[/x]" in embexp("plan", "-m", "name='a[/x]',b")


def test_the_page_and_the_pictures(embexp: Embexp, runs: Path, made: Path, tmp_path: Path) -> None:
    embexp("report", runs, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "script>alert" not in page
    start = page.index("<body")
    data = page[page.index('type="application/json"') : page.index("</script>", page.index('type="application/json"'))]
    assert OBEYED.findall(page[:start] + data) == []
    embexp("report", runs / made.name, "--html", tmp_path / "one.html")
    assert OBEYED.findall((tmp_path / "one.html").read_text().partition("<body")[0]) == []
    embexp("checkpoint", "graph", runs / made.name, "-o", tmp_path / "graph.svg")
    picture = (tmp_path / "graph.svg").read_text()
    ElementTree.fromstring(picture)
    assert "<script" not in picture
    assert OBEYED.findall(picture) == []


def test_data_for_programs_is_as_it_is_but_on_a_terminal(
    embexp: Embexp, runs: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["vectors", "neighbors", runs / made.name, IN_TOKENS, "--table", "user", "--json"]
    assert list(json.loads(embexp(*words))) == [IN_TOKENS]
    printable.write_data(EVIL)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    printable.write_data(EVIL)
    found = embexp("checkpoint", "list", runs / made.name, "--json")
    assert found.startswith(f"{EVIL}a␛[31mb␍c\ufffdd<script>")
    assert OBEYED.findall(found.removeprefix(EVIL)) == []


def test_vectors_info(embexp: Embexp, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "x.tokens.txt").write_text(f"{IN_TOKENS}\nb\n")
    folder = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}{EVIL.replace('/', '|')}")
    for words in (["info"], ["neighbors", "b"]):
        found = embexp("vectors", words[0], folder / "x.npy", *words[1:])
        assert OBEYED.findall(found) == []


def test_stages_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    console = SafeConsole(force_terminal=True, width=200)
    stages = Stages(console)
    with console.capture() as capture:
        stages(EVIL, None)
        stages.close()
        with waiting.shown_if_long(console, after=0.0) as progress:
            progress(EVIL, 0.5)
    assert "[/x]" in capture.get()
    assert "\u202e" not in capture.get()
