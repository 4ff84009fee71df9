"""Two hundred files as people might have them, and two hundred settings: `new` writes what `plan` and `run` take."""

from __future__ import annotations

import contextlib
import io
import json
import math
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from embexp.cli import commands
from tests.fuzz import tables
from tests.thoroughness import thorough

FILES, TRAINED = 200, 200 if thorough() else 6
"""Files that are made, and how many of those that get an experiment are trained, a few steps each."""


def said(words: Sequence[str]) -> tuple[int | str, str]:
    """Status of a command, or the trace of what it raised, and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            return commands.main(words), out.getvalue()
        except Exception:
            return traceback.format_exc(), out.getvalue()


def numbers_in(value: Any) -> Iterator[float]:
    """All numbers of a value from JSON."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from numbers_in(each)
    if isinstance(value, float):
        yield value


def outcome(number: int, folder: Path, *, trains: bool) -> str:
    """What is wrong with a file's way from `new` to `run`, or ""; `refused` where `new` says why it can't."""
    table = tables.table(number, folder)
    conf = folder / "conf"
    words = ["new", str(table.path), "--out", str(conf), "--name", "own"]
    status, text = said([*words, *(["--label", table.label] if table.label is not None else [])])
    if status == 2 and text.count("embexp: ") == 1 and "nothing" not in text.partition("embexp: ")[2].split(":")[0]:
        return "refused"
    if status != 0:
        return f"{table.about}: new ended with {status}: {text[-1500:]}"
    steps = [
        ["plan", "--scan"],
        *([["run", f"hydra.run.dir={folder / 'run'}", "output.plots=false", "train.steps=3"]] if trains else []),
    ]
    for command in steps:
        status, text = said([command[0], "--config-dir", str(conf), "experiment=own", *command[1:]])
        if status != 0:
            return f"{table.about}: {command[0]} ended with {status}: {text[-1500:]}"
    if trains:
        metrics = json.loads((folder / "run" / "summary.json").read_text("utf-8"))["metrics"]
        if not all(map(math.isfinite, numbers_in(metrics))):
            return f"{table.about}: metrics {metrics}"
    return ""


def test_what_new_writes_can_be_planned_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found, trained = [], 0
    for number in range(FILES):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(outcome(number, folder, trains=trained < TRAINED))
        trained += not found[-1]
    assert [(number, fault) for number, fault in enumerate(found) if fault not in ("", "refused")] == []
    assert found.count("refused") < FILES * 0.6
