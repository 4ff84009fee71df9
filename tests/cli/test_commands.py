"""Which command runs, and how errors reach the user."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from embexp.cli import commands


def embexp(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "embexp", *words], capture_output=True, text=True, cwd=cwd)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in commands.COMMANDS:
        assert f"    {command} " in text
    assert commands.main([]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_help_of_each_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: embexp {command} ")


def test_help_of_run_lists_groups_and_choices_of_the_user_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "optimizer").mkdir()
    (tmp_path / "optimizer" / "mine.yaml").write_text("# My own optimizer.\nkind: sgd\n")
    assert commands.main(["run", "--help", "--config-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "  optimizer=\n" in text
    assert re.search(r"^      mine +My own optimizer\.$", text, re.MULTILINE)
    assert "Adam without bias correction" in text
    assert "hydra" not in text.partition("groups and their choices")[2]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["--version"]) == 0
    assert capsys.readouterr().out == "embexp 0.2.0\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu"], "embexp: there is no command 'rnu'\n    did you mean run?\n"),
        (
            ["xyzzy"],
            f"embexp: there is no command 'xyzzy'\n    the commands are {', '.join(commands.COMMANDS)}\n",
        ),
        (
            ["predict", "run", str(Path(__file__))],
            f"there is no argument {__file__}\n    name files of data with --data: --data {__file__}\n",
        ),
        (["run", "--multrun"], "embexp: embexp run: there is no option --multrun\n    did you mean --multirun?\n"),
        (["export", "r", "--out", "o"], "there is no option --out o\n    give OUT in its place, without --out\n"),
        (["export", "apply", "--base=b"], "no option --base=b\n    give BASE in its place, without --base\n"),
        (["run", "--info"], "    --info is an option of Hydra that embexp does not have: use --cfg hydra"),
        (["run", "--config-path=x"], "embexp: --config-path x: there is no such folder\n"),
        (["run", "--cfg", "jop"], "--cfg jop: it must be job, hydra or all"),
        (["run", "-m", "--cfg", "job"], "embexp: -m runs several experiments, --cfg is for one\n"),
        (["run", "--resolve"], "embexp: --package and --resolve are options of --cfg: add --cfg job\n"),
        (["run", "--config-dir", "/no/such"], "embexp: --config-dir /no/such: there is no such folder\n"),
        (["run", "--config-name", "nosuch"], "there is no file nosuch.yaml in "),
        *(
            ([name], f"embexp: embexp {name}: which run? Give its directory\n    usage: embexp {name} DIR ")
            for name in ("evaluate", "recommend", "resume", "verify")
        ),
        (["evaluate", "d", "--data", "f", "--split", "test"], "give one of them"),
        (
            ["predict"],
            "which run? Give its directory\n    which data? Give --data FILE\n    usage: embexp predict DIR ",
        ),
        (["predict", "d"], "embexp: embexp predict: which data? Give --data FILE\n"),
    ],
)
def test_misuse(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(words) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_overrides_without_a_command_go_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["--cfg", "job", "-p", "train.steps", "train.steps=3"]) == 0
    assert capsys.readouterr().out.endswith("\n3\n")
    assert commands.main(["train.steps=-3"]) == 2
    assert "train.steps = -3" in capsys.readouterr().err


WITHOUT_HYDRA = [(["--help"], 0), (["run", "--help"], 0), (["rnu"], 2)]
LIGHT = [
    *WITHOUT_HYDRA,
    (["run", "--cfg", "job"], 0),
    (["plan"], 0),
    (["run", "trian.epochs=3"], 2),
    (["run", "-m", "tables.item.dim=0,1"], 2),
    (["run", "experiment=movielens", "data.path=nowhere"], 2),
]


def test_nothing_heavy_is_imported_and_nothing_is_left_behind(tmp_path: Path) -> None:
    """By one command after the other, in one process."""
    script = (
        "import sys\nfrom embexp.cli.commands import main\n"
        f"for words in {[words for words, _ in LIGHT]!r}:\n"
        "    status = main(words)\n"
        "    heavy = {'tensorflow', 'keras', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "    light = {'hydra', 'omegaconf', 'pydantic', 'rich'} & set(sys.modules)\n"
        "    print('IMPORTED', status, sorted(heavy), bool(light), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert [line for line in done.stderr.splitlines() if line.startswith("IMPORTED")] == [
        f"IMPORTED {status} [] {place >= len(WITHOUT_HYDRA)}" for place, (_, status) in enumerate(LIGHT)
    ]
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_as_a_module(tmp_path: Path) -> None:
    done = embexp("optimizer=adagat", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "optimizer = 'adagat'" in done.stderr
    assert "did you mean adagrad" in done.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m embexp run --help | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
