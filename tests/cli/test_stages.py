"""Stages before a training on the console: a line each, and how far a long one is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from embexp.cli import stages
from embexp.cli.stages import Stages


def test_a_long_stage_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(stages.time, "monotonic", lambda: clock[0])
    said = io.StringIO()
    shown = Stages(Console(file=said, width=80))
    for second in range(61):
        clock[0] = 100.0 + second
        shown("reading the data", 0.1 + second / 100)
    shown("making vocabularies", None)
    assert said.getvalue().splitlines() == [
        "reading the data",
        "reading the data 20%, 1:20 left",
        "reading the data 30%, 1:10 left",
        "reading the data 40%, 1:00 left",
        "reading the data 50%, 0:50 left",
        "reading the data 60%, 0:40 left",
        "reading the data 70%, 0:30 left",
        "making vocabularies",
    ]
