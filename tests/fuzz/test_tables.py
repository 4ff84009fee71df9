"""Two hundred files as people might have them, and two hundred settings: `new` writes what `plan` and `run` take."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from embexp.cli import commands
from embexp.errors import UsageError
from tests.fuzz import configs, tables
from tests.thoroughness import thorough

FILES, SETTINGS, TRAINED = (200, 200, 200) if thorough() else (5, 8, 2)
"""Files, lists of settings, and how many of those that get an experiment are trained, a few steps each."""


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
    assert found.count("refused") < FILES * 0.8


_NOT_TRAINED = re.compile(
    "strategy|tracking|hydra|study|output|runtime|init|restore|steps|epochs|tables[.].*[.]dim|batch"
)
"""What would need other devices, servers or minutes."""


def outcome_of_settings(number: int, folder: Path, *, trains: bool) -> str:
    """What is wrong with how some random settings are planned, and perhaps run; "", "refused" or "planned"."""
    words = configs.settings(Random(number))
    try:
        configs.status_of(["plan", *words], folder, {0, 2})
    except UsageError:
        return "refused"
    except Exception:
        return f"{words}: {traceback.format_exc()[-1500:]}"
    if not trains or _NOT_TRAINED.search(" ".join(words)):
        return "planned"
    run = folder / str(number)
    few = ["train.steps=2", "data.examples=300", "output.plots=false", f"hydra.run.dir={run}"]
    status, text = said(["run", *words, *few])
    if status == 2:
        return "planned"  # another experiment, whose data is not that of `few`
    if status not in (0, 1) or "Traceback" in text:
        return f"{words}: run ended with {status}: {text[-1500:]}"
    metrics = {} if status else json.loads((run / "summary.json").read_text("utf-8"))["metrics"]
    return "" if all(map(math.isfinite, numbers_in(metrics))) else f"{words}: metrics {metrics}"


def test_settings_are_planned_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = []
    for number in range(SETTINGS):
        found.append(outcome_of_settings(number, tmp_path, trains=found.count("") < TRAINED // 2))
    assert [(number, fault) for number, fault in enumerate(found) if fault not in ("", "refused", "planned")] == []
    assert 0.1 * SETTINGS < found.count("refused") < 0.9 * SETTINGS
