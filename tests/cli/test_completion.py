"""Completion of the command line: what may follow, and real shells that ask for it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embexp.cli import commands
from embexp.cli.commands import completion
from embexp.cli.commands.completion import candidates

SAID = {
    "commands": ("embexp res", ["resume"]),
    "actions": ("embexp vectors co", ["compare", "convert"]),
    "subcommands": ("embexp checkpoint gr", ["graph", "grow"]),
    "a subcommand of sweeps": ("embexp sweep c", ["cancel"]),
    "options": ("embexp run --config-n", ["--config-name"]),
    "options of an export": ("embexp export --re", ["--recall"]),
    "kinds of an export": ("embexp export DIR OUT --as v", ["vectors"]),
    "options of a subcommand": ("embexp checkpoint list --v", ["--values", "--verify"]),
    "values of an option": ("embexp run --cfg h", ["hydra"]),
    "a node for --package": ("embexp run --cfg job -p featur", ["features"]),
    "a group and a node": ("embexp run mode", ["model.", "model="]),
    "without a command": ("embexp model=ml", ["model=mlp"]),
    "choices": ("embexp run runtime=", [f"runtime={each}" for each in ("auto", "estimator", "function", "session")]),
    "experiments in a folder": ("embexp run experiment=published/um", ["experiment=published/umls"]),
    "experiments to check": ("embexp check published/um", ["published/umls"]),
    "overrides of what is checked": ("embexp check published/umls train.ea", ["train.early_stopping."]),
    "the next choice of a sweep": ("embexp run -m runtime=auto,s", ["runtime=auto,session"]),
    "a group at a place": ("embexp run optimizer@tables.item", ["optimizer@tables.item.optimizer="]),
    "choices at a place": ("embexp plan freeze@tables.item.freeze=t", ["freeze@tables.item.freeze=table"]),
    "keys": ("embexp run train.ev", ["train.evaluate_every=", "train.evaluation_batch_size="]),
    "a node": ("embexp run train.ea", ["train.early_stopping."]),
    "keys of a choice on the line": ("embexp run model=mlp model.h", ["model.hidden="]),
    "a switch": ("embexp run output.plots=", ["output.plots=false", "output.plots=true"]),
    "the value that it has": ("embexp run train.batch_size=", ["train.batch_size=1024"]),
    "names of data sets": (
        "embexp run experiment=movielens data.fetch=ml-1",
        ["data.fetch=ml-100k", "data.fetch=ml-1m"],
    ),
    "no value to suggest": ("embexp run train.steps=", []),
    "a key to remove": ("embexp run ~features.h", ["~features.history", "~features.history."]),
    "a group to add": ("embexp run +initial", ["+initializer="]),
    "quoted": ("embexp run 'model=ml", ["'model=mlp"]),
    "settings of Hydra": ("embexp run hydra.sweep.", ["hydra.sweep.dir=", "hydra.sweep.subdir="]),
    "refused settings of Hydra": ("embexp run hydra.he", []),
    "groups of Hydra": ("embexp run hydra/la", ["hydra/launcher="]),
    "nothing like it": ("embexp run xyzzy", []),
    "lists together": ("embexp run -m zip", ["zip("]),
    "a key of lists together": ("embexp run -m 'zip(model,runt", ["'zip(model,runtime", "'zip(model,runtime."]),
    "a value in a list": (
        "embexp run -m 'zip(model,runtime)=[mlp,auto],[dlrm,se",
        ["'zip(model,runtime)=[mlp,auto],[dlrm,session"],
    ),
    "a value too many": ("embexp run -m 'zip(model,runtime)=[mlp,auto,s", []),
}


@pytest.mark.parametrize("case", SAID)
def test_candidates(case: str) -> None:
    line, expected = SAID[case]
    assert candidates(line) == expected


def test_keys_of_the_launcher() -> None:
    assert "hydra.launcher.jobs=" in candidates("embexp run -m hydra.launcher.")
    assert not [each for each in candidates("embexp run -m hydra.launcher.") if "_target_" in each]


def test_a_word_that_is_complete_has_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert candidates("embexp run model=mlp ") == candidates("embexp run model=mlp  ")
    assert set(candidates("embexp ")) == set(commands.COMMANDS)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").touch()
    (tmp_path / ".hidden").touch()
    assert candidates("embexp run data.path=./d") == ["data.path=./data/"]
    assert candidates("embexp run data.path=./data/") == ["data.path=./data/a.csv"]
    assert candidates("embexp evaluate ") == ["data/"]
    assert candidates("embexp run --config-dir d") == ["data/"]


def test_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [mlp, _self_]\n")
    (tmp_path / "other.yaml").write_text("train: {mine: 1}\n")
    assert candidates(f"embexp run --config-dir {tmp_path} model=mi") == ["model=mine"]
    assert candidates(f"embexp run --config-dir={tmp_path} --config-name o") == ["other"]
    assert candidates(f"embexp run -cd {tmp_path} -cn other train.") == ["train.mine="]
    assert candidates(f"embexp run --config-path {tmp_path} opt") == []


SHELL = """
eval "$(embexp completion bash)"
COMP_WORDBREAKS=$' \\t\\n"\\'@><=;|&(:'
COMP_LINE=$1; COMP_POINT=${#1}; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_embexp_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with the command `embexp`."""
    command = tmp_path / "embexp"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m embexp "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.getcwd()}


@pytest.mark.parametrize(
    ("line", "words", "expected"),
    [  # the words as bash cuts them, and what it replaces of the last one
        ("embexp run mode", ["mode"], ["model.", "model="]),
        ("embexp run runtime=s", ["runtime", "=", "s"], ["session"]),
        ("embexp run optimizer@tables.it", ["optimizer", "@", "tables.it"], ["tables.item.optimizer="]),
        ("embexp run 'model=ml", ["'model=ml"], ["model=mlp"]),
    ],
)
def test_bash(line: str, words: list[str], expected: list[str], environment: dict[str, str]) -> None:
    command = ["bash", "--norc", "-c", SHELL, "bash", line, "embexp", "run", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == expected


def test_a_person_presses_tab_in_bash(environment: dict[str, str]) -> None:
    terminal, inner = os.openpty()
    command = ["bash", "--norc", "--noprofile", "-i"]
    variables = {**environment, "PS1": "$ ", "TERM": "dumb"}
    shell = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=variables, start_new_session=True)
    os.close(inner)
    try:
        os.write(terminal, b'eval "$(embexp completion bash)"; echo rea""dy\n')
        assert "ready" in _read(terminal, "ready\r\n")
        os.write(terminal, b"embexp run model=ml\t")
        assert "model=mlp " in _read(terminal, "model=mlp ")
        os.write(terminal, b"optimizer@tables.it\t")
        assert "optimizer=" in _read(terminal, "optimizer=")
    finally:
        os.close(terminal)  # which ends the shell
        shell.wait()


def _read(terminal: int, wanted: str) -> str:
    text, end = "", time.monotonic() + 60
    while wanted not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            text += os.read(terminal, 65_536).decode(errors="replace")
    return text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"-sc query={shell}" in script


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["completion"], "embexp completion: for which shell?"),
        (["completion", "tcsh"], "embexp completion: there is no script for tcsh"),
        (["run", "-sc"], "-sc takes query=SHELL"),
        (["run", "-sc", "query=csh"], "bash, zsh or fish: it is for"),
        (["run", "-sc", "query=bash"], "COMP_LINE, which is not set"),
    ],
)
def test_misuse(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMP_LINE", raising=False)
    assert commands.main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@settings(max_examples=40)
@example(name="{a,b}$(touch x)`y` 1")
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1))
def test_no_shell_runs_what_a_name_holds(shell: str, name: str) -> None:
    """What bash makes of a candidate is the name, and no command is run for it."""
    if not (words := completion.typed(f"model={name}", shell)):
        assert not name.isprintable()
        return
    found = subprocess.run(["bash", "-c", f"printf %s {words}"], capture_output=True, text=True, check=True)
    assert found.stdout == f"model={name}"


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_that_a_name_would_end_are_not_completed(quote: str) -> None:
    assert completion.typed(f"{quote}model=a b", "bash") == f"{quote}model=a b"
    assert completion.typed(f"{quote}model={quote}$(touch x)", "bash") == ""


def test_a_query_ends_at_the_cursor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", "embexp run model=ml and more")
    monkeypatch.setenv("COMP_POINT", str(len("embexp run model=ml")))
    assert commands.main(["-sc", "query=fish"]) == 0
    assert capsys.readouterr().out == "model=mlp\n"
